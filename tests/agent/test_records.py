"""Whether a RecordValue fits its topic's RecordType."""

from typing import Any

import pytest
from hypothesis import given, strategies as st

from smq.agent import records
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
from smq.agent.records import (
    NO_RECORD_VALUE,
    fields_of,
    misfit,
    misfit_of_bytes,
    misfit_of_message,
    record_type_of,
)
from smq.agent.value_bytes import PARSED_BYTES_MAX, field_head
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


TWICE = record(id=Value(int64_value=1)).SerializeToString()
ITEMS = RecordFields((RecordField("n", "INT32", required=True), RecordField("more", "STRING")))
WIDE = (
    RecordField("id", "INT64", required=True),
    RecordField("l", "INT64", repeated=True),
    RecordField("d", "DECIMAL", repeated=True),
    RecordField("r", ITEMS),
    RecordField("items", ITEMS, repeated=True),
    RecordField("deep", RecordList(RecordList("DOUBLE"))),
    RecordField("s", "STRING"),
)


def item(number: int, **more: Value) -> Value:
    return Value(record_value=record(n=Value(int32_value=number), **more))


def listed(*values: Value) -> Value:
    return Value(list_value=ListValue(values=values))


def doubles(*numbers: float) -> Value:
    return listed(*(Value(double_value=each) for each in numbers))


DECIMAL = Value(decimal_value=DecimalValue(value=b"\1", precision=1))
LONG = {"s": Value(string_value="x" * PARSED_BYTES_MAX)}
LARGE: dict[str, Value] = {
    "l": listed(*(Value(int64_value=each) for each in range(20_000))),
    "d": listed(*[DECIMAL] * 5000),
    "r": item(1, more=LONG["s"]),
    "items": listed(*map(item, range(5000)), item(5000, more=LONG["s"]), item(5001)),
    "deep": listed(doubles(), doubles(*range(5000)), doubles(1, 2)),
    "s": LONG["s"],
}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, ""),
        ({"l": listed(*[Value()] * 30_000)}, ""),
        ({"none": LONG["s"]}, "the record type has no field none"),
        ({"id": Value()}, "the field id is missing"),
        ({"l": LONG["s"]}, "the field l is a list, not STRING"),
        ({"l": listed(*[Value()] * 30_000, DECIMAL)}, "the field l[30000] is INT64, not DECIMAL"),
        ({"l": LARGE["items"]}, "the field l[0] is INT64, not RECORD"),
        ({"s": LARGE["l"]}, "the field s is STRING, not LIST"),
        ({"s": LARGE["r"]}, "the field s is STRING, not RECORD"),
        ({"r": LARGE["l"]}, "the field r is a record, not LIST"),
        ({"r": LONG["s"]}, "the field r is a record, not STRING"),
        ({"r": item(1, other=LONG["s"])}, "the record type has no field r.other"),
        (
            {"d": listed(*[DECIMAL] * 5000, Value(decimal_value=DecimalValue(value=b"\1")))},
            "the field d[5000] has 0 digits, 0 of them after the point",
        ),
        (
            {"items": listed(*map(item, range(5000)), item(1, other=LONG["s"]))},
            "the record type has no field items[5000].other",
        ),
        (
            {"items": listed(item(1, more=LONG["s"]), item(1, s=LONG["s"]))},
            "the record type has no field items[1].s",
        ),
        (
            {"deep": listed(doubles(), doubles(*range(5000)), listed(Value(bool_value=True)))},
            "the field deep[2][0] is DOUBLE, not BOOL",
        ),
        (
            {"deep": listed(doubles(), listed(*doubles(*range(5000)).list_value.values, DECIMAL))},
            "the field deep[1][5000] is DOUBLE, not DECIMAL",
        ),
    ],
)
def test_a_large_value_is_compared_piece_by_piece_as_a_small_one_is(
    more: dict[str, Value], words: str
) -> None:
    found = record(**({"id": Value(int32_value=1)} | LARGE | more))
    assert misfit_of_bytes(WIDE, found.SerializeToString()) == words
    assert misfit(WIDE, found) == words


@given(types, st.data())
def test_bytes_fit_as_their_value_does(
    fields: tuple[RecordField, ...], data: st.DataObject
) -> None:
    found = fitting(fields)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "PARSED_BYTES_MAX", data.draw(st.sampled_from([0, 5, 20])))
        assert misfit_of_bytes(fields, found.SerializeToString()) == ""
        field = data.draw(st.sampled_from(fields))
        if data.draw(st.booleans()):
            del found.fields[field.name]
        else:
            found.fields[field.name].CopyFrom(Value(list_value=ListValue(values=[DECIMAL])))
        assert misfit_of_bytes(fields, found.SerializeToString()) == misfit(fields, found)


def test_bytes_that_no_subscriber_would_read_whole_are_refused() -> None:
    fields = (RecordField("id", "INT64"),)
    assert misfit_of_bytes((), TWICE) == misfit_of_bytes(fields, TWICE) == ""
    for data in (b"50000", b"\xff", TWICE + b"07", b"\n\x05\n\x01a07"):
        for wanted in (fields, ()):
            assert misfit_of_bytes(wanted, data) == NO_RECORD_VALUE


def test_a_field_that_is_there_twice_is_refused_in_a_large_value() -> None:
    value = listed(*[Value()] * PARSED_BYTES_MAX)
    entry = record(l=value).SerializeToString()
    fields = [RecordField("l", "INT64", repeated=True)]
    assert misfit_of_bytes(fields, entry) == ""
    twice = value.SerializeToString() * 2
    inner = field_head(1, 1) + b"l" + field_head(2, len(twice)) + twice
    for data in (entry + entry, field_head(1, len(inner)) + inner):
        assert RecordValue.FromString(data)
        assert misfit_of_bytes(fields, data) == "the field l is there twice"


def test_a_message_without_a_record_value_is_the_field_that_its_subscribers_get() -> None:
    raw = (RecordField("_value", "BYTES"), RecordField("a", "BOOL"))
    whole = RecordValue(fields={"a": Value(bool_value=True)}).SerializeToString()
    assert misfit_of_message(raw, b"50000") == misfit_of_message(raw, whole) == ""
    assert misfit_of_message(raw[1:], b"50000") == NO_RECORD_VALUE
    text = (RecordField("_value", "STRING"),)
    assert misfit_of_message(text, b"50000") == "the field _value is STRING, not BYTES"
    assert misfit_of_message((raw[1]._replace(required=True),), b"") == "the field a is missing"
