"""Readers and writers of Kafka's primitive types. The generated codecs call these.

Readers take a buffer and an index, and return the value and the index after it. They trust
nothing: an invalid value raises `Malformed`, and an index beyond the end raises one of
`READ_ERRORS`, which the generated `read_...` functions turn into `Malformed` (cheaper than a check
of each length). Like Kafka, they read text that is not UTF-8 with replacement characters, skip
unknown tagged fields and ignore bytes after a message. Unlike Kafka, they refuse lengths below -1,
which it reads as null.

Writers take a list's `append` and add pieces. A `records` field may be *lent*: memory that is
passed on as a piece of its own instead of being copied into the answer.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from struct import Struct, calcsize, error, pack, unpack_from
from typing import Any, Protocol, TypeAlias, TypeVar
from uuid import UUID

from smq.model.errors import PeerError

READ_ERRORS = (error, IndexError)
ZERO_UUID = UUID(int=0)
VARINT_BYTES_MAX = 5  # Lengths and tags have 32 bits, seven a byte.
STRING_BYTES_MAX = 2**15 - 1  # Kafka's limit, also for the form that allows more.
_NEVER_TOO_LONG = STRING_BYTES_MAX // 3
TAGS_MAX = 100  # Of one structure: at two bytes each, a megabyte could hold 500,000.
WHOLE_BYTES = 1 << 16  # Pieces from this size on are passed on as they are.
NUMBERS_MAX = 1 << 16  # Of one array: no topic has so many partitions or replicas.

_INT8 = Struct(">b")
_INT16 = Struct(">h")
_INT32 = Struct(">i")


class Malformed(PeerError):
    """These bytes are not a valid message."""


class Lent(Protocol):
    """Lent memory in place of the bytes of a `records` field."""

    @property
    def length(self) -> int:
        """Its length in bytes."""


Buffer: TypeAlias = bytes | memoryview
Records: TypeAlias = bytes | bytearray | memoryview | Lent
Append: TypeAlias = Callable[[Any], None]  # Takes bytes, a view or something lent.

Value = TypeVar("Value")
Reader: TypeAlias = Callable[[Buffer, int], tuple[Value, int]]

_BYTES_LIKE = (bytes, bytearray, memoryview)


class Message:
    """A structure of Kafka's protocol: plain attributes, compared by value."""

    __slots__: tuple[str, ...] = ()
    __hash__ = None  # type: ignore[assignment]  # Attributes may change.

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(
            _same(getattr(self, name), getattr(other, name)) for name in type(self).__slots__
        )

    def __repr__(self) -> str:
        fields = (f"{name}={getattr(self, name)!r}" for name in type(self).__slots__)
        return f"{type(self).__name__}({', '.join(fields)})"


def _same(one: object, other: object) -> bool:
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return list(one) == list(other)
    return one == other


def joined(pieces: Iterable[Any]) -> list[Any]:
    """Small bytes that are adjacent as one piece; what is large or lent stays a piece of its own.

    So an answer of any size is assembled in a moment, and each byte joined a few times at most.
    """
    whole: list[Any] = []
    run: list[Any] = []
    run_bytes = 0
    for piece in pieces:
        size = len(piece) if isinstance(piece, _BYTES_LIKE) else WHOLE_BYTES
        if size < WHOLE_BYTES:
            run.append(piece)
            run_bytes += size
        if run and max(size, run_bytes) >= WHOLE_BYTES:
            whole.append(b"".join(run))
            run, run_bytes = [], 0
        if size >= WHOLE_BYTES:
            whole.append(bytes(piece) if isinstance(piece, _BYTES_LIKE) else piece)
    if run:
        whole.append(b"".join(run))
    return whole


class Writer:
    """Collects the pieces of a message."""

    __slots__ = ("_pieces", "append")

    def __init__(self) -> None:
        self._pieces: list[Any] = []
        self.append: Append = self._pieces.append

    def pieces(self) -> list[bytes | Lent]:
        """The message: small pieces joined, large ones and lent memory between them."""
        return joined(self._pieces)

    def framed(self) -> list[bytes | Lent]:
        """The pieces with their total size in front, as sent over a connection."""
        size = sum(
            len(piece) if isinstance(piece, _BYTES_LIKE) else piece.length for piece in self._pieces
        )
        self._pieces.insert(0, _INT32.pack(size))
        return self.pieces()

    def to_bytes(self) -> bytes:
        """The message as one bytes object; it must not have lent memory."""
        return b"".join(self._pieces)


class Tags:
    """Writes the tagged fields of a structure, in the order of their tags."""

    __slots__ = ("_fields",)

    def __init__(self) -> None:
        self._fields: list[tuple[int, list[bytes]]] = []

    def add(self, tag: int) -> Append:
        """Start a field; returns the `append` for its pieces."""
        pieces: list[bytes] = []
        self._fields.append((tag, pieces))
        return pieces.append

    def write(self, append: Append) -> None:
        """Add all fields, with their count, to a message."""
        write_unsigned_varint(append, len(self._fields))
        for tag, pieces in self._fields:
            content = b"".join(pieces)
            write_unsigned_varint(append, tag)
            write_unsigned_varint(append, len(content))
            append(content)


# Reading


def read_unsigned_varint(buffer: Buffer, at: int) -> tuple[int, int]:
    byte = buffer[at]
    if byte < 0x80:
        return byte, at + 1
    value = byte & 0x7F
    for index in range(1, VARINT_BYTES_MAX):
        byte = buffer[at + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, at + index + 1
    raise Malformed("an unterminated varint")


def _read_length16(buffer: Buffer, at: int) -> tuple[int, int]:
    """A 16-bit length, -1 for null, checked against the remaining bytes."""
    (length,) = _INT16.unpack_from(buffer, at)
    return _checked(length, buffer, at + 2), at + 2


def _read_length32(buffer: Buffer, at: int) -> tuple[int, int]:
    (length,) = _INT32.unpack_from(buffer, at)
    return _checked(length, buffer, at + 4), at + 4


def _read_compact_length(buffer: Buffer, at: int) -> tuple[int, int]:
    length, at = read_unsigned_varint(buffer, at)
    return _checked(length - 1, buffer, at), at


def _checked(length: int, buffer: Buffer, at: int) -> int:
    if not -1 <= length <= len(buffer) - at:
        raise Malformed(f"a length of {length} where {len(buffer) - at} bytes are left")
    return length


def _text(buffer: Buffer, at: int, length: int) -> str:
    if length > STRING_BYTES_MAX:
        raise Malformed(f"a string of {length} bytes")
    text = str(buffer[at : at + length], "utf-8", "replace")
    return text if length <= _NEVER_TOO_LONG else _not_too_long(text)


def _not_too_long(text: str) -> str:
    """Text whose bytes may be no UTF-8: what is not is replaced, by three bytes each. One that is
    too long then would have no answer that names it."""
    if len(text.encode()) > STRING_BYTES_MAX:
        raise Malformed("a string that is no UTF-8 and too long")
    return text


def _not_null(length: int) -> int:
    if length < 0:
        raise Malformed("null in a field that is not nullable")
    return length


def read_string(buffer: Buffer, at: int) -> tuple[str, int]:
    length, at = _read_length16(buffer, at)
    end = at + _not_null(length)
    text = str(buffer[at:end], "utf-8", "replace")
    return text if length <= _NEVER_TOO_LONG else _not_too_long(text), end


def read_compact_string(buffer: Buffer, at: int) -> tuple[str, int]:
    length, at = _read_compact_length(buffer, at)
    return _text(buffer, at, _not_null(length)), at + length


def read_nullable_string(buffer: Buffer, at: int) -> tuple[str | None, int]:
    length, at = _read_length16(buffer, at)
    if length < 0:
        return None, at
    text = str(buffer[at : at + length], "utf-8", "replace")
    return text if length <= _NEVER_TOO_LONG else _not_too_long(text), at + length


def read_compact_nullable_string(buffer: Buffer, at: int) -> tuple[str | None, int]:
    if buffer[at] == 1:  # Empty, as metadata mostly is.
        return "", at + 1
    length, at = _read_compact_length(buffer, at)
    if length < 0:
        return None, at
    return _text(buffer, at, length), at + length


def read_bytes(buffer: Buffer, at: int) -> tuple[bytes, int]:
    length, at = _read_length32(buffer, at)
    end = at + _not_null(length)
    return bytes(buffer[at:end]), end


def read_compact_bytes(buffer: Buffer, at: int) -> tuple[bytes, int]:
    length, at = _read_compact_length(buffer, at)
    end = at + _not_null(length)
    return bytes(buffer[at:end]), end


def read_nullable_records(buffer: Buffer, at: int) -> tuple[memoryview | None, int]:
    """Record batches as a view of the buffer."""
    length, at = _read_length32(buffer, at)
    return (None, at) if length < 0 else (memoryview(buffer)[at : at + length], at + length)


def read_compact_nullable_records(buffer: Buffer, at: int) -> tuple[memoryview | None, int]:
    length, at = _read_compact_length(buffer, at)
    return (None, at) if length < 0 else (memoryview(buffer)[at : at + length], at + length)


def read_uuid(buffer: Buffer, at: int) -> tuple[UUID, int]:
    raw = bytes(buffer[at : at + 16])
    if len(raw) < 16:
        raise Malformed("a truncated UUID")
    return _uuid(raw), at + 16


@lru_cache(maxsize=4096)  # Topic ids repeat, and constructing a UUID is slow.
def _uuid(raw: bytes) -> UUID:
    return UUID(bytes=raw)


def read_nullable_count(buffer: Buffer, at: int) -> tuple[int, int]:
    """The number of an array's elements, -1 for null. An element has at least one byte."""
    return _read_length32(buffer, at)


def read_compact_nullable_count(buffer: Buffer, at: int) -> tuple[int, int]:
    return _read_compact_length(buffer, at)


def read_count(buffer: Buffer, at: int) -> tuple[int, int]:
    count, at = _read_length32(buffer, at)
    return _not_null(count), at


def read_compact_count(buffer: Buffer, at: int) -> tuple[int, int]:
    count, at = _read_compact_length(buffer, at)
    return _not_null(count), at


def _array_reader(code: str, read_length: Reader[int]) -> Reader[Sequence[int]]:
    size = calcsize(code)

    def read(buffer: Buffer, at: int) -> tuple[Sequence[int], int]:
        count, at = read_length(buffer, at)
        if count > NUMBERS_MAX:
            raise Malformed(f"an array of {count} numbers")
        return unpack_from(f">{count}{code}", buffer, at), at + size * count

    return read


read_int8_array = _array_reader("b", read_count)
read_compact_int8_array = _array_reader("b", read_compact_count)
read_int32_array = _array_reader("i", read_count)
read_compact_int32_array = _array_reader("i", read_compact_count)
read_int64_array = _array_reader("q", read_count)
read_compact_int64_array = _array_reader("q", read_compact_count)


def read_compact_nullable_int32_array(buffer: Buffer, at: int) -> tuple[Sequence[int] | None, int]:
    count, after = read_compact_nullable_count(buffer, at)
    return (None, after) if count < 0 else read_compact_int32_array(buffer, at)


def read_presence(buffer: Buffer, at: int) -> tuple[bool, int]:
    """Whether a structure that may be null is there: a byte says -1, or 1."""
    (sign,) = _INT8.unpack_from(buffer, at)
    return sign >= 0, at + 1


def read_int32(buffer: Buffer, at: int) -> tuple[int, int]:
    (value,) = _INT32.unpack_from(buffer, at)
    return value, at + 4


def read_tag_count(buffer: Buffer, at: int) -> tuple[int, int]:
    """How many tagged fields a structure has."""
    count, at = read_unsigned_varint(buffer, at)
    if count > TAGS_MAX:
        raise Malformed(f"a structure of {count} tagged fields")
    return count, at


def read_tag(buffer: Buffer, at: int) -> tuple[int, int, int]:
    """A tag, and the start and end of its field."""
    tag, at = read_unsigned_varint(buffer, at)
    length, at = read_unsigned_varint(buffer, at)
    return tag, at, at + _checked(length, buffer, at)


def skip_tags(buffer: Buffer, at: int) -> int:
    """The index after the tagged fields of a structure that knows none."""
    if buffer[at] == 0:  # As nearly always, in each element of an array.
        return at + 1
    count, at = read_tag_count(buffer, at)
    for _ in range(count):
        _, _, at = read_tag(buffer, at)
    return at


# Writing

_SHORT_VARINTS = [bytes([value]) for value in range(0x80)]


def write_unsigned_varint(append: Append, value: int) -> None:
    while value >= 0x80:
        append(_HIGH_VARINTS[value & 0x7F])
        value >>= 7
    append(_SHORT_VARINTS[value])


_HIGH_VARINTS = [bytes([value | 0x80]) for value in range(0x80)]


def write_string(append: Append, value: str) -> None:
    data = value.encode()
    append(_INT16.pack(len(data)))
    append(data)


def write_compact_string(append: Append, value: str) -> None:
    data = value.encode()
    write_unsigned_varint(append, len(data) + 1)
    append(data)


def write_nullable_string(append: Append, value: str | None) -> None:
    if value is None:
        append(b"\xff\xff")
    else:
        write_string(append, value)


def write_compact_nullable_string(append: Append, value: str | None) -> None:
    if value is None:
        append(b"\0")
    else:
        write_compact_string(append, value)


def write_bytes(append: Append, value: bytes) -> None:
    append(_INT32.pack(len(value)))
    append(value)


def write_compact_bytes(append: Append, value: bytes) -> None:
    write_unsigned_varint(append, len(value) + 1)
    append(value)


def write_nullable_records(append: Append, value: Records | None) -> None:
    if value is None:
        append(b"\xff\xff\xff\xff")
    else:
        append(_INT32.pack(_records_length(value)))
        append(value)


def write_compact_nullable_records(append: Append, value: Records | None) -> None:
    if value is None:
        append(b"\0")
    else:
        write_unsigned_varint(append, _records_length(value) + 1)
        append(value)


def _records_length(value: Records) -> int:
    return len(value) if isinstance(value, _BYTES_LIKE) else value.length


def write_uuid(append: Append, value: UUID) -> None:
    append(value.bytes)


def write_count(append: Append, items: Sequence[object]) -> None:
    append(_INT32.pack(len(items)))


def write_compact_count(append: Append, items: Sequence[object]) -> None:
    write_unsigned_varint(append, len(items) + 1)


def write_nullable_count(append: Append, items: Sequence[object] | None) -> None:
    append(_INT32.pack(-1 if items is None else len(items)))


def write_compact_nullable_count(append: Append, items: Sequence[object] | None) -> None:
    write_unsigned_varint(append, 0 if items is None else len(items) + 1)


def _array_writer(
    code: str, write_length: Callable[[Append, Sequence[int]], None]
) -> Callable[[Append, Sequence[int]], None]:
    def write(append: Append, values: Sequence[int]) -> None:
        write_length(append, values)
        append(pack(f">{len(values)}{code}", *values))

    return write


write_int8_array = _array_writer("b", write_count)
write_compact_int8_array = _array_writer("b", write_compact_count)
write_int32_array = _array_writer("i", write_count)
write_compact_int32_array = _array_writer("i", write_compact_count)
write_int64_array = _array_writer("q", write_count)
write_compact_int64_array = _array_writer("q", write_compact_count)


def write_compact_nullable_int32_array(append: Append, values: Sequence[int] | None) -> None:
    if values is None:
        append(b"\0")
    else:
        write_compact_int32_array(append, values)


def write_presence(append: Append, structure: Message | None) -> None:
    """See read_presence."""
    append(b"\xff" if structure is None else b"\x01")
