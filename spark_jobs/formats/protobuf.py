"""Decodes Protobuf messages to columns. Source: https://protobuf.dev/programming-guides/encoding

Protobuf refuses only what it cannot parse. Fields unknown to the message type are left out. Missing
fields have their defaults, or are null if they have presence.
"""

from collections.abc import Mapping
from datetime import UTC
from functools import lru_cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from spark_jobs.formats.framing import Misfit, after_indexes, unframed

PLAIN: Mapping[str, DataType] = {
    "TYPE_BOOL": BooleanType(),
    "TYPE_BYTES": BinaryType(),
    "TYPE_STRING": StringType(),
    "TYPE_ENUM": StringType(),
    "TYPE_DOUBLE": DoubleType(),
    "TYPE_FLOAT": FloatType(),
    "TYPE_INT32": IntegerType(),
    "TYPE_SINT32": IntegerType(),
    "TYPE_SFIXED32": IntegerType(),
    "TYPE_UINT32": LongType(),
    "TYPE_FIXED32": LongType(),
    "TYPE_INT64": LongType(),
    "TYPE_SINT64": LongType(),
    "TYPE_SFIXED64": LongType(),
    "TYPE_UINT64": DecimalType(20, 0),
    "TYPE_FIXED64": DecimalType(20, 0),
}
MOMENT = "google.protobuf.Timestamp"


class Protobuf:
    """Values of a message type in a descriptor set (`protoc --include_imports -o FILE`).

    Raises ValueError if the type is missing or has no columns in Spark: a recursive one.
    """

    def __init__(self, descriptors: bytes, message: str, *, is_framed: bool = False) -> None:
        self._descriptors, self._message, self._is_framed = descriptors, message, is_framed
        columns = _columns(_class(descriptors, message).DESCRIPTOR, ())
        assert isinstance(columns, StructType)
        self.columns = columns

    def decode(self, value: bytes) -> dict[str, Any]:
        """A value by column. Raises Misfit."""
        if self._is_framed:
            value = after_indexes(unframed(value)[1])
        found = _class(self._descriptors, self._message)()
        try:
            found.ParseFromString(value)
            return _row(found)
        except (DecodeError, ValueError, OverflowError) as error:
            raise Misfit(f"not a {self._message}: {error}") from error


@lru_cache(100)
def _class(descriptors: bytes, message: str) -> type[Message]:
    files = descriptor_pb2.FileDescriptorSet()
    pool = descriptor_pool.DescriptorPool()
    try:
        files.ParseFromString(descriptors)
        for file in files.file:
            pool.Add(file)
        found = pool.FindMessageTypeByName(message)
    except DecodeError as error:
        raise ValueError(f"not a descriptor set (protoc --include_imports -o): {error}") from error
    except (KeyError, TypeError) as error:
        names = [
            f"{file.package}.{each.name}".strip(".")
            for file in files.file
            for each in file.message_type
        ]
        raise ValueError(
            f"the descriptor set has no message {message}; it has {', '.join(names)}"
        ) from error
    kind: type[Message] = message_factory.GetMessageClass(found)
    return kind


def _columns(descriptor: Any, above: tuple[str, ...]) -> DataType:  # noqa: ANN401  (Protobuf's)
    name = descriptor.full_name
    if name == MOMENT:
        return TimestampType()
    if name in above:
        raise ValueError(f"{name} is recursive, and has no columns")
    found = StructType()
    for field in descriptor.fields:
        found = found.add(field.name, _column(field, (*above, name)))
    if not found.fields:
        raise ValueError(f"{name} has no fields")
    return found


def _column(field: Any, above: tuple[str, ...]) -> DataType:  # noqa: ANN401  (Protobuf's)
    if _is_map(field):
        entry = field.message_type.fields_by_name
        return MapType(_column(entry["key"], above), _column(entry["value"], above))
    if field.message_type is not None:
        one = _columns(field.message_type, above)
    else:
        one = PLAIN[_kind(field)]
    return ArrayType(one) if field.is_repeated else one


@lru_cache(10_000)
def _kind(field: Any) -> str:  # noqa: ANN401  (Protobuf's)
    return str(descriptor_pb2.FieldDescriptorProto.Type.Name(field.type))


def _is_map(field: Any) -> bool:  # noqa: ANN401  (Protobuf's)
    kind = field.message_type
    return bool(field.is_repeated and kind is not None and kind.GetOptions().map_entry)


def _row(message: Any) -> dict[str, Any]:  # noqa: ANN401  (of a generated class)
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.is_repeated:
            found[field.name] = _repeated(field, value)
        elif field.has_presence and not message.HasField(field.name):
            found[field.name] = None
        else:
            found[field.name] = _one(field, value)
    return found


def _repeated(field: Any, value: Any) -> Any:  # noqa: ANN401  (Protobuf's)
    if _is_map(field):
        kind = field.message_type.fields_by_name["value"]
        return [(key, _one(kind, value[key])) for key in value]
    return [_one(field, each) for each in value]


def _one(field: Any, value: Any) -> Any:  # noqa: ANN401  (Protobuf's)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    if field.message_type is None:
        return value
    if field.message_type.full_name == MOMENT:
        return value.ToDatetime(tzinfo=UTC)
    return _row(value)
