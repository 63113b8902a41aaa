"""Fields cut out of messages, against protobuf."""

import pytest
from hypothesis import given, strategies as st

from smq.agent.proto.mq_agent_pb2 import PublishRecordRequest
from smq.agent.proto.mq_broker_pb2 import DataMessage
from smq.agent.proto.mq_schema_pb2 import RecordValue, Value
from smq.agent.raw_fields import (
    FIELDS_MAX,
    NoMessage,
    TooManyFields,
    cut_field,
    raw_field,
    raw_number,
)

VALUE = PublishRecordRequest.VALUE_FIELD_NUMBER
values = st.dictionaries(st.text(max_size=5), st.integers(-(2**63), 2**63 - 1), max_size=5)


def value_of(fields: dict[str, int]) -> RecordValue:
    return RecordValue(fields={name: Value(int64_value=each) for name, each in fields.items()})


@given(values, st.binary(max_size=300), st.integers(0, 2**63 - 1))
def test_the_field_is_the_one_that_protobuf_reads(
    fields: dict[str, int], key: bytes, session: int
) -> None:
    request = PublishRecordRequest(session_id=session, key=key, value=value_of(fields))
    found = raw_field(request.SerializeToString(), VALUE)
    assert found is not None
    assert RecordValue.FromString(found) == request.value


@given(st.permutations(["a", "b", "c", "d"]))
def test_its_bytes_are_the_senders_in_any_order_of_a_map(names: list[str]) -> None:
    written = b"".join(value_of({name: 1}).SerializeToString() for name in names)
    message = b"\x12\x01k\x1a" + bytes([len(written)]) + written
    assert PublishRecordRequest.FromString(message).value == value_of(dict.fromkeys(names, 1))
    assert raw_field(message, VALUE) == written


def test_a_field_that_is_absent_or_in_parts_has_no_bytes_of_its_own() -> None:
    one = PublishRecordRequest(value=value_of({"a": 1})).SerializeToString()
    two = PublishRecordRequest(value=value_of({"b": 2})).SerializeToString()
    assert raw_field(one + two, VALUE) is None
    assert raw_field(b"", VALUE) is None
    assert raw_field(PublishRecordRequest(key=b"k").SerializeToString(), VALUE) is None


@given(values, st.binary(max_size=300), st.integers(0, 2**63 - 1))
def test_the_rest_of_a_message_has_all_but_the_cut_field(
    fields: dict[str, int], key: bytes, session: int
) -> None:
    request = PublishRecordRequest(session_id=session, key=key, value=value_of(fields), sequence=0)
    value = request.value.SerializeToString()
    rest, found = cut_field(request.SerializeToString(), VALUE)
    assert found is not None
    assert RecordValue.FromString(found) == RecordValue.FromString(value)
    request.ClearField("value")
    assert rest == request.SerializeToString()
    assert cut_field(rest, VALUE) == (rest, None)


def test_a_message_that_cannot_be_cut_is_refused() -> None:
    one = PublishRecordRequest(value=value_of({"a": 1})).SerializeToString()
    for message, error in (
        (one + one, "is there twice"),
        (one + b"\x78\x01" * FIELDS_MAX, "more than 2000 fields"),
    ):
        with pytest.raises(ValueError, match=error) as raised:
            cut_field(message, VALUE)
        assert isinstance(raised.value, TooManyFields) == (error != "is there twice")
    for message in (one[:-1], one + b"\x80", b"\x13", b"\x78" + b"\xff" * 11, b"\x79abc"):
        with pytest.raises(NoMessage):
            cut_field(message, VALUE)


def test_unknown_fields_of_every_kind_are_passed_over() -> None:
    value = value_of({"a": 1}).SerializeToString()
    unknown = b"\xa0\x06\x05" + b"\xa1\x06" + bytes(8) + b"\xa5\x06" + bytes(4) + b"\xa2\x06\x01x"
    message = unknown + b"\x1a" + bytes([len(value)]) + value + unknown
    assert PublishRecordRequest.FromString(message).HasField("value")
    assert raw_field(message, VALUE) == value
    group = b"\xa3\x06\xa4\x06"
    assert PublishRecordRequest.FromString(group + message).HasField("value")
    assert raw_field(group + message, VALUE) is None


def test_of_too_many_fields_none_is_looked_for() -> None:
    value = value_of({"a": 1}).SerializeToString()
    message = b"\x1a" + bytes([len(value)]) + value
    assert raw_field(b"\x78\x01" * (FIELDS_MAX - 1) + message, VALUE) == value
    assert raw_field(b"\x78\x01" * FIELDS_MAX + message, VALUE) is None
    assert raw_field(message + b"\x78\x01" * FIELDS_MAX, VALUE) is None


@given(st.integers(0, 2**63 - 1), st.binary(max_size=300))
def test_a_number_is_read_without_the_rest(ts_ns: int, value: bytes) -> None:
    message = DataMessage(ts_ns=ts_ns, value=value).SerializeToString()
    assert raw_number(message, DataMessage.TS_NS_FIELD_NUMBER) == ts_ns
    strings = b"\x0a\x00" * FIELDS_MAX
    assert raw_number(strings + message, DataMessage.TS_NS_FIELD_NUMBER) == 0


@given(st.binary())
def test_bytes_that_are_no_message_give_a_number_or_none(data: bytes) -> None:
    assert 0 <= raw_number(data, 3) < 1 << 63
    raw_field(data, 3)


def test_a_number_that_ends_nowhere_is_none() -> None:
    endless = b"\x80" * 10_000_000
    for message in (endless, b"\x18" + endless, b"\x12" + endless):
        assert raw_number(message, 3) == 0
        assert raw_field(message, 3) is None
    below = DataMessage(ts_ns=-1).SerializeToString()
    assert raw_number(below, DataMessage.TS_NS_FIELD_NUMBER) == 0
