"""Fields cut out of messages, against protobuf."""

from hypothesis import given, strategies as st

from smq.agent.proto.mq_agent_pb2 import PublishRecordRequest
from smq.agent.proto.mq_schema_pb2 import RecordValue, Value
from smq.agent.raw_fields import raw_field

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


def test_unknown_fields_of_every_kind_are_passed_over() -> None:
    value = value_of({"a": 1}).SerializeToString()
    unknown = b"\xa0\x06\x05" + b"\xa1\x06" + bytes(8) + b"\xa5\x06" + bytes(4) + b"\xa2\x06\x01x"
    message = unknown + b"\x1a" + bytes([len(value)]) + value + unknown
    assert PublishRecordRequest.FromString(message).HasField("value")
    assert raw_field(message, VALUE) == value
    group = b"\xa3\x06\xa4\x06"
    assert PublishRecordRequest.FromString(group + message).HasField("value")
    assert raw_field(group + message, VALUE) is None
