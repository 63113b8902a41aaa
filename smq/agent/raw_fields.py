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


class NoMessage(ValueError):
    """A number is too long, a field is cut, or there is a group, which no message of ours has."""


class TooManyFields(ValueError):
    """There are more than FIELDS_MAX."""


def raw_field(message: bytes, number: int) -> bytes | None:
    """The bytes of a length-delimited field; None: it is not there, or in several parts, which its
    reader would merge, or there are too many fields, or these bytes are no message."""
    with suppress(ValueError):
        return cut_field(message, number)[1]
    return None


def cut_field(message: bytes, number: int) -> tuple[bytes, bytes | None]:
    """A message without a length-delimited field, and that field's bytes; None: it is not there.

    Raises NoMessage, TooManyFields, and ValueError if it is there in several parts.
    """
    rest, found, after = list[bytes](), None, 0
    for tag, begin, at, end in _fields(message):
        if tag == number << 3 | _LENGTH:
            if found is not None:
                raise ValueError("a field that it may have once is there twice")
            rest.append(message[after:begin])
            found, after = message[at:end], end
    return b"".join([*rest, message[after:]]), found


def raw_number(message: bytes, number: int) -> int:
    """An int64; 0: it is below zero, or not there, or far behind, or these bytes are no message."""
    with suppress(ValueError):
        for tag, _, at, _ in _fields(message):
            if tag == number << 3 | _VARINT:
                found = _varint(message, at)[0]
                return found if found < 1 << 63 else 0
    return 0


def _fields(message: bytes) -> Iterator[tuple[int, int, int, int]]:
    """The tag of each field, where it begins, where its content does, and where it ends.

    Raises NoMessage, TooManyFields.
    """
    at, end = 0, len(message)
    for _ in range(FIELDS_MAX):
        if at >= end:
            return
        begin = at
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
            raise NoMessage
        if after > end:
            raise NoMessage
        yield tag, begin, at, after
        at = after
    if at < end:
        raise TooManyFields(f"it has more than {FIELDS_MAX} fields")


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(message):
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > _SHIFT_MAX:
            break
    raise NoMessage
