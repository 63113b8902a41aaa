"""The typed columns of a topic with a record type: a `smq.schema` that its fields make.

    {"fields": [{"name": "offset", "type": "INT64"}, {"name": "größe", "type": "FLOAT"}]}
    ──▶ {"values": "RecordValue", "fields": [{"name": "offset_", "type": "int64", "from": "offset"},
                                             {"name": "gr__e", "type": "float", "from": "größe"}]}

A field keeps its name where a column may have it. One that is called like a column of every topic,
or begins with _, gets an _ at its end; another letter than A to Z becomes _.
"""

import re
from collections.abc import Iterable
from functools import lru_cache

from smq.model.record_types import (
    RecordField,
    RecordFields,
    RecordKind,
    RecordList,
    parse_record_type,
)
from smq.model.topic_schema import RESERVED, Column, Kind, ListOf, Struct, written


@lru_cache(maxsize=64)
def schema_of_record_type(text: str) -> str:
    """The schema of a topic's `smq.record.type`; "" of "". Raises ValueError with a sentence."""
    fields = parse_record_type(text)
    return written(_columns(fields, RESERVED), of_records=True) if fields else ""


def _columns(fields: Iterable[RecordField], reserved: frozenset[str]) -> tuple[Column, ...]:
    names = _names([each.name for each in fields], reserved)
    return tuple(Column(names[each.name], _kind_of(each), each.name) for each in fields)


def _names(fields: list[str], reserved: frozenset[str]) -> dict[str, str]:
    """A column's name for each field. Their order makes no difference, and those that keep their
    names come first: so a field that is added later hardly renames another one."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for field in sorted(fields, key=lambda name: (_name(name, reserved) != name, name)):
        name = _name(field, reserved)
        while name.lower() in taken:
            name += "_"
        taken.add(name.lower())
        found[field] = name
    return found


def _name(field: str, reserved: frozenset[str]) -> str:
    name = re.sub(r"[^A-Za-z0-9_]", "_", field)
    if name[0].isdigit():
        name = f"_{name}"
    is_ours = name.lower() in reserved or name.startswith("_")
    return f"{name}_" if is_ours else name


def _kind_of(field: RecordField) -> Kind:
    kind = _kind(field.kind)
    return ListOf(kind) if field.repeated else kind


def _kind(kind: RecordKind) -> Kind:
    match kind:
        case RecordList(items):
            return ListOf(_kind(items))
        case RecordFields(fields):
            return Struct(_columns(fields, frozenset()))
    return kind.lower()
