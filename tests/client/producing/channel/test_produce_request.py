"""A head and a batch form a standard Produce request; answers are read likewise."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from smq.client.producing.channel.produce_request import (
    PRODUCE_VERSION,
    ProduceAnswer,
    answer_format,
    put_head,
    read_answer,
    request_head,
)
from smq.wire.codec import Malformed, Writer
from smq.wire.generated.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
    read_produce_request,
    write_produce_response,
)
from smq.wire.headers import read_request_header, write_response_header

INT64 = st.integers(-(2**63), 2**63 - 1)


def test_a_completed_head_is_a_request() -> None:
    head = request_head("who", "töpic", 7)
    out = np.zeros(len(head) + 10, np.uint8)
    out[len(head) :] = 0xAB
    put_head(out, head, len(out), 2**31 - 1)
    data = out.tobytes()
    assert int.from_bytes(data[:4]) == len(data) - 4
    header, at = read_request_header(data, 4)
    assert (header.api_key, header.api_version, header.client_id) == (0, PRODUCE_VERSION, "who")
    assert header.correlation_id == 2**31 - 1
    request = read_produce_request(data, at, PRODUCE_VERSION)
    assert (request.acks, request.transactional_id) == (-1, None)
    (topic,) = request.topic_data
    (partition,) = topic.partition_data
    assert (topic.name, partition.index) == ("töpic", 7)
    assert isinstance(partition.records, memoryview | bytes)
    assert bytes(partition.records) == b"\xab" * 10


def answer(topic: str, correlation_id: int, *partitions: PartitionProduceResponse) -> bytes:
    writer = Writer()
    write_response_header(correlation_id, 0, PRODUCE_VERSION, writer)
    about = TopicProduceResponse(name=topic, partition_responses=list(partitions))
    response = ProduceResponse(responses=[about], throttle_time_ms=7)
    write_produce_response(response, PRODUCE_VERSION, writer)
    return writer.to_bytes()


@given(
    st.sampled_from(["t", "töpic", "a" * 249]),
    st.integers(0, 2**31 - 1),
    st.integers(-1, 100),
    INT64,
    INT64,
    st.none() | st.text(max_size=9),
    st.booleans(),
)
def test_produce_answers_with_any_fields_are_read(  # noqa: PLR0913, PLR0917  (fields of an answer)
    topic: str,
    correlation_id: int,
    error_code: int,
    base_offset: int,
    append_time_ms: int,
    message: str | None,
    names_a_record: bool,
) -> None:
    said = PartitionProduceResponse(
        index=3,
        error_code=error_code,
        base_offset=base_offset,
        log_append_time_ms=append_time_ms,
        log_start_offset=5,
        record_errors=[BatchIndexAndErrorMessage(batch_index=1)] * names_a_record,
        error_message=message,
    )
    data = answer(topic, correlation_id, said)
    assert (len(data) == answer_format(topic).size) == (not message and not names_a_record)
    expected = ProduceAnswer(
        correlation_id, error_code, base_offset, append_time_ms, message or None
    )
    found = read_answer(data, answer_format(topic))
    assert found._replace(error_message=found.error_message or None) == expected


def test_an_answer_about_two_partitions_is_refused() -> None:
    data = answer("t", 1, PartitionProduceResponse(), PartitionProduceResponse())
    with pytest.raises(Malformed, match="is about 2"):
        read_answer(data, answer_format("t"))
