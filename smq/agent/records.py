"""Typed records: SeaweedMQ's RecordType, and whether a RecordValue fits it.

An absent value, one without a kind, is null: a required field refuses it. An integer of 32 bits
fits a field of 64, and a float one of doubles. Both sides of a message are the topic's and its
publisher's, so that a refusal names the field by its path.
"""

from collections.abc import Sequence
from contextlib import suppress

from google.protobuf.message import DecodeError

from smq.agent.proto.mq_schema_pb2 import (
    Field,
    ListType,
    RecordType,
    RecordValue,
    ScalarType,
    Type,
    Value as RecordedValue,
)
from smq.model.record_types import (
    DEPTH_MAX,
    FIELDS_MAX,
    TEXT_BYTES_MAX,
    RecordField,
    RecordFields,
    RecordKind,
    RecordList,
    check_fields,
)

RAW_FIELD = "_value"  # Of a record that is no RecordValue: its bytes.
DECIMAL_DIGITS_MAX = 38
_DECIMAL_BYTES_MAX = 16  # Of 38 digits, in two's complement.
_KINDS = {
    "BOOL": ("bool_value",),
    "INT32": ("int32_value",),
    "INT64": ("int64_value", "int32_value"),
    "FLOAT": ("float_value",),
    "DOUBLE": ("double_value", "float_value"),
    "BYTES": ("bytes_value",),
    "STRING": ("string_value",),
    "TIMESTAMP": ("timestamp_value",),
    "DATE": ("date_value",),
    "DECIMAL": ("decimal_value",),
    "TIME": ("time_value",),
}
_LIST, _RECORD = "list_value", "record_value"


def fields_of(record_type: RecordType) -> tuple[RecordField, ...]:
    """The fields of a message's type. Raises ValueError with a sentence."""
    _check_count(record_type)
    if record_type.ByteSize() > TEXT_BYTES_MAX:  # Its text would be longer still.
        raise ValueError(f"a record type has at most {TEXT_BYTES_MAX} bytes")
    fields = tuple(_field(each, 1) for each in record_type.fields)
    check_fields(fields)
    return fields


def record_type_of(fields: Sequence[RecordField]) -> RecordType:
    """The message of a type."""
    return RecordType(fields=map(_field_message, fields))


def misfit(fields: Sequence[RecordField], value: RecordValue) -> str:
    """Why a value is no record of these fields, as a sentence; "" if it is."""
    return _misfit_of_record("", fields, value)


def value_of_bytes(data: bytes) -> RecordValue:
    """A record's value as the agent's clients get it; what is no RecordValue is a field of it."""
    with suppress(DecodeError):
        found: RecordValue = RecordValue.FromString(data)
        size = found.ByteSize()
        found.DiscardUnknownFields()  # Plain text, as `50000`, may have nothing but such fields.
        if found.ByteSize() == size:
            return found
    return RecordValue(fields={RAW_FIELD: RecordedValue(bytes_value=data)})


def _check_count(record_type: RecordType) -> None:
    """Before its fields are looked at."""
    if (count := len(record_type.fields)) > FIELDS_MAX:
        raise ValueError(f"a record has 1 to {FIELDS_MAX} fields, not {count}")


def _field(field: Field, depth: int) -> RecordField:
    kind = _kind(field.name, field.type, depth)
    return RecordField(field.name, kind, field.field_index, field.is_repeated, field.is_required)


def _kind(name: str, found: Type, depth: int) -> RecordKind:
    if depth > DEPTH_MAX:
        raise ValueError(f"the field {name}: types are nested at most {DEPTH_MAX} deep")
    match found.WhichOneof("kind"):
        case "scalar_type":
            if found.scalar_type not in ScalarType.values():
                raise ValueError(f"the field {name}: there is no type {found.scalar_type}")
            return str(ScalarType.Name(found.scalar_type))
        case "list_type":
            return RecordList(_kind(name, found.list_type.element_type, depth + 1))
        case "record_type":
            _check_count(found.record_type)
            inner = found.record_type.fields
            return RecordFields(tuple(_field(each, depth + 1) for each in inner))
    raise ValueError(f"the field {name} has no type")


def _field_message(field: RecordField) -> Field:
    return Field(
        name=field.name,
        field_index=field.field_index,
        type=_type_message(field.kind),
        is_repeated=field.repeated,
        is_required=field.required,
    )


def _type_message(kind: RecordKind) -> Type:
    match kind:
        case RecordList(items):
            return Type(list_type=ListType(element_type=_type_message(items)))
        case RecordFields(fields):
            return Type(record_type=record_type_of(fields))
        case str():
            return Type(scalar_type=ScalarType.Value(kind))


def _misfit_of_record(path: str, fields: Sequence[RecordField], value: RecordValue) -> str:
    found, known = value.fields, 0
    for field in fields:
        name = path + field.name
        if field.name not in found:
            if field.required:
                return f"the field {name} is missing"
            continue
        known += 1
        kind: RecordKind = RecordList(field.kind) if field.repeated else field.kind
        if why := _misfit(name, kind, found[field.name], is_required=field.required):
            return why
    if known < len(found):
        names = {field.name for field in fields}
        unknown = min(name for name in found if name not in names)
        return f"the record type has no field {path}{unknown}"
    return ""


def _misfit(name: str, kind: RecordKind, value: RecordedValue, *, is_required: bool = False) -> str:
    has = value.WhichOneof("kind")
    if has is None:
        return f"the field {name} is missing" if is_required else ""
    match kind:
        case RecordList(str() as items) if has == _LIST and items != "DECIMAL":
            return _misfit_of_scalars(name, items, value.list_value.values)
        case RecordList(items) if has == _LIST:
            found = enumerate(value.list_value.values)
            whys = (_misfit(f"{name}[{at}]", items, each) for at, each in found)
            return next(filter(None, whys), "")
        case RecordFields(fields) if has == _RECORD:
            return _misfit_of_record(f"{name}.", fields, value.record_value)
        case str() if has in _KINDS[kind]:
            return _misfit_of_decimal(name, value) if has == "decimal_value" else ""
    return f"the field {name} is {_named(kind)}, not {has.removesuffix('_value').upper()}"


def _misfit_of_scalars(name: str, kind: str, values: Sequence[RecordedValue]) -> str:
    """Of a list, which may have a million: as `_misfit` says it of the first that is none."""
    fits = {None, *_KINDS[kind]}
    for at, each in enumerate(values):
        if each.WhichOneof("kind") not in fits:
            return _misfit(f"{name}[{at}]", kind, each)
    return ""


def _misfit_of_decimal(name: str, value: RecordedValue) -> str:
    decimal = value.decimal_value
    digits = decimal.precision
    if not (0 < digits <= DECIMAL_DIGITS_MAX and 0 <= decimal.scale <= digits):
        return f"the field {name} has {digits} digits, {decimal.scale} of them after the point"
    if len(decimal.value) > _DECIMAL_BYTES_MAX:
        return f"the field {name} has more than {DECIMAL_DIGITS_MAX} digits"
    number = int.from_bytes(decimal.value, signed=True)
    if abs(number) >= 10**digits:
        return f"the field {name} has more than its {digits} digits"
    return ""


def _named(kind: RecordKind) -> str:
    match kind:
        case RecordList():
            return "a list"
        case RecordFields():
            return "a record"
    return kind
