"""The types of a topic's values: the topic config `smq.schema`, an Arrow schema as JSON.

    {"fields": [{"name": "price", "type": "double"},
                {"name": "tags", "type": {"list": "string"}},
                {"name": "buyer", "type": {"struct": [{"name": "id", "type": "int64"}]}},
                {"name": "sent", "type": "timestamp", "from": "timestamp"}]}

`from` is the key in the JSON object, if it differs from the column's name. Columns may be added;
changing or removing one is refused, because older segments contain its old form.

With `"values": "RecordValue"` the values are SeaweedMQ's RecordValues, and `from` names a field of
one, within structs too. `smq.model.record_columns` makes such a schema of a topic's record type.
"""

import json
import re
from functools import lru_cache
from typing import Any, NamedTuple

PLAIN = (
    *("bool", "int32", "int64", "float", "double", "string", "bytes"),
    *("timestamp", "date", "decimal", "time"),
)
RECORD_VALUE = "RecordValue"
# Columns that Spark, SQL or the files already have, in lower case: engines ignore case.
RESERVED = frozenset(
    {"partition", "offset", "timestamp", "timestamptype", "key", "value", "headers", "topic"}
)
COLUMNS_MAX, DEPTH_MAX, TEXT_BYTES_MAX = 200, 5, 32 * 1024
# What begins with _ is ours, unless it ends so.
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,119}|_[A-Za-z0-9_]{0,118}_")


class Column(NamedTuple):
    """A column, or a field of a struct. `source` is its key in JSON."""

    name: str
    type: "Kind"
    source: str


class ListOf(NamedTuple):
    """A list."""

    items: "Kind"


class Struct(NamedTuple):
    """An object with known keys."""

    fields: tuple[Column, ...]


Kind = str | ListOf | Struct


@lru_cache(maxsize=64)
def parse_schema(text: str) -> tuple[Column, ...]:
    """The columns; none for "". Raises ValueError with a sentence."""
    if not text:
        return ()
    found = _loaded(text)
    form = _RECORD_FORM if "values" in found else _JSON_FORM
    columns = form.fields(found["fields"], 1)
    for column in columns:
        if column.name.lower() in RESERVED:
            raise ValueError(
                f"{column.name} is a column of every topic; choose another name, and say "
                f'"from": "{column.source}"'
            )
    return columns


@lru_cache(maxsize=64)
def has_record_values(text: str) -> bool:
    """Whether a schema is of RecordValues. Raises ValueError with a sentence."""
    return bool(text) and "values" in _loaded(text)


def check_given(text: str) -> None:
    """Raises ValueError with a sentence if this cannot be a topic's config."""
    if len(text.encode()) > TEXT_BYTES_MAX:
        raise ValueError(f"a schema has at most {TEXT_BYTES_MAX} bytes")
    parse_schema(text)


def _loaded(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as reason:
        raise ValueError(f"it is not JSON: {reason}") from None
    if not isinstance(found, dict) or not {"fields"} <= found.keys() <= {"fields", "values"}:
        raise ValueError('a schema is {"fields": [{"name": …, "type": …}, …]}')
    if found.get("values", RECORD_VALUE) != RECORD_VALUE:
        raise ValueError(f'"values" are "{RECORD_VALUE}", or left out for JSON and Arrow')
    return found


class _SchemaForm(NamedTuple):
    """The form of a schema: how deep its types are, and whether fields of structs have a `from`."""

    depth_max: int
    renames_fields: bool

    def fields(self, found: object, depth: int) -> tuple[Column, ...]:
        if not isinstance(found, list) or not 0 < len(found) <= COLUMNS_MAX:
            raise ValueError(f"fields are a list of 1 to {COLUMNS_MAX}")
        columns = tuple(self._field(each, depth) for each in found)
        for names in ([each.name.lower() for each in columns], [each.source for each in columns]):
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise ValueError(f"{twice[0]} is there twice; case makes no difference in names")
        return columns

    def _field(self, found: object, depth: int) -> Column:
        allowed = {"name", "type"}
        if depth == 1 or self.renames_fields:
            allowed.add("from")
        if not isinstance(found, dict) or not {"name", "type"} <= found.keys() <= allowed:
            raise ValueError(f"a field has {', '.join(sorted(allowed))}, not {json.dumps(found)}")
        name, source = found["name"], found.get("from", found["name"])
        if not isinstance(name, str) or not isinstance(source, str) or not _NAME.fullmatch(name):
            raise ValueError(
                f"{json.dumps(name)} is no name of a column: a letter, then letters, digits and _"
            )
        return Column(name, self._kind(found["type"], depth), source)

    def _kind(self, found: object, depth: int) -> Kind:
        if depth > self.depth_max:
            raise ValueError(f"types are nested at most {self.depth_max} deep")
        match found:
            case str() if found in PLAIN:
                return found
            case {"list": items, **others} if not others:
                return ListOf(self._kind(items, depth + 1))
            case {"struct": fields, **others} if not others:
                return Struct(self.fields(fields, depth + 1))
        raise ValueError(
            f'{json.dumps(found)} is no type; those are {", ".join(PLAIN)}, {{"list": type}} and '
            '{"struct": [field, …]}'
        )


_JSON_FORM = _SchemaForm(DEPTH_MAX, renames_fields=False)
# A record type's field may be repeated at each depth, which makes a list more of it.
_RECORD_FORM = _SchemaForm(2 * DEPTH_MAX, renames_fields=True)


def narrowing(before: str, after: str) -> str:
    """Why a schema must not follow another one, as a sentence; "" if it may."""
    now = {column.name.lower(): column for column in parse_schema(after)}
    if now and before and has_record_values(before) != has_record_values(after):
        return "it is for values of another form; those of older records are as they are"
    for column in parse_schema(before):
        if (other := now.get(column.name.lower())) is None:
            return f"it lacks the column {column.name}; columns are added, and never removed"
        if other != column:
            return f"it changes the column {column.name}; add another one, and leave that as it is"
    return ""


def written(columns: tuple[Column, ...], *, of_records: bool = False) -> str:
    """The schema as JSON: of RecordValues, or of JSON and Arrow."""
    found: dict[str, object] = {"fields": [_written(each) for each in columns]}
    return json.dumps({"values": RECORD_VALUE, **found} if of_records else found)


def _written(column: Column) -> dict[str, object]:
    found: dict[str, object] = {"name": column.name, "type": _written_kind(column.type)}
    return found if column.source == column.name else {**found, "from": column.source}


def _written_kind(kind: Kind) -> object:
    match kind:
        case ListOf():
            return {"list": _written_kind(kind.items)}
        case Struct():
            return {"struct": [_written(each) for each in kind.fields]}
    return kind
