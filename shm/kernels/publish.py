"""Publishing a version word, for Python code: the smallest use of the atomics."""

from shm.atomics import load_acquire, store_release
from shm.kernels.jit import kernel


@kernel
def read_version(words):
    """The version in words[0] of an int64 array, and everything its writer wrote before it."""
    return load_acquire(words, 0)


@kernel
def write_version(words, version):
    """Publish what was written before under a new version."""
    store_release(words, 0, version)
