"""Encodes columns of records as uncompressed Kafka record batches: the inverse of `records`.

One call encodes one batch with as many records as fit, at least one. A batch also ends before a
record that it cannot hold: one whose timestamp delta would exceed 64 bits, whose offset delta would
exceed 32 bits, or, under LogAppendTime, whose timestamp differs from the batch's. `lastOffsetDelta`
reaches up to the next record's offset: a gap in the offsets belongs to the batch before it, and no
reader waits for the missing offsets.
"""

from typing import NamedTuple

import numpy as np

from shm.kernels.base import words
from shm.kernels.base.bytes import copy_short, put16, put32, put64, store16
from shm.kernels.base.crc32c import crc32c
from shm.kernels.base.jit import kernel
from shm.kernels.record.records import (
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

OFFSET_DELTA_MAX = 2**31 - 1
VALUE_HEAD_BYTES = 4  # Attributes, timestamp delta, null key, no headers.
RECORD_HEAD_BYTES_MAX = 32  # More than a record's varints take, without those of its fields.
# A batch's first record has four lengths (its own, key, value, headers) of five bytes, and a byte
# each of attributes and both deltas. `encode_one` does not look at the room: what is too long
# overwrites the request that stands behind it in the ring.
assert RECORD_HEAD_BYTES_MAX >= 4 * 5 + 3


class RecordRows(NamedTuple):
    """Columns as `records` makes them. Keys, values and headers may lie in different arrays."""

    columns: np.ndarray
    headers: np.ndarray
    keys: np.ndarray
    values: np.ndarray
    header_keys: np.ndarray
    header_values: np.ndarray


class ValueRows(NamedTuple):
    """Records with a value only: that of row i is data[offsets[i]:offsets[i + 1]].

    These offsets are int32, as in Arrow, and were checked by `are_offsets`. The records get the
    offsets 0, 1, 2 … in the batch, and all have the same timestamp.
    """

    data: np.ndarray
    offsets: np.ndarray
    timestamp: int


class One(NamedTuple):
    """A single record with offset 0 and encoded headers. A length of -1 means null."""

    value: np.ndarray
    value_length: int
    key: np.ndarray
    key_length: int
    headers: np.ndarray
    timestamp: int


class Run(NamedTuple):
    """The batch header fields shared by consecutive records, which end before row `end`.

    `end_offset` is the offset after the last record. The last three fields are an idempotent
    producer's; `base_sequence` is that of the next batch.
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
    """The encoded size of a zigzag varint."""
    bits = np.uint64((value << 1) ^ (value >> 63))
    if bits < np.uint64(1 << 7):  # Most are short; a loop would cost a third of a whole record.
        return 1
    if bits < np.uint64(1 << 14):
        return 2
    if bits < np.uint64(1 << 21):
        return 3
    count = 3
    bits >>= np.uint64(21)
    while bits > np.uint64(0):
        bits >>= np.uint64(7)
        count += 1
    return count


@kernel
def put_varint(out, at, value):
    """Write a zigzag varint of up to 64 bits; returns its end."""
    bits = np.uint64((value << 1) ^ (value >> 63))
    if np.uint64(127) < bits < np.uint64(1 << 14):  # Most values' lengths; faster than the loop.
        word = np.int64(bits)
        store16(out, at, word & 127 | 128 | (word >> 7) << 8)
        return at + 2
    while bits > np.uint64(127):
        out[at] = (bits & np.uint64(127)) | np.uint64(128)
        bits >>= np.uint64(7)
        at += 1
    out[at] = bits
    return at + 1


@kernel
def field_bytes(length):
    """The encoded size of a field: its length as a varint (-1: null), then its bytes."""
    return varint_bytes(length) + max(length, 0)


@kernel
def put_field(out, at, data, start, length):
    """Write a field: a length and that many bytes of `data`; returns its end."""
    at = put_varint(out, at, length)
    if length > 0:
        copy_short(out, at, data, start, length)
        at += length
    return at


@kernel
def headers_bytes(rows, row, count):
    """The encoded size of a record's headers, without their count."""
    headers, size = rows.headers, 0
    first = rows.columns[C_HEADERS_FIRST, row]
    for header in range(first, first + count):
        size += field_bytes(headers[H_KEY_LENGTH, header])
        size += field_bytes(headers[H_VALUE_LENGTH, header])
    return size


@kernel
def put_headers(rows, row, count, out, at):
    """Write a record's headers, without their count; returns their end."""
    headers = rows.headers
    first = rows.columns[C_HEADERS_FIRST, row]
    for header in range(first, first + count):
        key_at, key_length = headers[H_KEY_AT, header], headers[H_KEY_LENGTH, header]
        at = put_field(out, at, rows.header_keys, key_at, key_length)
        value_at, value_length = headers[H_VALUE_AT, header], headers[H_VALUE_LENGTH, header]
        at = put_field(out, at, rows.header_values, value_at, value_length)
    return at


@kernel
def may_share_batch(columns, row, first, attributes):
    """Whether a batch whose first record is row `first` can hold the record of `row`."""
    base, timestamp = columns[C_TIMESTAMP, first], columns[C_TIMESTAMP, row]
    if columns[C_OFFSET, row] - columns[C_OFFSET, first] > OFFSET_DELTA_MAX:
        return False
    if attributes & words.ATTRIBUTE_LOG_APPEND_TIME:
        return base == timestamp
    return timestamp <= INT64_MAX + base if base < 0 else timestamp >= INT64_MIN + base


@kernel
def put_batch_header(span, times, count, run, out, at, size):
    """Write the header (61 bytes) of a batch of `count` records and `size` bytes, header included.

    `span` is (base offset, the offset after the batch), `times` (first, largest timestamp).
    """
    last_delta = min(span[1] - 1 - span[0], OFFSET_DELTA_MAX)
    put64(out, at + words.BATCH_BASE_OFFSET_AT, span[0])
    put32(out, at + words.BATCH_LENGTH_AT, size - words.BATCH_OVERHEAD_BYTES)
    put32(out, at + words.BATCH_LEADER_EPOCH_AT, run.leader_epoch)
    out[at + words.BATCH_MAGIC_AT] = 2
    put16(out, at + words.BATCH_ATTRIBUTES_AT, run.attributes)
    put32(out, at + words.BATCH_LAST_OFFSET_DELTA_AT, last_delta)
    put64(out, at + words.BATCH_BASE_TIMESTAMP_AT, times[0])
    put64(out, at + words.BATCH_MAX_TIMESTAMP_AT, times[1])
    put64(out, at + words.BATCH_PRODUCER_ID_AT, run.producer_id)
    put16(out, at + words.BATCH_PRODUCER_EPOCH_AT, run.producer_epoch)
    put32(out, at + words.BATCH_BASE_SEQUENCE_AT, run.base_sequence)
    put32(out, at + words.BATCH_RECORD_COUNT_AT, count)
    put32(
        out,
        at + words.BATCH_CRC_AT,
        np.int64(crc32c(out, at + words.BATCH_ATTRIBUTES_AT, at + size)),
    )


@kernel
def encode_batch(rows, first, run, bytes_max, out, at):
    """Write one batch of the records from row `first` on to out[at:]; (next row, the batch's end).

    It has at most `bytes_max` bytes, or one record. Returns (first, at) if `out` has no room for
    the first record.
    """
    # Each word of a row is loaded only once, and no helper called for each record takes all of
    # `rows`: together this halved the time.
    columns, start, row, limit = rows.columns, at, first, len(out)
    base_time, base_offset = columns[C_TIMESTAMP, first], columns[C_OFFSET, first]
    at += words.BATCH_HEADER_BYTES
    while row < run.end:
        if row > first and not may_share_batch(columns, row, first, run.attributes):
            break
        time_delta = columns[C_TIMESTAMP, row] - base_time
        offset_delta = columns[C_OFFSET, row] - base_offset
        key_length, value_length = columns[C_KEY_LENGTH, row], columns[C_VALUE_LENGTH, row]
        header_count = columns[C_HEADER_COUNT, row]
        size = 1 + varint_bytes(time_delta) + varint_bytes(offset_delta)
        size += field_bytes(key_length) + field_bytes(value_length) + varint_bytes(header_count)
        if header_count > 0:
            size += headers_bytes(rows, row, header_count)
        if at + varint_bytes(size) + size > limit:
            break
        at = put_varint(out, at, size)
        out[at] = 0
        at = put_varint(out, at + 1, time_delta)
        at = put_varint(out, at, offset_delta)
        at = put_field(out, at, rows.keys, columns[C_KEY_AT, row], key_length)
        at = put_field(out, at, rows.values, columns[C_VALUE_AT, row], value_length)
        at = put_varint(out, at, header_count)
        if header_count > 0:
            at = put_headers(rows, row, header_count, out, at)
        limit = min(len(out), start + bytes_max)
        row += 1
    if row == first:
        return first, start
    newest = base_time
    for each in range(first + 1, row):
        newest = max(newest, columns[C_TIMESTAMP, each])
    next_offset = columns[C_OFFSET, row] if row < run.end else run.end_offset
    span, times = (base_offset, next_offset), (base_time, newest)
    put_batch_header(span, times, row - first, run, out, start, at - start)
    return row, at


@kernel
def are_offsets(offsets, size):
    """Whether these offsets never fall, are not negative, and end within `size` bytes."""
    before = 0
    for i in range(len(offsets)):
        if offsets[i] < before:
            return False
        before = offsets[i]
    return before <= size


@kernel
def encode_values(values, first, run, bytes_max, out, at):
    """`encode_batch` for ValueRows: filling columns would take as long as encoding the rows."""
    data, offsets, start, row, limit = values.data, values.offsets, at, first, len(out)
    at += words.BATCH_HEADER_BYTES
    while row < run.end:
        value_at, delta = np.int64(offsets[row]), row - first
        length = offsets[row + 1] - value_at
        size = VALUE_HEAD_BYTES + varint_bytes(delta) + varint_bytes(length) + length
        if at + varint_bytes(size) + size > limit:
            break
        at = put_varint(out, at, size)
        store16(out, at, 0)  # No attributes; all timestamps are the first one's.
        at = put_varint(out, put_varint(out, at + 2, delta), -1)
        at = put_varint(out, at, length)
        copy_short(out, at, data, value_at, length)
        at += length
        out[at] = 0
        at += 1
        limit = min(len(out), start + bytes_max)
        row += 1
    if row == first:
        return first, start
    times = (values.timestamp, values.timestamp)
    put_batch_header((first, row), times, row - first, run, out, start, at - start)
    return row, at


@kernel
def encode_one(
    value, value_length, key, key_length, headers, timestamp,
    attributes, producer_id, producer_epoch, base_sequence, out, at,
):  # fmt: skip
    """Write a batch of a One to out[at:], which has room for it; returns its end.

    The fields of One are separate arguments: passing a tuple takes longer than all the rest.
    """
    start, size = at, 3 + field_bytes(key_length) + field_bytes(value_length) + len(headers)
    at = put_varint(out, start + words.BATCH_HEADER_BYTES, size)
    out[at] = out[at + 1] = out[at + 2] = 0  # No attributes; both deltas are 0.
    at = put_field(out, at + 3, key, 0, key_length)
    at = put_field(out, at, value, 0, value_length)
    copy_short(out, at, headers, 0, len(headers))
    at += len(headers)
    run = Run(1, 1, attributes, -1, producer_id, producer_epoch, base_sequence)
    put_batch_header((0, 1), (timestamp, timestamp), 1, run, out, start, at - start)
    return at
