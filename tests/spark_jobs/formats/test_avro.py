"""Avro values become rows, and garbage a reason."""

import io
import json
import pickle
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings, strategies as st

from spark_jobs.formats.avro import Avro
from spark_jobs.formats.framing import Misfit

ORDER = {
    "type": "record", "name": "Order",
    "fields": [
        {"name": "user", "type": ["null", "string"]},
        {"name": "n", "type": "int"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9,
                                   "scale": 2}},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "again", "type": ["null", "Kind"]},
        {"name": "inner", "type": {"type": "record", "name": "I",
                                   "fields": [{"name": "x", "type": "double"}]}},
    ],
}  # fmt: skip
ROW: dict[str, Any] = {
    "user": "ann", "n": -5, "at": datetime(2013, 1, 2, 3, 4, 5, 6, UTC), "day": date(2013, 1, 2),
    "price": Decimal("-12.34"), "id": "u-1", "tags": ["a", "b"], "counts": {"c": 1 << 40},
    "kind": "B", "again": "A", "inner": {"x": 1.5},
}  # fmt: skip
DDL = (
    "struct<user:string,n:int,at:timestamp,day:date,price:decimal(9,2),id:string,"
    "tags:array<string>,counts:map<string,bigint>,kind:string,again:string,inner:struct<x:double>>"
)


def record(*fields: object) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [*fields]}


def encoded(schema: dict[str, Any], row: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
    return out.getvalue()


WHOLE = encoded({**ORDER}, ROW)
FORM = Avro(json.dumps(ORDER))


def test_a_value_is_a_row() -> None:
    form = pickle.loads(pickle.dumps(FORM))
    assert form.columns.simpleString() == DDL
    assert form.decode(WHOLE) == ROW


@given(st.integers(0, len(WHOLE) - 1))
def test_a_value_that_is_cut_is_a_misfit(size: int) -> None:
    with pytest.raises(Misfit, match="not Avro data of this schema"):
        FORM.decode(WHOLE[:size])


@settings(deadline=None)
@given(st.binary(max_size=100))
def test_garbage_is_a_misfit(value: bytes) -> None:
    with suppress(Misfit):
        assert set(FORM.decode(value)) == set(FORM.columns.fieldNames())


def test_bytes_behind_the_value_are_a_misfit() -> None:
    with pytest.raises(Misfit, match="3 bytes follow"):
        FORM.decode(WHOLE + b"abc")


def test_the_writers_schema_is_found_by_its_id(tmp_path: Path) -> None:
    old = record({"name": "n", "type": "int"}, {"name": "gone", "type": "string"})
    new = record({"name": "n", "type": "long"}, {"name": "more", "type": "int", "default": 3})
    (tmp_path / "1.avsc").write_text(json.dumps(old))
    (tmp_path / "2.avsc").write_text(json.dumps(new))
    (tmp_path / "3.avsc").write_text('{"type": "array", "items": "null"}')
    form = Avro(json.dumps(new), is_framed=True, registry=str(tmp_path))
    assert form.decode(b"\0\0\0\0\1" + encoded(old, {"n": 5, "gone": "x"})) == {"n": 5, "more": 3}
    assert form.decode(b"\0\0\0\0\2" + encoded(new, {"n": 6, "more": 7})) == {"n": 6, "more": 7}
    for number, said in ((3, "its schema cannot be used"), (4, "has no schema 4")):
        with pytest.raises(Misfit, match=said):
            form.decode(b"\0\0\0\0%c" % number)


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("{", "not an Avro schema"),
        ('"int"', "no record"),
        (json.dumps(record({"name": "a", "type": "nothing"})), "not an Avro schema"),
        (json.dumps(record({"name": "a", "type": ["int", "string"]})), "a union of 2 types"),
        (json.dumps(record({"name": "a", "type": "null"})), "null has no column"),
        (json.dumps(record({"name": "a", "type": ["null", "R"]})), "R has no column"),
        (json.dumps(record()), "the record R has no fields"),
    ],
)
def test_a_schema_without_columns_is_refused(schema: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Avro(schema)
