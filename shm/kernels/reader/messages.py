"""Writes records as protobuf messages, each of them a field of the message around it.

    0A length | 0A length key | 12 length value | 18 time, ns | C0 3E offset
              | unless empty  | unless empty    | unless 0    | unless 0

So SeaweedMQ's FetchMessageResponse has its DataMessages; the offset is our own field, 1000. Its
clients count offsets from the first one: the records of a call follow one another without a gap.

Headers are written for themselves, as fields of whatever message has them; 1001 is ours, too:

    CA 3E length | 0A length key | 12 length value
                 | unless empty  | unless null
"""

import numpy as np

from shm.kernels.base.bytes import copy_short
from shm.kernels.base.jit import kernel
from shm.kernels.record.records import (
    C_HEADER_COUNT,
    C_KEY_AT,
    C_KEY_LENGTH,
    C_OFFSET,
    C_TIMESTAMP,
    C_VALUE_AT,
    C_VALUE_LENGTH,
    get_bytes,
    rune_bytes,
)

MESSAGE_TAG = KEY_TAG = 0x0A
VALUE_TAG, TIME_TAG = 0x12, 0x18
OFFSET_TAG = 0xC0, 0x3E
HEADER_TAG = 0xCA, 0x3E
NO_CHARACTER = 0xEF, 0xBF, 0xBD  # U+FFFD.
MS_NS = 1_000_000
TIME_MS_MAX = (2**63 - 1) // MS_NS  # Beyond it, in the year 2262, nanoseconds have no 64 bits.
MESSAGE_REST_BYTES = 48
"""More than a message has beside its key and its value."""
assert MESSAGE_REST_BYTES >= 3 * (1 + 5) + (1 + 10) + (2 + 10)


@kernel
def uvarint_bytes(value):
    """The encoded size of an unsigned varint; a negative number has all 64 bits."""
    bits, count = np.uint64(value), 1
    while bits > np.uint64(127):
        bits >>= np.uint64(7)
        count += 1
    return count


@kernel
def put_uvarint(out, at, value):
    """Write an unsigned varint; returns its end."""
    bits = np.uint64(value)
    while bits > np.uint64(127):
        out[at] = (bits & np.uint64(127)) | np.uint64(128)
        bits >>= np.uint64(7)
        at += 1
    out[at] = bits
    return at + 1


@kernel
def bytes_bytes(length):
    """The size of a field of bytes; none if they are empty or null."""
    return 1 + uvarint_bytes(length) + length if length > 0 else 0


@kernel
def put_bytes(out, at, tag, data, start, length):
    """Write a field of bytes, unless they are empty or null; returns its end."""
    if length > 0:
        out[at] = tag
        at = put_uvarint(out, at + 1, length)
        copy_short(out, at, data, start, length)
        at += length
    return at


@kernel
def write_messages(data, columns, first, end, out):
    """Write the records of rows `first` to `end`, as many as `out` has room for; (next row, bytes).

    It stops before a record with headers, and before one whose offset does not follow.
    data: uint8, read-only; columns: int64 [C_FIELDS, rows]; out: uint8.
    """
    at, row = 0, first
    while row < end:
        offset = columns[C_OFFSET, row]
        if columns[C_HEADER_COUNT, row] > 0 or offset - columns[C_OFFSET, first] != row - first:
            break
        time_ns = max(-TIME_MS_MAX, min(columns[C_TIMESTAMP, row], TIME_MS_MAX)) * MS_NS
        key_length, value_length = columns[C_KEY_LENGTH, row], columns[C_VALUE_LENGTH, row]
        size = bytes_bytes(key_length) + bytes_bytes(value_length)
        if time_ns != 0:
            size += 1 + uvarint_bytes(time_ns)
        if offset != 0:
            size += 2 + uvarint_bytes(offset)
        if at + 1 + uvarint_bytes(size) + size > len(out):
            break
        out[at] = MESSAGE_TAG
        at = put_uvarint(out, at + 1, size)
        at = put_bytes(out, at, KEY_TAG, data, columns[C_KEY_AT, row], key_length)
        at = put_bytes(out, at, VALUE_TAG, data, columns[C_VALUE_AT, row], value_length)
        if time_ns != 0:
            out[at] = TIME_TAG
            at = put_uvarint(out, at + 1, time_ns)
        if offset != 0:
            out[at], out[at + 1] = OFFSET_TAG
            at = put_uvarint(out, at + 2, offset)
        row += 1
    return row, at


@kernel
def text_bytes(data, at, end):
    """How many bytes data[at:end] takes once it is UTF-8: see `put_text`."""
    count = end - at
    while at < end:
        length = rune_bytes(data, at, end)
        if length == 0:
            count += len(NO_CHARACTER) - 1
        at += max(length, 1)
    return count


@kernel
def put_text(out, place, data, at, end):
    """Write a text; each byte that begins no character becomes U+FFFD. Returns its end."""
    while at < end:
        length = rune_bytes(data, at, end)
        if length == 0:
            out[place], out[place + 1], out[place + 2] = NO_CHARACTER
            place, at = place + len(NO_CHARACTER), at + 1
        for _ in range(length):
            out[place] = data[at]
            place, at = place + 1, at + 1
    return place


@kernel
def header_bytes(data, key_at, key_length, value_length):
    """How large a header is: (its key, all of it without tag and length)."""
    key = text_bytes(data, key_at, key_at + key_length)
    value = 1 + uvarint_bytes(value_length) + value_length if value_length >= 0 else 0
    return key, bytes_bytes(key) + value


@kernel
def headers_bytes(data, at, count):
    """How many bytes `write_headers` writes."""
    written = 0
    for _ in range(count):
        key_at, key_length, at = get_bytes(data, at, len(data), 0)
        _, value_length, at = get_bytes(data, at, len(data), -1)
        _, size = header_bytes(data, key_at, key_length, value_length)
        written += len(HEADER_TAG) + uvarint_bytes(size) + size
    return written


@kernel
def write_headers(data, at, count, out):
    """Write a record's headers to `out`, which has `headers_bytes` of room; how many bytes.

    They are read where they are: columns for them would take sixteen times their memory.
    data: uint8, read-only, of a record that was walked; out: uint8.
    """
    place = 0
    for _ in range(count):
        key_at, key_length, at = get_bytes(data, at, len(data), 0)
        value_at, length, at = get_bytes(data, at, len(data), -1)
        key, size = header_bytes(data, key_at, key_length, length)
        out[place], out[place + 1] = HEADER_TAG
        place = put_uvarint(out, place + len(HEADER_TAG), size)
        if key > 0:
            out[place] = KEY_TAG
            place = put_uvarint(out, place + 1, key)
            place = put_text(out, place, data, key_at, key_at + key_length)
        if length >= 0:
            out[place] = VALUE_TAG
            place = put_uvarint(out, place + 1, length)
            copy_short(out, place, data, value_at, length)
            place += length
    return place
