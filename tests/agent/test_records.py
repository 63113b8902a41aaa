"""Whether a RecordValue fits its topic's RecordType."""

from typing import Any

import pytest
from hypothesis import given, strategies as st

from smq.agent.proto.mq_schema_pb2 import (
    DateValue,
    DecimalValue,
    Field,
    ListValue,
    RecordType,
    RecordValue,
    TimestampValue,
    TimeValue,
    Type,
    Value,
)
from smq.agent.records import RAW_FIELD, fields_of, misfit, record_type_of, value_of_bytes
from smq.model.record_types import RecordField, RecordFields, RecordKind, RecordList
from tests.model.test_record_types import types

ORDER = (
    RecordField("id", "INT64", required=True),
    RecordField("price", "DOUBLE"),
    RecordField("tags", "STRING", repeated=True),
    RecordField("buyer", RecordFields((RecordField("age", "INT32", required=True),))),
)


def record(**fields: Value) -> RecordValue:
    return RecordValue(fields=fields)


def value(kind: RecordKind, *, repeated: bool) -> Value:
    """A value that fits."""
    if repeated:
        return Value(list_value=ListValue(values=[value(kind, repeated=False)]))
    match kind:
        case RecordList(items):
            return value(items, repeated=True)
        case RecordFields(fields):
            return Value(record_value=fitting(fields))
    scalars: dict[str, dict[str, Any]] = {
        "BOOL": {"bool_value": True},
        "INT32": {"int32_value": 1},
        "INT64": {"int64_value": 1},
        "FLOAT": {"float_value": 1.5},
        "DOUBLE": {"double_value": 1.5},
        "BYTES": {"bytes_value": b"1"},
        "STRING": {"string_value": "1"},
        "TIMESTAMP": {"timestamp_value": TimestampValue(timestamp_micros=1)},
        "DATE": {"date_value": DateValue(days_since_epoch=1)},
        "DECIMAL": {"decimal_value": DecimalValue(value=b"\1", precision=1, scale=0)},
        "TIME": {"time_value": TimeValue(time_micros=1)},
    }
    return Value(**scalars[str(kind)])


def fitting(fields: tuple[RecordField, ...]) -> RecordValue:
    return record(**{each.name: value(each.kind, repeated=each.repeated) for each in fields})


@given(types)
def test_a_type_comes_back_from_its_message(fields: tuple[RecordField, ...]) -> None:
    message = RecordType.FromString(record_type_of(fields).SerializeToString())
    assert fields_of(message) == fields


@given(types, st.data())
def test_a_record_of_its_type_fits_and_one_with_a_field_of_another_kind_does_not(
    fields: tuple[RecordField, ...], data: st.DataObject
) -> None:
    found = fitting(fields)
    assert misfit(fields, found) == ""
    field = data.draw(st.sampled_from(fields))
    is_bool = field.kind == "BOOL" and not field.repeated
    wrong = Value(string_value="true") if is_bool else Value(bool_value=True)
    found.fields[field.name].CopyFrom(wrong)
    assert f"the field {field.name} is " in misfit(fields, found)


@given(types, st.data())
def test_a_record_without_a_field_fits_unless_it_is_required(
    fields: tuple[RecordField, ...], data: st.DataObject
) -> None:
    found, field = fitting(fields), data.draw(st.sampled_from(fields))
    if data.draw(st.booleans()):
        del found.fields[field.name]
    else:
        found.fields[field.name].Clear()
    expected = f"the field {field.name} is missing" if field.required else ""
    assert misfit(fields, found) == expected


def test_small_numbers_fit_larger_types() -> None:
    assert misfit(ORDER, record(id=Value(int32_value=1), price=Value(float_value=1.5))) == ""


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"colour": Value(string_value="red")}, "the record type has no field colour"),
        ({"id": Value(string_value="1")}, "the field id is INT64, not STRING"),
        ({"price": Value(int64_value=1)}, "the field price is DOUBLE, not INT64"),
        ({"tags": Value(string_value="a")}, "the field tags is a list, not STRING"),
        (
            {"tags": Value(list_value=ListValue(values=[Value(), Value(int32_value=1)]))},
            "the field tags[1] is STRING, not INT32",
        ),
        ({"buyer": Value(record_value=record())}, "the field buyer.age is missing"),
        (
            {"buyer": Value(record_value=record(age=Value(int32_value=1), name=Value()))},
            "the record type has no field buyer.name",
        ),
        ({"buyer": Value(bool_value=True)}, "the field buyer is a record, not BOOL"),
    ],
    ids=["unknown", "text", "integer", "no list", "in a list", "missing", "inner", "no record"],
)
def test_a_misfit_names_the_field(more: dict[str, Value], words: str) -> None:
    found = record(**({"id": Value(int64_value=1)} | more))
    assert misfit(ORDER, found) == words


@pytest.mark.parametrize(
    ("decimal", "words"),
    [
        (DecimalValue(value=b"\x7f", precision=3, scale=1), ""),
        (DecimalValue(value=b"\x80", precision=3, scale=3), ""),
        (DecimalValue(value=b"\x7f", precision=2, scale=1), "more than its 2 digits"),
        (DecimalValue(value=b"\x7f", precision=39, scale=1), "has 39 digits"),
        (DecimalValue(value=b"\x7f", precision=3, scale=4), "4 of them after the point"),
        (DecimalValue(value=bytes(17), precision=38, scale=0), "more than 38 digits"),
    ],
    ids=["fits", "negative", "too large", "too precise", "too small", "too long"],
)
def test_a_decimal_has_the_digits_that_it_says(decimal: DecimalValue, words: str) -> None:
    found = misfit([RecordField("d", "DECIMAL")], record(d=Value(decimal_value=decimal)))
    assert words in found
    assert bool(words) == bool(found)


def test_a_type_that_is_none_is_refused() -> None:
    for field, words in (
        (Field(name="a"), "the field a has no type"),
        (Field(name="a", type=Type(scalar_type=2)), "there is no type 2"),  # type: ignore[arg-type]
        (Field(name="", type=Type(scalar_type=1)), "1 to 100 characters"),  # type: ignore[arg-type]
    ):
        with pytest.raises(ValueError, match=words):
            fields_of(RecordType(fields=[field]))
    deep = Type(scalar_type=1)  # type: ignore[arg-type]
    for _ in range(6):
        deep = Type(record_type=RecordType(fields=[Field(name="a", type=deep)]))
    with pytest.raises(ValueError, match="nested at most"):
        fields_of(RecordType(fields=[Field(name="a", type=deep)]))


@given(st.binary(max_size=40))
def test_bytes_that_are_no_record_value_are_a_field_of_one(data: bytes) -> None:
    found = value_of_bytes(data)
    if set(found.fields) == {RAW_FIELD}:
        assert found.fields[RAW_FIELD].bytes_value == data


def test_a_marshalled_record_value_comes_back() -> None:
    found = fitting(ORDER)
    assert value_of_bytes(found.SerializeToString()) == found
    assert value_of_bytes(b"no record").fields[RAW_FIELD].bytes_value == b"no record"


@pytest.mark.parametrize(
    "data",
    [
        b"50000", b"123456789", b"0/34", b"07",  # Protobuf parses them: it has all fields unknown.
        b"\x08\x01",  # Field 1, a number.
        record(a=Value(int32_value=1)).SerializeToString() + b"07",
        b"\n\x05\n\x01a07",  # In an entry.
        b"\n\x07\n\x01a\x12\x0207",  # In its value.
        record(a=Value(list_value=ListValue.FromString(b"\n\x0207"))).SerializeToString(),
        record(a=Value(record_value=RecordValue.FromString(b"07"))).SerializeToString(),
        b"\n\x03\n\x01a07",  # As long as what is known of it, when that is written again.
    ],
)  # fmt: skip
def test_bytes_with_an_unknown_field_are_no_record_value(data: bytes) -> None:
    RecordValue.FromString(data)
    assert value_of_bytes(data) == record(**{RAW_FIELD: Value(bytes_value=data)})


def test_a_record_value_may_be_written_without_its_defaults() -> None:
    for data in (b"\n\x03\n\x01a", b"\n\x05\n\x01a\x12\x00"):
        assert value_of_bytes(data) == record(a=Value())


def test_no_bytes_are_a_record_value_without_fields() -> None:
    assert value_of_bytes(b"") == RecordValue()


def test_a_type_is_refused_by_its_size_before_its_fields_are_looked_at() -> None:
    nothing = Field(name="x")  # Its type would be missed.
    inner = Type(record_type=RecordType(fields=[nothing] * 201))
    for fields, words in (
        ([nothing] * 201, "1 to 200 fields, not 201"),
        ([Field(name="a", type=inner)], "1 to 200 fields, not 201"),
        ([Field(name="x" * 40_000)], "at most 32768 bytes"),
    ):
        with pytest.raises(ValueError, match=words):
            fields_of(RecordType(fields=fields))


def test_a_long_list_names_its_first_misfit() -> None:
    values = [Value(), Value(int32_value=1), Value(int64_value=2), Value(bool_value=True)]
    found = record(l=Value(list_value=ListValue(values=values)))
    why = "the field l[3] is INT64, not BOOL"
    assert misfit([RecordField("l", "INT64", repeated=True)], found) == why
    assert misfit([RecordField("l", RecordList("INT64"))], found) == why
