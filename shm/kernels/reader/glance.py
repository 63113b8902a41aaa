"""Reads words that another process publishes: the reader's half of the handshakes."""

from shm.kernels.base import words
from shm.kernels.base.atomics import fence, load_acquire
from shm.kernels.base.jit import kernel


@kernel
def acquire_word(memory, word):
    """A word of a log's header (memory: uint8), and everything its writer wrote before it."""
    return load_acquire(memory, 8 * word)


@kernel
def acquire_partition(memory, slot, column):
    """A column of a partition's row, and everything its writer wrote before it."""
    return load_acquire(memory, words.HEADER_BYTES + slot * words.PARTITION_ROW_BYTES + 8 * column)


@kernel
def word_after_reading(memory, word):
    """A word of a log's header, read after all earlier reads of this thread.

    SYNC POINT with shm.kernels.log.append.claim.
    """
    fence()
    return load_acquire(memory, 8 * word)
