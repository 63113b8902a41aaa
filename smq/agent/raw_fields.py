"""A field of a protobuf message as its sender wrote it.

A message that is parsed and written again has the same fields, and perhaps in another order: maps
have none. Where a field's bytes are to be kept as they came, they are cut out of the message. Of a
message that is too large to be parsed, a number is read.
"""

from collections.abc import Iterator
from contextlib import suppress

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_FIXED_BYTES = {_FIXED64: 8, _FIXED32: 4}
_SHIFT_MAX = 63  # Of the tenth byte.
FIELDS_MAX = 2000  # That are looked at: a megabyte may have half a million, 0.5 us each.


class _Strange(ValueError):
    """There are too many fields, a number is too long, or there is a group, which no message of
    ours has."""


def raw_field(message: bytes, number: int) -> bytes | None:
    """The bytes of a length-delimited field; None: it is not there, or in several parts, which its
    reader would merge, or there are too many fields, or these bytes are no message."""
    found: bytes | None = None
    with suppress(_Strange, IndexError):
        for tag, at, end in _fields(message):
            if tag == number << 3 | _LENGTH:
                if found is not None:
                    return None
                found = message[at:end]
        return found
    return None


def raw_number(message: bytes, number: int) -> int:
    """An int64; 0: it is below zero, or not there, or far behind, or these bytes are no message."""
    with suppress(_Strange, IndexError):
        for tag, at, _ in _fields(message):
            if tag == number << 3 | _VARINT:
                found = _varint(message, at)[0]
                return found if found < 1 << 63 else 0
    return 0


def _fields(message: bytes) -> Iterator[tuple[int, int, int]]:
    """The tag of each field, and where its content is. Raises _Strange."""
    at, end = 0, len(message)
    for _ in range(FIELDS_MAX):
        if at >= end:
            return
        tag, at = _varint(message, at)
        kind = tag & 7
        if kind == _LENGTH:
            size, at = _varint(message, at)
            after = at + size
        elif kind == _VARINT:
            _, after = _varint(message, at)
        elif kind in _FIXED_BYTES:
            after = at + _FIXED_BYTES[kind]
        else:
            raise _Strange
        yield tag, at, after
        at = after
    if at < end:
        raise _Strange


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > _SHIFT_MAX:
            raise _Strange
