"""A schema from JSON values fits them."""

import json

import pyarrow as pa

from smq.model.topic_schema import Column, ListOf, Struct, parse_schema, written
from smq.sealer.typed import Typing
from smq.tables.infer import inferred


def test_a_key_of_the_same_type_in_all_values_gets_that_type() -> None:
    values = [
        b'{"id": 1, "price": 2, "ok": true, "name": "a", "at": "2026-01-02T03:04:05Z"}',
        b'{"id": 2, "price": 2.5, "tags": ["x", null], "buyer": {"id": 7}, "none": null}',
        None,
        b"not JSON",
        b"[1]",
    ]
    found = inferred(values)
    assert found.columns == (
        Column("id", "int64", "id"),
        Column("price", "double", "price"),
        Column("ok", "bool", "ok"),
        Column("name", "string", "name"),
        Column("at", "timestamp", "at"),
        Column("tags", ListOf("string"), "tags"),
        Column("buyer", Struct((Column("id", "int64", "id"),)), "buyer"),
    )
    assert (found.objects, found.others) == (2, 2)
    assert found.left_out == ["none: its values are of no one type"]
    text = written(found.columns)
    assert parse_schema(text) == found.columns
    _, misfits = Typing(text).of(pa.chunked_array([pa.array(values[:2], pa.binary())]))
    assert misfits == 0


def test_names_that_topics_or_engines_do_not_take_are_changed() -> None:
    value = {"timestamp": 1, "user-id": 2, "_x": 3, "9": 4, "A": 5, "a": 6, "é!": 7}
    found = inferred([json.dumps(value).encode()])
    assert [(each.name, each.source) for each in found.columns] == [
        ("value_timestamp", "timestamp"),
        ("user_id", "user-id"),
        ("value_x", "_x"),
        ("value_9", "9"),
        ("A", "A"),
    ]
    assert [each[:2] for each in found.left_out] == ["a:", "é!"]


def test_mixed_types_are_left_out_and_said() -> None:
    found = inferred([b'{"a": 1, "b": {}}', b'{"a": "x", "b": {}}'])
    assert found.columns == ()
    assert len(found.left_out) == 2
