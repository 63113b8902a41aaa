"""RecordValues that are not parsed: they are those that SeaweedMQ's clients read whole."""

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, strategies as st

from smq.agent.proto.mq_agent_pb2 import SubscribeRecordResponse
from smq.agent.proto.mq_broker_pb2 import DataMessage, Header
from smq.agent.proto.mq_schema_pb2 import (
    DecimalValue,
    ListValue,
    RecordValue,
    TimestampValue,
    Value,
)
from smq.agent.value_bytes import (
    FIELDS,
    RAW_FIELD,
    VALUE,
    field_head,
    is_record_value,
    last_field,
    last_named,
    raw_value,
)


def record(**fields: Value) -> RecordValue:
    return RecordValue(fields=fields)


def nested(depth: int, *, in_lists: bool) -> bytes:
    found = b"\x10\x01"
    for _ in range(depth):
        if in_lists:
            found = field(14, field(1, found))
        else:
            found = field(15, field(1, field(1, b"a") + field(2, found)))
    return field(1, field(1, b"a") + field(2, found))


def field(number: int, content: bytes) -> bytes:
    return field_head(number, len(content)) + content


@given(st.binary(max_size=40))
def test_any_bytes_are_a_record_value_if_protobuf_reads_them_whole(data: bytes) -> None:
    try:
        found = RecordValue.FromString(data)
    except DecodeError:
        assert not is_record_value(data)
        return
    size = found.ByteSize()
    found.DiscardUnknownFields()
    if found.ByteSize() < size:
        assert not is_record_value(data)
    elif size == len(data):
        assert is_record_value(data)


def test_a_value_of_each_kind_is_one() -> None:
    kinds = [
        Value(bool_value=True), Value(int32_value=-1), Value(int64_value=2**62),
        Value(float_value=1.5), Value(double_value=1.5), Value(bytes_value=b"\xff"),
        Value(string_value="grün"), Value(timestamp_value=TimestampValue(timestamp_micros=1)),
        Value(decimal_value=DecimalValue(value=b"\1", precision=1)), Value(),
        Value(list_value=ListValue(values=[Value()])), Value(record_value=record(b=Value())),
    ]  # fmt: skip
    assert is_record_value(
        record(**{f"f{at}": each for at, each in enumerate(kinds)}).SerializeToString()
    )
    for kind in kinds:
        assert is_record_value(record(a=kind).SerializeToString())


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
    assert not is_record_value(data)
    found = RecordValue.FromString(b"".join(raw_value(data)))
    assert found == record(**{RAW_FIELD: Value(bytes_value=data)})


def test_a_record_value_may_be_written_without_its_defaults() -> None:
    for data in (b"", b"\n\x03\n\x01a", b"\n\x05\n\x01a\x12\x00"):
        assert is_record_value(data)


@pytest.mark.parametrize("in_lists", [True, False], ids=["lists", "records"])
def test_values_are_nested_as_deep_as_readers_of_an_answer_go(in_lists: bool) -> None:
    for depth in range(20, 60):
        data = nested(depth, in_lists=in_lists)
        answer = field(SubscribeRecordResponse.VALUE_FIELD_NUMBER, data)
        try:
            SubscribeRecordResponse.FromString(answer)
        except DecodeError:
            assert not is_record_value(data), depth
        else:
            assert is_record_value(data), depth


def test_the_last_of_several_fields_is_found() -> None:
    data = record(a=Value(int32_value=1)).SerializeToString()
    data += record(a=Value(string_value="x")).SerializeToString()
    assert last_named(data, FIELDS, []) == last_named(data, FIELDS, ["b", ""]) == {}
    found, count = last_field(last_named(data, FIELDS, ["b", "a"])["a"], VALUE)
    assert (found.number, count) == (VALUE, 1)
    assert Value.FromString(found.content) == Value(string_value="x")
    assert last_field(data, FIELDS)[1] == last_field(data)[1] == 2
    assert last_field(data, 7) == ((0, b"", b""), 0)
    kind, _ = last_field(found.content)
    assert (kind.content, kind.whole) == (b"x", found.content)
    headers = DataMessage(headers=[Header(key="a", value=b"1")]).SerializeToString()
    last = Header(key="a", value=b"1").SerializeToString()
    assert last_named(headers, 1001, ["a", "aa"]) == {"a": last}
