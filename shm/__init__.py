"""Bytes in shared memory: layout, atomics, kernels, ring and index."""
