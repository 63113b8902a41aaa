"""The type of a topic's records for SeaweedMQ's clients: the topic config `smq.record.type`.

    {"fields": [{"name": "id", "index": 0, "type": "INT64", "required": true},
                {"name": "tags", "index": 1, "type": {"list": "STRING"}},
                {"name": "buyer", "index": 2, "type": {"record": [{"name": "age", "index": 0,
                                                                   "type": "INT32"}]}}]}

It is SeaweedMQ's RecordType as JSON (`smq.agent.records` has the messages). Fields may be added;
changing or removing one is refused, because older records have it.
"""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

SCALARS = (
    *("BOOL", "INT32", "INT64", "FLOAT", "DOUBLE", "BYTES", "STRING"),
    *("TIMESTAMP", "DATE", "DECIMAL", "TIME"),
)
FIELDS_MAX, DEPTH_MAX, TEXT_BYTES_MAX = 200, 5, 32 * 1024
NAME_CHARACTERS_MAX = 100
_KEYS = {"name", "type", "index", "repeated", "required"}
_INT32_END = 2**31


class RecordField(NamedTuple):
    """A field. `field_index` is what its author says, and means nothing to us."""

    name: str
    kind: "RecordKind"
    field_index: int = 0
    repeated: bool = False
    required: bool = False


class RecordList(NamedTuple):
    """A list."""

    items: "RecordKind"


class RecordFields(NamedTuple):
    """A record within a record."""

    fields: tuple[RecordField, ...]


RecordKind = str | RecordList | RecordFields


@lru_cache(maxsize=64)
def parse_record_type(text: str) -> tuple[RecordField, ...]:
    """The fields; none for "". Raises ValueError with a sentence."""
    if not text:
        return ()
    if len(text.encode()) > TEXT_BYTES_MAX:
        raise ValueError(f"a record type has at most {TEXT_BYTES_MAX} bytes")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as reason:
        raise ValueError(f"it is not JSON: {reason}") from None
    if not isinstance(found, dict) or found.keys() != {"fields"}:
        raise ValueError('a record type is {"fields": [{"name": …, "type": …}, …]}')
    fields = _fields(found["fields"], 1)
    check_fields(fields)
    return fields


def text_of(fields: Sequence[RecordField]) -> str:
    """A record type as its config has it. Raises ValueError if that is too long."""
    text = json.dumps({"fields": [_written(each) for each in fields]}, separators=(",", ":"))
    if len(text.encode()) > TEXT_BYTES_MAX:
        raise ValueError(f"a record type has at most {TEXT_BYTES_MAX} bytes; this has {len(text)}")
    return text


def check_fields(fields: Sequence[RecordField], depth: int = 1) -> None:
    """Raises ValueError with a sentence if these cannot be the fields of a record."""
    if not 0 < len(fields) <= FIELDS_MAX:
        raise ValueError(f"a record has 1 to {FIELDS_MAX} fields, not {len(fields)}")
    names: set[str] = set()
    for field in fields:
        if not 0 < len(field.name) <= NAME_CHARACTERS_MAX:
            raise ValueError(f"a field's name has 1 to {NAME_CHARACTERS_MAX} characters")
        if field.name in names:
            raise ValueError(f"the field {field.name} is there twice")
        names.add(field.name)
        _check_kind(field.name, field.kind, depth)


def narrowing(before: str, after: str) -> str:
    """Why a record type must not follow another one, as a sentence; "" if it may."""
    now = {field.name: field for field in parse_record_type(after)}
    return _narrowing(parse_record_type(before), now)


def _narrowing(before: Sequence[RecordField], now: dict[str, RecordField]) -> str:
    for field in before:
        other = now.get(field.name)
        if other is None:
            return f"it lacks the field {field.name}; fields are added, and never removed"
        if other._replace(field_index=field.field_index) != field:
            return f"it changes the field {field.name}; add another one, and leave that as it is"
    old = {field.name for field in before}
    for field in now.values():
        if before and field.required and field.name not in old:
            return f"the new field {field.name} is required, and older records lack it"
    return ""


def _check_kind(name: str, kind: RecordKind, depth: int) -> None:
    if depth > DEPTH_MAX:
        raise ValueError(f"the field {name}: types are nested at most {DEPTH_MAX} deep")
    match kind:
        case RecordList(items):
            _check_kind(name, items, depth + 1)
        case RecordFields(fields):
            check_fields(fields, depth + 1)


def _fields(found: object, depth: int) -> tuple[RecordField, ...]:
    if not isinstance(found, list):
        raise ValueError("fields are a list")  # noqa: TRY004  (one error, shown to the user)
    return tuple(_field(each, depth) for each in found)


def _field(found: Any, depth: int) -> RecordField:  # noqa: ANN401  (JSON)
    if not isinstance(found, dict) or not {"name", "type"} <= found.keys() <= _KEYS:
        raise ValueError(f"a field has {', '.join(sorted(_KEYS))}, not {json.dumps(found)}")
    name, index = found["name"], found.get("index", 0)
    repeated, required = found.get("repeated", False), found.get("required", False)
    if not (isinstance(name, str) and isinstance(repeated, bool) and isinstance(required, bool)):
        raise ValueError(f"{json.dumps(found)} is no field")  # noqa: TRY004  (as above)
    if type(index) is not int or not -_INT32_END <= index < _INT32_END:
        raise ValueError(f"the field {name}: its index is a whole number of 32 bits")
    return RecordField(name, _kind(found["type"], depth), index, repeated, required)


def _kind(found: object, depth: int) -> RecordKind:
    if depth > DEPTH_MAX:
        raise ValueError(f"types are nested at most {DEPTH_MAX} deep")
    match found:
        case str() if found in SCALARS:
            return found
        case {"list": items, **others} if not others:
            return RecordList(_kind(items, depth + 1))
        case {"record": fields, **others} if not others:
            return RecordFields(_fields(fields, depth + 1))
    raise ValueError(
        f'{json.dumps(found)} is no type; those are {", ".join(SCALARS)}, {{"list": type}} and '
        '{"record": [field, …]}'
    )


def _written(field: RecordField) -> dict[str, Any]:
    written = {"name": field.name, "index": field.field_index, "type": _written_kind(field.kind)}
    if field.repeated:
        written["repeated"] = True
    if field.required:
        written["required"] = True
    return written


def _written_kind(kind: RecordKind) -> object:
    match kind:
        case RecordList(items):
            return {"list": _written_kind(items)}
        case RecordFields(fields):
            return {"record": [_written(each) for each in fields]}
    return kind
