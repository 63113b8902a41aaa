"""RecordValues become rows as protobuf reads them, whatever bytes they are."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given, strategies as st

from smq.agent.proto.mq_schema_pb2 import (
    DateValue,
    DecimalValue,
    ListValue,
    RecordValue,
    TimestampValue,
    TimeValue,
    Value as RecordedValue,
)
from smq.model.record_columns import schema_of_record_type
from smq.model.topic_schema import parse_schema
from smq.sealer.record_value import RecordValues
from smq.sealer.typed import typed_columns

RECORD_TYPE = """{"fields": [
    {"name": "flag", "type": "BOOL"}, {"name": "small", "type": "INT32"},
    {"name": "large", "type": "INT64"}, {"name": "single", "type": "FLOAT"},
    {"name": "double", "type": "DOUBLE"}, {"name": "data", "type": "BYTES"},
    {"name": "key", "type": "STRING"}, {"name": "sent", "type": "TIMESTAMP"},
    {"name": "day", "type": "DATE"}, {"name": "price", "type": "DECIMAL"},
    {"name": "at", "type": "TIME"}, {"name": "tags", "type": "STRING", "repeated": true},
    {"name": "buyer", "type": {"record": [{"name": "age", "type": "INT32"},
                                          {"name": "größe", "type": "FLOAT"}]}},
    {"name": "orders", "type": {"list": {"record": [{"name": "id", "type": "INT64"}]}}}
]}"""
SCHEMA = schema_of_record_type(RECORD_TYPE)
NAMES = [each.name for each in parse_schema(SCHEMA)]
COST_MAX = 1000


def read(*values: bytes) -> tuple[list[dict[str, Any]], list[int]]:
    types = typed_columns(SCHEMA)
    assert types is not None
    table, fitting = RecordValues(parse_schema(SCHEMA), types, COST_MAX).read(values)
    return table.to_pylist(), fitting


def record(**fields: RecordedValue) -> bytes:
    return bytes(RecordValue(fields=fields).SerializeToString())


FULL: dict[str, tuple[RecordedValue, Any]] = {
    "flag": (RecordedValue(bool_value=False), False),
    "small": (RecordedValue(int32_value=-5), -5),
    "large": (RecordedValue(int64_value=-(2**63)), -(2**63)),
    "single": (RecordedValue(float_value=0.5), 0.5),
    "double": (RecordedValue(double_value=1e300), 1e300),
    "data": (RecordedValue(bytes_value=b"\xff"), b"\xff"),
    "key": (RecordedValue(string_value="Zürich"), "Zürich"),
    "sent": (
        RecordedValue(timestamp_value=TimestampValue(timestamp_micros=-1, is_utc=True)),
        datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
    ),
    "day": (RecordedValue(date_value=DateValue(days_since_epoch=-1)), date(1969, 12, 31)),
    "price": (
        RecordedValue(decimal_value=DecimalValue(value=b"\xff\x85", precision=3, scale=2)),
        Decimal("-1.23"),
    ),
    "at": (RecordedValue(time_value=TimeValue(time_micros=3_600_000_000)), 3_600_000_000),
    "tags": (
        RecordedValue(
            list_value=ListValue(values=[RecordedValue(string_value="a"), RecordedValue()])
        ),
        ["a", None],
    ),
    "buyer": (
        RecordedValue(
            record_value=RecordValue(
                fields={
                    "age": RecordedValue(int32_value=7),
                    "größe": RecordedValue(float_value=1.5),
                }
            )
        ),
        {"age": 7, "gr__e": 1.5},
    ),
    "orders": (
        RecordedValue(
            list_value=ListValue(
                values=[
                    RecordedValue(
                        record_value=RecordValue(fields={"id": RecordedValue(int32_value=3)})
                    ),
                    RecordedValue(record_value=RecordValue()),
                ]
            )
        ),
        [{"id": 3}, {"id": None}],
    ),
}


def test_each_type_of_a_record_becomes_a_column() -> None:
    rows, fitting = read(record(**{name: value for name, (value, _) in FULL.items()}), b"")
    expected = [found for _, found in FULL.values()]
    assert "key_" in NAMES
    assert rows == [
        dict(zip(NAMES, expected, strict=True)),
        dict.fromkeys(NAMES),
    ]
    assert fitting == [0, 1]


def test_narrower_numbers_fit_and_fields_of_other_names_are_passed_over() -> None:
    rows, _ = read(
        record(
            large=RecordedValue(int32_value=-5),
            double=RecordedValue(float_value=0.5),
            other=RecordedValue(int32_value=1),
            key=RecordedValue(),
        )
    )
    assert rows == [dict.fromkeys(NAMES) | {"large": -5, "double": 0.5}]


def decimal(digits: bytes, precision: int, scale: int) -> RecordedValue:
    return RecordedValue(decimal_value=DecimalValue(value=digits, precision=precision, scale=scale))


MISFITS = [
    b"\x00", b"\xff", b"plain", b'{"small": 5}', b"\x0a\x05", b"\x0a\x01\x00",
    record(small=RecordedValue(int64_value=5)),
    record(single=RecordedValue(double_value=0.5)),
    record(key=RecordedValue(bytes_value=b"a")),
    record(data=RecordedValue(string_value="a")),
    record(tags=RecordedValue(string_value="a")),
    record(tags=RecordedValue(list_value=ListValue(values=[RecordedValue(int32_value=1)]))),
    record(buyer=RecordedValue(list_value=ListValue())),
    record(sent=RecordedValue(timestamp_value=TimestampValue(timestamp_micros=2**60))),
    record(day=RecordedValue(date_value=DateValue(days_since_epoch=2_932_897))),
    record(at=RecordedValue(time_value=TimeValue(time_micros=86_400_000_000))),
    record(at=RecordedValue(time_value=TimeValue(time_micros=-1))),
    record(price=decimal(b"\x64", 2, 0)),
    record(price=decimal(b"\x01", 0, 0)),
    record(price=decimal(b"\x01", 20, 19)),
    record(price=decimal((10**30).to_bytes(16), 38, 0)),
    record(price=decimal(bytes(17), 1, 0)),
    record(key=RecordedValue(string_value="a")).replace(b"a", b"\xff"),
    b"50000", b"123456789", b"0/34", b"07", b"\x08\x01",  # All fields are unknown.
    record(small=RecordedValue(int32_value=5)) + b"07",
    b"\n\x05\n\x01a07",
    record(key=RecordedValue.FromString(b"07")),
    record(tags=RecordedValue(list_value=ListValue.FromString(b"07"))),
    record(tags=RecordedValue(list_value=ListValue.FromString(b"\n\x0207"))),
    record(buyer=RecordedValue(record_value=RecordValue.FromString(b"07"))),
    record(sent=RecordedValue(timestamp_value=TimestampValue.FromString(b"07"))),
    record(day=RecordedValue(date_value=DateValue.FromString(b"07"))),
    record(at=RecordedValue(time_value=TimeValue.FromString(b"07"))),
    record(price=RecordedValue(decimal_value=DecimalValue.FromString(b"\x10\x0107"))),
]  # fmt: skip


@pytest.mark.parametrize("value", MISFITS)
def test_a_value_that_does_not_fit_spares_its_neighbours(value: bytes) -> None:
    other = record(small=RecordedValue(int32_value=5))
    rows, fitting = read(other, value, other)
    assert fitting == [0, 2]
    assert [row["small"] for row in rows] == [5, 5]


def test_decimals_are_exact() -> None:
    most = 10**20 - 1
    rows, _ = read(
        record(price=decimal(most.to_bytes(16), 38, 0)),
        record(price=decimal((-(10**37)).to_bytes(16, signed=True), 38, 38)),
        record(price=decimal(b"", 1, 0)),
    )
    assert [row["price"] for row in rows] == [most, Decimal("-0.1"), 0]


def test_objects_in_a_list_are_bounded() -> None:
    """Two bytes of a list's item may be all the columns of its type."""

    def of(count: int) -> bytes:
        values = [RecordedValue(record_value=RecordValue())] * count
        return record(orders=RecordedValue(list_value=ListValue(values=values)))

    assert read(of(COST_MAX), of(COST_MAX + 1))[1] == [0]


def test_a_message_in_many_parts_is_joined_once() -> None:
    value = RecordedValue(string_value="a").SerializeToString()
    parts = bytes([0x12, len(value)]) + value
    entry = b"\x0a\x03key" + parts * 300_000
    rows, _ = read(b"\x0a" + _varint(len(entry)) + entry)
    assert rows[0]["key_"] == "a"


def _varint(number: int) -> bytes:
    found = b""
    while number >= 0x80:
        found += bytes([number & 0x7F | 0x80])
        number >>= 7
    return found + bytes([number])


WHOLE = record(**{name: value for name, (value, _) in FULL.items()})


def expected(value: bytes) -> dict[str, Any] | None:
    """The numbers and texts of a value, as protobuf has them; None: it is no RecordValue."""
    try:
        found = RecordValue.FromString(value)
    except DecodeError:
        return None
    return {
        name: getattr(each, each.WhichOneof("kind"))
        for name, each in found.fields.items()
        if name in {"flag", "small", "large", "data"} and each.WhichOneof("kind") is not None
    }


@given(st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), max_size=3))
@example([])
def test_it_reads_what_protobuf_reads(changes: list[tuple[int, int]]) -> None:
    value = bytearray(WHOLE)
    for at, byte in changes:
        value[at] = byte
    rows, _ = read(bytes(value))
    known = expected(bytes(value))
    if rows and known is not None:
        assert {name: rows[0][name] for name in known} == known


@given(st.binary(max_size=40))
def test_garbage_is_a_row_or_a_misfit(value: bytes) -> None:
    rows, fitting = read(value)
    assert len(rows) == len(fitting) <= 1


def test_no_values_are_no_rows() -> None:
    types = typed_columns(SCHEMA)
    assert types is not None
    table, _ = RecordValues(parse_schema(SCHEMA), types, COST_MAX).read([])
    assert table.schema == pa.schema(types)
