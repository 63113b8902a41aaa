"""The types of a topic's values: the topic config `smq.schema`, an Arrow schema as JSON.

    {"fields": [{"name": "price", "type": "double"},
                {"name": "tags", "type": {"list": "string"}},
                {"name": "buyer", "type": {"struct": [{"name": "id", "type": "int64"}]}},
                {"name": "sent", "type": "timestamp", "from": "timestamp"}]}

`from` is the key in the JSON object, if it differs from the column's name. Columns may be added;
changing or removing one is refused, because older segments contain its old form.
"""

import json
import re
from functools import lru_cache
from typing import NamedTuple

PLAIN = ("bool", "int32", "int64", "float", "double", "string", "timestamp")
# Columns that Spark, SQL or the files already have, in lower case: engines ignore case.
RESERVED = frozenset(
    {"partition", "offset", "timestamp", "timestamptype", "key", "value", "headers", "topic"}
)
COLUMNS_MAX, DEPTH_MAX, TEXT_BYTES_MAX = 200, 5, 32 * 1024
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,99}")


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
    if len(text.encode()) > TEXT_BYTES_MAX:
        raise ValueError(f"a schema has at most {TEXT_BYTES_MAX} bytes")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as reason:
        raise ValueError(f"it is not JSON: {reason}") from None
    if not isinstance(found, dict) or found.keys() != {"fields"}:
        raise ValueError('a schema is {"fields": [{"name": …, "type": …}, …]}')
    columns = _fields(found["fields"], 1)
    for column in columns:
        if column.name.lower() in RESERVED:
            raise ValueError(
                f"{column.name} is a column of every topic; choose another name, and say "
                f'"from": "{column.source}"'
            )
    return columns


def _fields(found: object, depth: int) -> tuple[Column, ...]:
    if not isinstance(found, list) or not 0 < len(found) <= COLUMNS_MAX:
        raise ValueError(f"fields are a list of 1 to {COLUMNS_MAX}")
    columns = tuple(_field(each, depth) for each in found)
    for names in ([each.name.lower() for each in columns], [each.source for each in columns]):
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"{twice[0]} is there twice; case makes no difference in names")
    return columns


def _field(found: object, depth: int) -> Column:
    allowed = {"name", "type", "from"} if depth == 1 else {"name", "type"}
    if not isinstance(found, dict) or not {"name", "type"} <= found.keys() <= allowed:
        raise ValueError(f"a field has {', '.join(sorted(allowed))}, not {json.dumps(found)}")
    name, source = found["name"], found.get("from", found["name"])
    if not isinstance(name, str) or not isinstance(source, str) or not _NAME.fullmatch(name):
        raise ValueError(
            f"{json.dumps(name)} is no name of a column: a letter, then letters, digits and _"
        )
    return Column(name, _kind(found["type"], depth), source)


def _kind(found: object, depth: int) -> Kind:
    if depth > DEPTH_MAX:
        raise ValueError(f"types are nested at most {DEPTH_MAX} deep")
    match found:
        case str() if found in PLAIN:
            return found
        case {"list": items, **others} if not others:
            return ListOf(_kind(items, depth + 1))
        case {"struct": fields, **others} if not others:
            return Struct(_fields(fields, depth + 1))
    raise ValueError(
        f'{json.dumps(found)} is no type; those are {", ".join(PLAIN)}, {{"list": type}} and '
        '{"struct": [field, …]}'
    )


def narrowing(before: str, after: str) -> str:
    """Why a schema must not follow another one, as a sentence; "" if it may."""
    now = {column.name.lower(): column for column in parse_schema(after)}
    for column in parse_schema(before):
        if (other := now.get(column.name.lower())) is None:
            return f"it lacks the column {column.name}; columns are added, and never removed"
        if other != column:
            return f"it changes the column {column.name}; add another one, and leave that as it is"
    return ""


def written(columns: tuple[Column, ...]) -> str:
    """The columns as JSON."""
    return json.dumps({"fields": [_written(each) for each in columns]})


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
