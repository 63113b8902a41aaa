"""Infers a schema from sample JSON values: a key's type is the one that all values agree on."""

import json
import re
from collections.abc import Iterable
from typing import NamedTuple

from smq.model.topic_schema import (
    COLUMNS_MAX,
    DEPTH_MAX,
    RESERVED,
    Column,
    Kind,
    ListOf,
    Struct,
)

_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:?\d\d)")
INT64_END = 2**63


class Inferred(NamedTuple):
    """The columns in order of first occurrence, and why other keys have none."""

    columns: tuple[Column, ...]
    left_out: list[str]
    objects: int
    others: int


def inferred(values: Iterable[bytes | None]) -> Inferred:
    """A schema that fits as many of these values as possible. Null values are ignored."""
    found: list[dict[str, object]] = []
    others = 0
    for value in values:
        if value is None:
            continue
        try:
            each = json.loads(value)
        except (ValueError, RecursionError):
            each = None
        if isinstance(each, dict):
            found.append(each)
        else:
            others += 1
    left_out: list[str] = []
    columns = _columns(found, 1, left_out)
    return Inferred(columns, left_out, len(found), others)


def _columns(
    objects: list[dict[str, object]], depth: int, left_out: list[str]
) -> tuple[Column, ...]:
    columns: dict[str, Column] = {}
    for key in dict.fromkeys(key for each in objects for key in each):
        kind = _kind([each[key] for each in objects if key in each], depth, left_out)
        name = _name(key) if depth == 1 else key
        if kind is None:
            left_out.append(f"{key}: its values are of no one type")
        elif not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,99}", name) or name.lower() in columns:
            left_out.append(f"{key}: it cannot be a column's name, or differs only by case")
        elif len(columns) == COLUMNS_MAX:
            left_out.append(f"{key}: there are {COLUMNS_MAX} columns already")
        else:
            columns[name.lower()] = Column(name, kind, key)
    return tuple(columns.values())


def _name(key: str) -> str:
    """A column name made from a key."""
    name = re.sub(r"[^A-Za-z0-9]+", "_", key).strip("_") if not key.isidentifier() else key
    if name.startswith("_") or name.lower() in RESERVED or name[:1].isdigit():
        name = f"value_{name.lstrip('_')}"
    return name


def _kind(values: list[object], depth: int, left_out: list[str]) -> Kind | None:
    """The type of all these values, or None."""
    known = [each for each in values if each is not None]
    kinds = {type(each) for each in known}
    if kinds == {list}:
        items = [item for each in known if isinstance(each, list) for item in each]
        inner = _kind(items, depth + 1, left_out) if depth < DEPTH_MAX else None
        return None if inner is None else ListOf(inner)
    if kinds == {dict}:
        objects = [each for each in known if isinstance(each, dict)]
        fields = _columns(objects, depth + 1, left_out) if depth < DEPTH_MAX else ()
        return Struct(fields) if fields else None
    return _plain(known, kinds)


def _plain(known: list[object], kinds: set[type]) -> Kind | None:
    if kinds == {bool}:
        return "bool"
    if kinds == {int} and all(-INT64_END <= int(str(each)) < INT64_END for each in known):
        return "int64"
    if kinds and kinds <= {int, float}:
        return "double"
    if kinds == {str}:
        return "timestamp" if all(_TIME.fullmatch(str(each)) for each in known) else "string"
    return None
