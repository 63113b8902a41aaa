"""Words of a log's memory (a uint8 array laid out by shm.layout), for kernels."""

from shm.kernels.base.atomics import store_release
from shm.kernels.base.bytes import load16, load32, load64, load_u32, store16, store32, store64
from shm.kernels.base.jit import kernel
from shm.kernels.base.words import (
    HEADER_BYTES,
    PARTITION_ROW_BYTES,
    WORD_INDEX_CAPACITY,
    WORD_PARTITION_CAPACITY,
    WORD_RING_BYTES,
)


@kernel
def get_word(memory, word):
    """A word of the header."""
    return load64(memory, 8 * word)


@kernel
def set_word(memory, word, value):
    """Write a word of the header that only its writer reads, or that is published by another."""
    store64(memory, 8 * word, value)


@kernel
def release_word(memory, word, value):
    """Publish a word of the header: who acquires it sees all that was written before."""
    store_release(memory, 8 * word, value)


@kernel
def get_partition(memory, slot, column):
    """A column of a partition's row."""
    return load64(memory, HEADER_BYTES + slot * PARTITION_ROW_BYTES + 8 * column)


@kernel
def set_partition(memory, slot, column, value):
    """Write a column of a partition's row."""
    store64(memory, HEADER_BYTES + slot * PARTITION_ROW_BYTES + 8 * column, value)


@kernel
def release_partition(memory, slot, column, value):
    """Publish a column of a partition's row."""
    store_release(memory, HEADER_BYTES + slot * PARTITION_ROW_BYTES + 8 * column, value)


@kernel
def ring_at(memory):
    """Where the ring begins: it is the end of the memory."""
    return memory.size - load64(memory, 8 * WORD_RING_BYTES)


@kernel
def _column_at(memory, bytes_before, width, i):
    start = HEADER_BYTES + load64(memory, 8 * WORD_PARTITION_CAPACITY) * PARTITION_ROW_BYTES
    return start + load64(memory, 8 * WORD_INDEX_CAPACITY) * bytes_before + width * i


@kernel
def entry_position(memory, i):
    """Column `position` of the index at slot i: of the frame."""
    return load64(memory, _column_at(memory, 0, 8, i))


@kernel
def entry_base_offset(memory, i):
    """Column `base_offset`."""
    return load64(memory, _column_at(memory, 8, 8, i))


@kernel
def entry_max_timestamp(memory, i):
    """Column `max_timestamp`."""
    return load64(memory, _column_at(memory, 16, 8, i))


@kernel
def entry_partition(memory, i):
    """Column `partition`: its number."""
    return load_u32(memory, _column_at(memory, 24, 4, i))


@kernel
def entry_record_count(memory, i):
    """Column `record_count`: how many offsets the batch spans."""
    return load32(memory, _column_at(memory, 28, 4, i))


@kernel
def entry_bytes(memory, i):
    """Column `bytes`: of the batch."""
    return load32(memory, _column_at(memory, 32, 4, i))


@kernel
def entry_attributes(memory, i):
    """Column `attributes`: of the batch."""
    return load16(memory, _column_at(memory, 36, 2, i))


@kernel
def write_entry(memory, i, position, base_offset, max_timestamp, partition, shape):
    """Fill slot i of all columns; `shape` is (offsets spanned, bytes of the batch, attributes)."""
    store64(memory, _column_at(memory, 0, 8, i), position)
    store64(memory, _column_at(memory, 8, 8, i), base_offset)
    store64(memory, _column_at(memory, 16, 8, i), max_timestamp)
    store32(memory, _column_at(memory, 24, 4, i), partition)
    store32(memory, _column_at(memory, 28, 4, i), shape[0])
    store32(memory, _column_at(memory, 32, 4, i), shape[1])
    store16(memory, _column_at(memory, 36, 2, i), shape[2])
