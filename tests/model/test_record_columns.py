"""A record type's fields become columns, each with a name that a column may have."""

import json

import pytest

from smq.model.record_columns import schema_of_record_type
from smq.model.record_types import DEPTH_MAX, FIELDS_MAX, NAME_CHARACTERS_MAX, SCALARS
from smq.model.topic_schema import Column, ListOf, Struct, has_record_values, parse_schema


def columns(*fields: object) -> tuple[Column, ...]:
    return parse_schema(schema_of_record_type(json.dumps({"fields": fields})))


def names(*fields: str) -> list[str]:
    return [each.name for each in columns(*({"name": name, "type": "BOOL"} for name in fields))]


def test_a_topic_without_a_record_type_has_no_schema() -> None:
    assert schema_of_record_type("") == ""


def test_each_type_is_a_columns_type() -> None:
    fields = [{"name": each, "type": each} for each in SCALARS]
    fields += [
        {"name": "l", "type": {"list": "DATE"}},  # type: ignore[dict-item]
        {"name": "r", "type": {"record": [{"name": "x", "type": "TIME", "repeated": True}]}},  # type: ignore[dict-item]
    ]
    text = schema_of_record_type(json.dumps({"fields": fields}))
    assert has_record_values(text)
    assert [each.type for each in parse_schema(text)] == [
        *(each.lower() for each in SCALARS),
        ListOf("date"),
        Struct((Column("x", ListOf("time"), "x"),)),
    ]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (["price", "Price"], ["price_", "Price"]),
        (["offset", "Key", "_ts_ns", "_x"], ["offset_", "Key_", "_ts_ns_", "_x_"]),
        (["größe", "a b", "2x"], ["gr__e", "a_b", "_2x_"]),
        (["key", "key_"], ["key__", "key_"]),
        (["key_", "key"], ["key_", "key__"]),
    ],
)
def test_names_are_those_of_columns(fields: list[str], expected: list[str]) -> None:
    assert names(*fields) == expected
    assert names(*fields[::-1]) == expected[::-1]


def test_a_fields_name_within_a_record_may_be_that_of_a_column() -> None:
    inner = [{"name": "key", "type": "BOOL"}, {"name": "a b", "type": "BOOL"}]
    [column] = columns({"name": "r", "type": {"record": inner}})
    assert column.type == Struct((Column("key", "bool", "key"), Column("a_b", "bool", "a b")))


def test_the_largest_record_types_have_a_schema() -> None:
    long = [f"{n:03}".rjust(NAME_CHARACTERS_MAX, "ü") for n in range(FIELDS_MAX // 4)]
    assert len(names(*long)) == FIELDS_MAX // 4
    kind: object = "BOOL"
    for _ in range(DEPTH_MAX - 1):
        kind = {"record": [{"name": "x", "type": kind, "repeated": True}]}
    assert columns({"name": "x", "type": kind, "repeated": True})
