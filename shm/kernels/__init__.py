"""Compiled loops over bytes; each has a plain twin in shm.kernels.twin."""
