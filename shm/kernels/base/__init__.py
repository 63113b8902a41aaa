"""Shared by all kernels: compilation, bytes, words, atomics, CRC, frames."""
