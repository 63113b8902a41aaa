"""Publishing a version word, for Python code: the smallest use of the atomics.

SYNC POINT between the two: a reader of a version may read everything written before it; and a
reader of a value that is being overwritten sees, on checking again, that the version has moved. For
the second, the writer's next writes must not pass the version, nor the reader's second check its
reads: hence the fences.
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
