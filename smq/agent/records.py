"""Typed records: SeaweedMQ's RecordType, and whether a RecordValue fits it.

An absent value, one without a kind, is null: a required field refuses it. An integer of 32 bits
fits a field of 64, and a float one of doubles. Both sides of a message are the topic's and its
publisher's, so that a refusal names the field by its path.
"""

from collections.abc import Sequence, Set

from smq.agent.proto.mq_schema_pb2 import (
    Field,
    ListType,
    ListValue,
    RecordType,
    RecordValue,
    ScalarType,
    Type,
    Value as RecordedValue,
)
from smq.agent.value_bytes import (
    KEY,
    LIST_NUMBER,
    PARSED_BYTES_MAX,
    RAW_FIELD,
    RECORD_NUMBER,
    VALUE,
    end_of_some,
    field_head,
    is_record_value,
    last_field,
    raw_value,
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

NO_RECORD_VALUE = "its value is no RecordValue that all subscribers would read whole"
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


def misfit_of_bytes(fields: Sequence[RecordField], data: bytes) -> str:
    """Why bytes are no RecordValue of these fields (none: of any), as a sentence; "" if they are.

    A large value is parsed piece by piece, for nothing else runs while protobuf parses one.
    """
    if not is_record_value(data):
        return NO_RECORD_VALUE
    return _misfit_of_record_bytes("", fields, data) if fields else ""


def misfit_of_message(fields: Sequence[RecordField], data: bytes) -> str:
    """The same of the value of a message. Bytes that are no RecordValue count as their subscribers
    get them: as the field `_value`, which a type may have."""
    is_raw = any(each.name == RAW_FIELD for each in fields) and not is_record_value(data)
    return misfit_of_bytes(fields, b"".join(raw_value(data)) if is_raw else data)


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
        case RecordList(items) if has == _LIST:
            return _misfit_of_items(name, items, value.list_value.values, 0)
        case RecordFields(fields) if has == _RECORD:
            return _misfit_of_record(f"{name}.", fields, value.record_value)
        case str() if has in _KINDS[kind]:
            return _misfit_of_decimal(name, value) if has == "decimal_value" else ""
    return f"the field {name} is {_named(kind)}, not {has.removesuffix('_value').upper()}"


def _misfit_of_items(
    name: str, kind: RecordKind, values: Sequence[RecordedValue], first: int
) -> str:
    """Of a list, or of a part of one from its item `first` on: as `_misfit` says it of an item."""
    is_plain = isinstance(kind, str) and kind != "DECIMAL"
    fits = {None, *_KINDS[kind]} if isinstance(kind, str) and is_plain else set()
    for at, each in enumerate(values, first):  # There may be a million.
        if not (is_plain and each.WhichOneof("kind") in fits):
            why = _misfit(f"{name}[{at}]", kind, each)
            if why:
                return why
    return ""


# --- values that are too large to be parsed at once -----------------------------------------------


def _misfit_of_record_bytes(path: str, fields: Sequence[RecordField], data: bytes) -> str:
    """As `_misfit_of_record`; a field that is there twice is refused."""
    if len(data) <= PARSED_BYTES_MAX:
        return _misfit_of_record(path, fields, RecordValue.FromString(data))
    found, why = _values_by_name(path, {each.name for each in fields}, data)
    if why:
        return why
    for field in fields:
        name = path + field.name
        if field.name in found:
            kind: RecordKind = RecordList(field.kind) if field.repeated else field.kind
            value = found[field.name]
            why = _misfit_of_value_bytes(name, kind, value, is_required=field.required)
        elif field.required:
            why = f"the field {name} is missing"
        if why:
            return why
    return ""


def _values_by_name(path: str, names: Set[str], data: bytes) -> tuple[dict[str, bytes], str]:
    """The values of a record that has these fields; or why it has others."""
    found, at = dict[str, bytes](), 0
    while at < len(data):
        end = end_of_some(data, at, 0)
        entry = last_field(data[at:end])[0].content
        name = last_field(entry, KEY)[0].content.decode()
        value, count = last_field(entry, VALUE)
        if name not in names:
            return {}, f"the record type has no field {path}{name}"
        if name in found or count > 1:
            return {}, f"the field {path}{name} is there twice"
        found[name], at = value.content, end
    return found, ""


def _misfit_of_value_bytes(
    name: str, kind: RecordKind, data: bytes, *, is_required: bool = False
) -> str:
    if len(data) <= PARSED_BYTES_MAX:
        value = RecordedValue.FromString(data)
        return _misfit(name, kind, value, is_required=is_required)
    found, count = last_field(data)
    if count > 1:
        return f"the field {name} is there twice"
    match kind:
        case RecordList(items) if found.number == LIST_NUMBER:
            return _misfit_of_item_bytes(name, items, found.content)
        case RecordFields(fields) if found.number == RECORD_NUMBER:
            return _misfit_of_record_bytes(f"{name}.", fields, found.content)
    is_nested = found.number in {LIST_NUMBER, RECORD_NUMBER}
    shown = field_head(found.number, 0) if is_nested else data  # It is another kind's.
    return _misfit(name, kind, RecordedValue.FromString(shown))


def _misfit_of_item_bytes(name: str, kind: RecordKind, data: bytes) -> str:
    at = number = 0
    while at < len(data):
        end = end_of_some(data, at, PARSED_BYTES_MAX)
        part = data[at:end]
        if len(part) > PARSED_BYTES_MAX:
            item = last_field(part)[0].content
            why, count = _misfit_of_value_bytes(f"{name}[{number}]", kind, item), 1
        else:
            values = ListValue.FromString(part).values
            why, count = _misfit_of_items(name, kind, values, number), len(values)
        if why:
            return why
        at, number = end, number + count
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
