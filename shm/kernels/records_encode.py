"""Columns of records → Kafka's record batches, uncompressed. The way back of `records`.

One call makes one batch: as many records as fit, at least one. A batch ends early where the next
record could not stand in it: the timestamp's delta would leave 64 bits, or, under LogAppendTime,
where one timestamp holds for all, it differs. `lastOffsetDelta` reaches to the offset before the
next record, so that gaps belong to the batch in front of them and no reader waits for them.
"""

from typing import NamedTuple

import numpy as np

from shm.kernels.bytes import copy_bytes, put16, put32, put64
from shm.kernels.crc32c import crc32c
from shm.kernels.jit import kernel
from shm.kernels.records import (
    C_HEADER_COUNT,
    C_HEADERS_FIRST,
    C_KEY_AT,
    C_KEY_LENGTH,
    C_OFFSET,
    C_TIMESTAMP,
    C_VALUE_AT,
    C_VALUE_LENGTH,
    H_KEY_AT,
    H_KEY_LENGTH,
    H_VALUE_AT,
    H_VALUE_LENGTH,
    INT64_MAX,
    INT64_MIN,
)
from shm.kernels.words import (
    ATTRIBUTE_LOG_APPEND_TIME,
    BATCH_ATTRIBUTES_AT,
    BATCH_BASE_OFFSET_AT,
    BATCH_BASE_SEQUENCE_AT,
    BATCH_BASE_TIMESTAMP_AT,
    BATCH_CRC_AT,
    BATCH_HEADER_BYTES,
    BATCH_LAST_OFFSET_DELTA_AT,
    BATCH_LEADER_EPOCH_AT,
    BATCH_LENGTH_AT,
    BATCH_MAGIC_AT,
    BATCH_MAX_TIMESTAMP_AT,
    BATCH_OVERHEAD_BYTES,
    BATCH_PRODUCER_EPOCH_AT,
    BATCH_PRODUCER_ID_AT,
    BATCH_RECORD_COUNT_AT,
)

OFFSET_DELTA_MAX = 2**31 - 1
RECORD_HEAD_BYTES_MAX = 32  # A generous bound of what a record's varints beside its fields take.


class Rows(NamedTuple):
    """Records as `records` cuts them; keys, values and headers may lie in different bytes."""

    columns: np.ndarray
    headers: np.ndarray
    keys: np.ndarray
    values: np.ndarray
    header_keys: np.ndarray
    header_values: np.ndarray


class Run(NamedTuple):
    """What consecutive records, up to row `end`, share. `end_offset` is the one after them all.

    The last three are an idempotent producer's; the sequence is that of the next batch.
    """

    end: int
    end_offset: int
    attributes: int
    leader_epoch: int
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1


@kernel
def varint_bytes(value):
    """How many bytes a zigzag varint takes."""
    bits = (value << 1) ^ (value >> 63)
    count = 1
    while bits < 0 or bits > 127:
        bits = (bits >> 7) & 0x01FF_FFFF_FFFF_FFFF
        count += 1
    return count


@kernel
def put_varint(out, at, value):
    """Write a zigzag varint of up to 64 bits; where it ends."""
    bits = (value << 1) ^ (value >> 63)
    while bits < 0 or bits > 127:
        out[at] = (bits & 127) | 128
        bits = (bits >> 7) & 0x01FF_FFFF_FFFF_FFFF
        at += 1
    out[at] = bits
    return at + 1


@kernel
def field_bytes(length):
    """What a length and so many bytes take; -1 is null."""
    return varint_bytes(length) + max(length, 0)


@kernel
def put_field(out, at, data, start, length):
    """Write a length and so many bytes of `data`; where they end."""
    at = put_varint(out, at, length)
    if length > 0:
        copy_bytes(out, at, data, start, length)
        at += length
    return at


@kernel
def record_bytes(rows, row, first):
    """What a record takes behind its length, in a batch that begins with row `first`."""
    columns, headers = rows.columns, rows.headers
    size = 1 + varint_bytes(columns[C_TIMESTAMP, row] - columns[C_TIMESTAMP, first])
    size += varint_bytes(columns[C_OFFSET, row] - columns[C_OFFSET, first])
    size += field_bytes(columns[C_KEY_LENGTH, row]) + field_bytes(columns[C_VALUE_LENGTH, row])
    count = columns[C_HEADER_COUNT, row]
    size += varint_bytes(count)
    for header in range(columns[C_HEADERS_FIRST, row], columns[C_HEADERS_FIRST, row] + count):
        size += field_bytes(headers[H_KEY_LENGTH, header])
        size += field_bytes(headers[H_VALUE_LENGTH, header])
    return size


@kernel
def put_record(rows, row, first, out, at):
    """Write a record behind its length; where it ends."""
    columns, headers = rows.columns, rows.headers
    out[at] = 0
    at = put_varint(out, at + 1, columns[C_TIMESTAMP, row] - columns[C_TIMESTAMP, first])
    at = put_varint(out, at, columns[C_OFFSET, row] - columns[C_OFFSET, first])
    at = put_field(out, at, rows.keys, columns[C_KEY_AT, row], columns[C_KEY_LENGTH, row])
    at = put_field(out, at, rows.values, columns[C_VALUE_AT, row], columns[C_VALUE_LENGTH, row])
    count = columns[C_HEADER_COUNT, row]
    at = put_varint(out, at, count)
    for header in range(columns[C_HEADERS_FIRST, row], columns[C_HEADERS_FIRST, row] + count):
        key_at, key_length = headers[H_KEY_AT, header], headers[H_KEY_LENGTH, header]
        at = put_field(out, at, rows.header_keys, key_at, key_length)
        value_at, value_length = headers[H_VALUE_AT, header], headers[H_VALUE_LENGTH, header]
        at = put_field(out, at, rows.header_values, value_at, value_length)
    return at


@kernel
def may_share_batch(columns, row, first, attributes):
    """Whether the record of `row` can stand in a batch that begins with row `first`."""
    base, timestamp = columns[C_TIMESTAMP, first], columns[C_TIMESTAMP, row]
    if attributes & ATTRIBUTE_LOG_APPEND_TIME:
        return base == timestamp
    if columns[C_OFFSET, row] - columns[C_OFFSET, first] > OFFSET_DELTA_MAX:
        return False
    return timestamp <= INT64_MAX + base if base < 0 else timestamp >= INT64_MIN + base


@kernel
def put_batch_header(columns, first, row, run, out, at, size):
    """Write the 61 bytes in front of rows [first, row), a batch of `size` bytes in all."""
    next_offset = columns[C_OFFSET, row] if row < run.end else run.end_offset
    last_delta = min(next_offset - 1 - columns[C_OFFSET, first], OFFSET_DELTA_MAX)
    newest = columns[C_TIMESTAMP, first]
    for each in range(first + 1, row):
        newest = max(newest, columns[C_TIMESTAMP, each])
    put64(out, at + BATCH_BASE_OFFSET_AT, columns[C_OFFSET, first])
    put32(out, at + BATCH_LENGTH_AT, size - BATCH_OVERHEAD_BYTES)
    put32(out, at + BATCH_LEADER_EPOCH_AT, run.leader_epoch)
    out[at + BATCH_MAGIC_AT] = 2
    put16(out, at + BATCH_ATTRIBUTES_AT, run.attributes)
    put32(out, at + BATCH_LAST_OFFSET_DELTA_AT, last_delta)
    put64(out, at + BATCH_BASE_TIMESTAMP_AT, columns[C_TIMESTAMP, first])
    put64(out, at + BATCH_MAX_TIMESTAMP_AT, newest)
    put64(out, at + BATCH_PRODUCER_ID_AT, run.producer_id)
    put16(out, at + BATCH_PRODUCER_EPOCH_AT, run.producer_epoch)
    put32(out, at + BATCH_BASE_SEQUENCE_AT, run.base_sequence)
    put32(out, at + BATCH_RECORD_COUNT_AT, row - first)
    put32(out, at + BATCH_CRC_AT, np.int64(crc32c(out, at + BATCH_ATTRIBUTES_AT, at + size)))


@kernel
def encode_batch(rows, first, run, bytes_max, out, at):
    """Write one batch to out[at:], records from row `first` on: (row behind it, where it ends).

    It has at most `bytes_max` bytes, or one record. (first, at): `out` has no room for that one.
    """
    start, row = at, first
    at += BATCH_HEADER_BYTES
    while row < run.end:
        size = record_bytes(rows, row, first)
        after = at + varint_bytes(size) + size
        if row > first and (
            after - start > bytes_max
            or not may_share_batch(rows.columns, row, first, run.attributes)
        ):
            break
        if after > len(out):
            break
        at = put_record(rows, row, first, out, put_varint(out, at, size))
        row += 1
    if row == first:
        return first, start
    put_batch_header(rows.columns, first, row, run, out, start, at - start)
    return row, at
