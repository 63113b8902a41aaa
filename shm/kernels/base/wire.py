"""Kafka's primitive types in kernels: read with bounds checked, written.

A reader takes a cursor `at` and an end, and returns the cursor after the value; BAD if the value is
truncated or invalid. No reader may be called with a cursor that is already BAD.
"""

import numpy as np

from shm.kernels.base.bytes import get16, get32, put16, put32
from shm.kernels.base.jit import kernel

BAD = -1  # A cursor that left the request.
SIZE_BYTES = 4  # The size in front of a request or an answer: an int32.


@kernel
def read_uvarint(data, at, end):
    """An unsigned varint: (value, after it), or (0, BAD)."""
    value = np.int64(0)
    for i in range(5):
        if at + i >= end:
            return np.int64(0), np.int64(BAD)
        byte = np.int64(data[at + i])
        value |= (byte & 127) << (7 * i)
        if byte < 128:
            return value, np.int64(at + i + 1)
    return np.int64(0), np.int64(BAD)


@kernel
def skip_tags(data, at, end):
    """After a section of tagged fields, or BAD."""
    count, at = read_uvarint(data, at, end)
    for _ in range(count):
        if at == BAD:
            return at
        _tag, at = read_uvarint(data, at, end)
        if at == BAD:
            return at
        size, at = read_uvarint(data, at, end)
        if at == BAD or size > end - at:
            return np.int64(BAD)
        at += size
    return at


@kernel
def read_length(data, at, end, flexible, width):
    """The length of a string (width 2), of bytes or of an array (width 4): (length, after it).

    A length of -1 is null; a cursor of BAD means that the length is cut or impossible.
    """
    if flexible:
        length, at = read_uvarint(data, at, end)
        length -= 1
    elif end - at < width:
        return np.int64(0), np.int64(BAD)
    else:
        length = get16(data, at) if width == 2 else get32(data, at)
        at += width
    if at == BAD or length < -1 or length > end - at:
        return np.int64(0), np.int64(BAD)
    return length, np.int64(at)


@kernel
def skip_string(data, at, end, flexible):
    """After a nullable string, or BAD."""
    length, at = read_length(data, at, end, flexible, 2)
    return at if at == BAD else at + max(np.int64(0), length)


@kernel
def write_length(out, at, length, flexible, width):
    """The length of a string or an array as the version writes it; after it."""
    if not flexible:
        if width == 2:
            put16(out, at, length)
        else:
            put32(out, at, length)
        return at + width
    value = length + 1
    while value >= 128:
        out[at] = (value & 127) | 128
        value >>= 7
        at += 1
    out[at] = value
    return at + 1
