"""Words of a log's memory (a uint8 array laid out by shm.layout), for kernels."""

from shm.kernels.base import words
from shm.kernels.base.atomics import store_release
from shm.kernels.base.bytes import load16, load32, load64, load_u32, store16, store32, store64
from shm.kernels.base.entries import (
    ATTRIBUTES,
    BASE_OFFSET,
    BYTES,
    MAX_TIMESTAMP,
    PARTITION,
    POSITION,
    RECORD_COUNT,
)
from shm.kernels.base.jit import kernel


@kernel
def get_word(memory, word):
    """Read a word of the header."""
    return load64(memory, 8 * word)


@kernel
def set_word(memory, word, value):
    """Write a word that only its writer reads, or that another word publishes."""
    store64(memory, 8 * word, value)


@kernel
def release_word(memory, word, value):
    """Publish a word: an acquiring reader sees all earlier writes."""
    store_release(memory, 8 * word, value)


@kernel
def get_partition(memory, slot, column):
    """Read a column of a partition's row."""
    return load64(memory, words.HEADER_BYTES + slot * words.PARTITION_ROW_BYTES + 8 * column)


@kernel
def set_partition(memory, slot, column, value):
    """Write a column of a partition's row."""
    store64(memory, words.HEADER_BYTES + slot * words.PARTITION_ROW_BYTES + 8 * column, value)


@kernel
def release_partition(memory, slot, column, value):
    """Publish a column of a partition's row."""
    store_release(memory, words.HEADER_BYTES + slot * words.PARTITION_ROW_BYTES + 8 * column, value)


@kernel
def ring_at(memory):
    """The start of the ring, which ends with the memory."""
    return memory.size - load64(memory, 8 * words.WORD_RING_BYTES)


@kernel
def _column_at(memory, column, i):
    """Where slot i of a column (shm.kernels.base.entries) lies."""
    bytes_before, width = column
    start = (
        words.HEADER_BYTES
        + load64(memory, 8 * words.WORD_PARTITION_CAPACITY) * words.PARTITION_ROW_BYTES
    )
    return start + load64(memory, 8 * words.WORD_INDEX_CAPACITY) * bytes_before + width * i


@kernel
def entry_position(memory, i):
    """Column `position` of the index at slot i: of the frame."""
    return load64(memory, _column_at(memory, POSITION, i))


@kernel
def entry_base_offset(memory, i):
    """Column `base_offset`."""
    return load64(memory, _column_at(memory, BASE_OFFSET, i))


@kernel
def entry_max_timestamp(memory, i):
    """Column `max_timestamp`."""
    return load64(memory, _column_at(memory, MAX_TIMESTAMP, i))


@kernel
def entry_partition(memory, i):
    """Column `partition`: its number."""
    return load_u32(memory, _column_at(memory, PARTITION, i))


@kernel
def entry_record_count(memory, i):
    """Column `record_count`: how many offsets the batch spans."""
    return load32(memory, _column_at(memory, RECORD_COUNT, i))


@kernel
def entry_bytes(memory, i):
    """Column `bytes`: of the batch."""
    return load32(memory, _column_at(memory, BYTES, i))


@kernel
def entry_attributes(memory, i):
    """Column `attributes`: of the batch."""
    return load16(memory, _column_at(memory, ATTRIBUTES, i))


@kernel
def write_entry(memory, i, position, base_offset, max_timestamp, partition, shape):
    """Fill slot i of all columns; `shape` is (offsets spanned, bytes of the batch, attributes)."""
    store64(memory, _column_at(memory, POSITION, i), position)
    store64(memory, _column_at(memory, BASE_OFFSET, i), base_offset)
    store64(memory, _column_at(memory, MAX_TIMESTAMP, i), max_timestamp)
    store32(memory, _column_at(memory, PARTITION, i), partition)
    store32(memory, _column_at(memory, RECORD_COUNT, i), shape[0])
    store32(memory, _column_at(memory, BYTES, i), shape[1])
    store16(memory, _column_at(memory, ATTRIBUTES, i), shape[2])
