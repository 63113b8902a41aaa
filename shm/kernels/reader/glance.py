"""Reading published words from another process: the readers' half of the handshakes."""

from shm.kernels.base.atomics import fence, load_acquire
from shm.kernels.base.jit import kernel


@kernel
def acquire_word(memory, word):
    """A word of a log's header (memory: uint8), and everything its writer wrote before it."""
    return load_acquire(memory, 8 * word)


@kernel
def word_after_reading(memory, word):
    """A word of a log's header, read after everything this thread has read before.

    SYNC POINT with shm.kernels.log.append.claim.
    """
    fence()
    return load_acquire(memory, 8 * word)
