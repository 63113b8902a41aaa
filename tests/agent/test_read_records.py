"""Answers in which records are written as they came: those of protobuf."""

import pytest
from hypothesis import given, strategies as st

from smq.agent import read_records
from smq.agent.proto.mq_agent_pb2 import SubscribeRecordResponse
from smq.agent.proto.mq_broker_pb2 import DataMessage, Header, SubscribeMessageResponse
from smq.agent.proto.mq_schema_pb2 import RecordValue, Value
from smq.agent.read_records import ReadRecord, WrittenAnswer, message_answer, record_answer
from smq.agent.value_bytes import RAW_FIELD

TYPED = RecordValue(fields={"a": Value(string_value="x" * 300)})
HEADERS = [Header(key="h", value=b"x"), Header(key="h"), Header(key="i", value=b"")]
VALUES = st.sampled_from([b"", b"no record", bytes(300)]) | st.just(TYPED.SerializeToString())
records = st.builds(
    ReadRecord,
    st.binary(max_size=200),
    VALUES,
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 2**63 - 1),
    st.sampled_from([b"", DataMessage(headers=HEADERS).SerializeToString()]),
)


def headers_of(record: ReadRecord) -> list[Header]:
    return HEADERS if record.headers else []


@given(records)
def test_a_message_has_what_the_record_has(record: ReadRecord) -> None:
    expected = DataMessage(
        key=record.key,
        value=record.value,
        ts_ns=record.ts_ns,
        offset=record.offset,
        headers=headers_of(record),
    )
    assert DataMessage.FromString(b"".join(record.message())) == expected
    answer = message_answer(record)
    size, data = answer.ByteSize(), answer.SerializeToString()
    assert SubscribeMessageResponse.FromString(data) == SubscribeMessageResponse(data=expected)
    assert len(data) == size > record.size_bytes


@given(records, st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1))
def test_a_subscriber_of_the_agent_gets_a_record_value(
    record: ReadRecord, partition: int, deliveries: int
) -> None:
    is_typed = record.value in {b"", TYPED.SerializeToString()}
    raw = RecordValue(fields={RAW_FIELD: Value(bytes_value=record.value)})
    expected = SubscribeRecordResponse(
        key=record.key,
        value=RecordValue.FromString(record.value) if is_typed else raw,
        ts_ns=record.ts_ns,
        offset=record.offset,
        partition=partition,
        headers=headers_of(record),
        delivery_count=deliveries,
    )
    data = record_answer(record, partition, deliveries).SerializeToString()
    assert SubscribeRecordResponse.FromString(data) == expected
    assert record.is_typed == is_typed
    assert not is_typed or record.value in data, "it is as its publisher wrote it"


def test_a_value_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[bytes] = []

    def looked(data: bytes) -> bool:
        looks.append(data)
        return False

    monkeypatch.setattr(read_records, "is_record_value", looked)
    record = ReadRecord(value=b"x")
    for _ in range(3):
        record_answer(record, 0, 1)
    assert looks == [b"x"]
    assert record == ReadRecord(value=b"x")


def test_an_answer_has_its_bytes_once_and_its_size_for_ever() -> None:
    """gRPC keeps it, and its client may read nothing."""
    answer = WrittenAnswer(b"x" * 60, b"y")
    assert answer.SerializeToString() == b"x" * 60 + b"y"
    assert answer.SerializeToString() == b""
    assert answer.ByteSize() == 61
