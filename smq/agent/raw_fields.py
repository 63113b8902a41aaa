"""A field of a protobuf message as its sender wrote it.

A message that is parsed and written again has the same fields, and perhaps in another order: maps
have none. Where a field's bytes are to be kept as they came, they are cut out of the message.
"""

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_FIXED_BYTES = {_FIXED64: 8, _FIXED32: 4}


def raw_field(message: bytes, number: int) -> bytes | None:
    """The bytes of a length-delimited field; None: it is not there, or in several parts, which its
    reader would merge. The message is one that protobuf has parsed."""
    found: bytes | None = None
    at, end = 0, len(message)
    while at < end:
        tag, at = _varint(message, at)
        kind = tag & 7
        if kind == _LENGTH:
            size, at = _varint(message, at)
            if tag >> 3 == number:
                if found is not None:
                    return None
                found = message[at : at + size]
            at += size
        elif kind == _VARINT:
            _, at = _varint(message, at)
        elif kind in _FIXED_BYTES:
            at += _FIXED_BYTES[kind]
        else:  # A group, which no message of ours has: it came as an unknown field.
            return None
    return found


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
