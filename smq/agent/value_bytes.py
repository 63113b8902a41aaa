"""RecordValues as they are written: what they are is found out, and none of them is parsed.

Protobuf's parser makes an object of each field, of which a value of a megabyte may have half a
million, and nothing else of this process runs meanwhile. Kernels walk over them.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from shm.arrow import read_only
from shm.kernels.reader import protobuf
from smq.agent.proto.mq_schema_pb2 import RecordValue, Value as RecordedValue

DEPTH_MAX = 98
"""Of messages in a RecordValue. Readers of protobuf go 100 deep: the answer is one of these."""
RAW_FIELD = "_value"  # Of a record that is no RecordValue: its bytes.
FIELDS, KEY, VALUE = 1, 1, 2  # Of a RecordValue its entries; what is in one.
LIST_NUMBER = RecordedValue.LIST_VALUE_FIELD_NUMBER
RECORD_NUMBER = RecordedValue.RECORD_VALUE_FIELD_NUMBER
PARSED_BYTES_MAX = 16 * 1024
"""What is larger is not parsed at once: a megabyte takes some tens of milliseconds."""
F = FieldDescriptor
_WRITTEN = {
    **dict.fromkeys((F.TYPE_BOOL, F.TYPE_INT32, F.TYPE_INT64), protobuf.IS_VARINT),
    F.TYPE_FLOAT: protobuf.IS_FIXED32,
    F.TYPE_DOUBLE: protobuf.IS_FIXED64,
    F.TYPE_BYTES: protobuf.IS_BYTES,
    F.TYPE_STRING: protobuf.IS_TEXT,
}


def _types_of(descriptor: Descriptor) -> np.ndarray:
    """A message's type and those in it, as `walk_message` takes them."""
    types = [descriptor]
    for each in types:
        inner = (field.message_type for field in each.fields if field.message_type is not None)
        types += [found for found in dict.fromkeys(inner) if found not in types]
    number_max = max(field.number for each in types for field in each.fields)
    table = np.zeros((len(types), number_max + 1), np.int64)
    for row, each in enumerate(types):
        for field in each.fields:
            inner_type = field.message_type
            table[row, field.number] = (
                _WRITTEN[field.type]
                if inner_type is None
                else protobuf.MESSAGE + types.index(inner_type)
            )
    return table


_TYPES = _types_of(RecordValue.DESCRIPTOR)


def is_record_value(data: bytes) -> bool:
    """Whether these bytes are a RecordValue that its readers understand whole: all its fields are
    RecordValue's, and are nested at most DEPTH_MAX deep."""
    stack = np.empty((2, DEPTH_MAX), np.int64)
    return bool(protobuf.walk_message(read_only(data), _TYPES, stack) >= 0)


def raw_value(data: bytes) -> tuple[bytes, bytes]:
    """The RecordValue of a record that is none: what is before its bytes, and these."""
    head = field_head(RecordedValue.BYTES_VALUE_FIELD_NUMBER, len(data))
    name = RAW_FIELD.encode()
    key = field_head(KEY, len(name)) + name
    entry = key + field_head(VALUE, len(head) + len(data)) + head
    return field_head(FIELDS, len(entry) + len(data)) + entry, data


class WrittenField(NamedTuple):
    """A field of a message: its number (0: there is none), its content, and all of it."""

    number: int
    content: bytes
    whole: bytes


def last_field(message: bytes, number: int = 0) -> tuple[WrittenField, int]:
    """The last field with a number, or of any, of a message that is one; and how many there are."""
    found = protobuf.last_field(read_only(message), 0, len(message), number)
    count, tag, begin, start, end = found
    return WrittenField(tag >> 3, message[start:end], message[begin:end]), count


def last_named(message: bytes, number: int, names: Iterable[str]) -> dict[str, bytes]:
    """The last field of a message of each of these names: its own first field is that. So are the
    entries of a map, and headers. The message is walked once, however many names there are."""
    by_bytes = sorted((each.encode("utf-8", "replace"), each) for each in names)
    ends = np.cumsum([0, *(len(each) for each, _ in by_bytes)], dtype=np.int64)
    found = np.empty((2, len(by_bytes)), np.int64)
    wanted = read_only(b"".join(each for each, _ in by_bytes))
    protobuf.last_named(read_only(message), number, wanted, ends, found)
    places = zip(by_bytes, *found.tolist(), strict=True)
    return {name: message[at:end] for (_, name), at, end in places if at >= 0}


def end_of_some(message: bytes, at: int, bytes_max: int) -> int:
    """The end of the first fields from a place on that have at most so many bytes together, but of
    one at least."""
    return int(protobuf.end_of_some(read_only(message), at, len(message), bytes_max))


def field_head(number: int, length: int) -> bytes:
    """What is before the content of a field of so many bytes."""
    return _varint(number << 3 | protobuf.LENGTH) + _varint(length)


def _varint(value: int) -> bytes:
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)
