"""Publishing a version word, for Python code: the smallest use of the atomics.

SYNC POINT of writer and reader. A reader that has read a version sees everything written before
it. A reader of a value that is being overwritten finds, when it checks again, that the version has
moved: for this, no later write of the writer may become visible before the version, and the
reader's second check must not happen before its reads. Hence the fences.
"""

from shm.kernels.base.atomics import fence, load_acquire, store_release
from shm.kernels.base.jit import kernel


@kernel
def read_version(words):
    """The version in words[0] of an int64 array, and everything its writer wrote before it."""
    fence()
    return load_acquire(words, 0)


@kernel
def write_version(words, version):
    """Publish all earlier writes under a new version."""
    store_release(words, 0, version)
    fence()
