"""Walks protobuf messages as they are written: whether they are what a type says, and where a field
is. A parser would make an object of each field, in which time nobody else runs.

    message   its fields, one after the other
    field     varint tag (number << 3 | kind), then by its kind
                0: a varint   1: 8 bytes   2: varint length, so many bytes   5: 4 bytes
"""

import numpy as np

from shm.kernels.base.jit import kernel
from shm.kernels.base.wire import BAD, read_uvarint
from shm.kernels.record.records import rune_bytes

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
TAG_END = 2**32
VARINT_BYTES_MAX = 10

# What a field of a type is: how it is written, and 1. From MESSAGE on it is a message, of type
# (this - MESSAGE).
UNKNOWN, IS_VARINT, IS_FIXED64, IS_BYTES = 0, VARINT + 1, FIXED64 + 1, LENGTH + 1
IS_TEXT, IS_FIXED32, MESSAGE = 4, FIXED32 + 1, 7
assert len({UNKNOWN, IS_VARINT, IS_FIXED64, IS_BYTES, IS_TEXT, IS_FIXED32, MESSAGE}) == MESSAGE


@kernel
def skip_varint(data, at, end):
    """After a varint of up to 64 bits, or BAD."""
    for count in range(VARINT_BYTES_MAX):
        if at + count >= end:
            return np.int64(BAD)
        if data[at + count] < 128:
            is_long = count == VARINT_BYTES_MAX - 1 and data[at + count] > 1
            return np.int64(BAD) if is_long else np.int64(at + count + 1)
    return np.int64(BAD)


@kernel
def read_number(data, at, end):
    """As `read_uvarint`; most take one byte."""
    if at < end and data[at] < 128:
        return np.int64(data[at]), np.int64(at + 1)
    return read_uvarint(data, at, end)


@kernel
def read_field(data, at, end):
    """The next field: (tag, where its content begins, where it ends), or BAD as its end."""
    bad = np.int64(0), np.int64(0), np.int64(BAD)
    tag, at = read_number(data, at, end)
    if at == BAD or tag >= TAG_END or tag < 8:
        return bad
    kind = tag & 7
    if kind == LENGTH:
        size, at = read_number(data, at, end)
        if at == BAD or size > end - at:
            return bad
        return tag, at, at + size
    if kind == VARINT:
        return tag, at, skip_varint(data, at, end)
    size = 8 if kind == FIXED64 else 4 if kind == FIXED32 else 0
    if size == 0:
        return bad
    return (tag, at, at + size) if size <= end - at else bad


@kernel
def is_text(data, at, end):
    """Whether data[at:end] is UTF-8."""
    while at < end:
        length = rune_bytes(data, at, end)
        if length == 0:
            return False
        at += length
    return True


@kernel
def is_written_as(data, field, wire, start, end):
    """Whether a field is what its type says."""
    if wire != LENGTH:
        return field == wire + 1
    if field == IS_TEXT:
        return is_text(data, start, end)
    return field == IS_BYTES or field >= MESSAGE


@kernel
def walk_message(data, types, stack):
    """How many fields a message has, with those of the messages in it; ~(where it is none).

    It is a message of type 0 if all fields are of its type, and no messages in it are nested deeper
    than `stack` has columns.
    data: uint8, read-only; types: int64 [types, field numbers]; stack: int64 [2, depth].
    """
    at, end, kind, depth, count = np.int64(0), np.int64(len(data)), np.int64(0), 0, 0
    while True:
        while at == end:
            if depth == 0:
                return count
            depth -= 1
            end, kind = stack[0, depth], stack[1, depth]
        tag, start, after = read_field(data, at, end)
        if after == BAD or tag >> 3 >= types.shape[1]:
            return ~at
        field = types[kind, tag >> 3]
        is_deep = field >= MESSAGE and depth == stack.shape[1]
        if is_deep or not is_written_as(data, field, tag & 7, start, after):
            return ~at
        count += 1
        at = after
        if field >= MESSAGE and start < after:
            stack[0, depth], stack[1, depth] = end, kind
            at, end, kind, depth = start, after, np.int64(field - MESSAGE), depth + 1


@kernel
def last_field(data, at, end, number):
    """The last field with a number, or of any (0), of a message that was walked: (how many there
    are, its tag, where it begins, where its content does, where it ends)."""
    count, tag = 0, np.int64(0)
    begin, start = np.int64(at), np.int64(at)
    after = start
    while at < end:
        found, found_at, found_end = read_field(data, at, end)
        if found_end == BAD:
            break
        if number == 0 or found >> 3 == number:
            count += 1
            tag, begin, start, after = found, np.int64(at), found_at, found_end
        at = found_end
    return count, tag, begin, start, after


@kernel
def compare_bytes(data, at, end, others, other_at, other_end):
    """Below 0, 0 or above it, as data[at:end] comes before others[other_at:other_end] or not."""
    while at < end and other_at < other_end:
        if data[at] != others[other_at]:
            return np.int64(data[at]) - np.int64(others[other_at])
        at += 1
        other_at += 1
    return np.int64(end - at) - np.int64(other_end - other_at)


@kernel
def last_named(data, number, names, ends, found):
    """The last fields with a number whose own field 1 is one of some names, in one walk. So are a
    map's entries written, and the headers of a record.

    names: uint8, read-only, one behind the other in their order; ends: int64 [count + 1], where
    each begins, and where the last ends; found: int64 [2, count], where the content is that each
    name has, BAD if there is none.
    """
    at, end, count = 0, len(data), len(ends) - 1
    for each in range(count):
        found[0, each], found[1, each] = BAD, BAD
    while at < end:
        tag, start, after = read_field(data, at, end)
        if after == BAD:
            break
        at = after
        if tag != number << 3 | LENGTH:
            continue
        _, _, _, name_at, name_end = last_field(data, start, after, 1)
        low, high = 0, count
        while low < high:
            middle = (low + high) // 2
            order = compare_bytes(data, name_at, name_end, names, ends[middle], ends[middle + 1])
            if order == 0:
                found[0, middle], found[1, middle] = start, after
                low = high
            elif order > 0:
                low = middle + 1
            else:
                high = middle


@kernel
def end_of_some(data, at, end, bytes_max):
    """The end of the first fields that have at most so many bytes together, but of one at least."""
    first = at
    while at < end:
        _, _, after = read_field(data, at, end)
        if after == BAD:
            return end
        if after - first > bytes_max and at > first:
            return at
        at = after
    return at
