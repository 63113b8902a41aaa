"""The bytes of a Produce request that carries one batch, and of the answer to it."""

from struct import Struct
from typing import NamedTuple

import numpy as np

from smq.wire.codec import Malformed, Writer
from smq.wire.generated.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
    read_produce_response,
    write_produce_request,
)
from smq.wire.headers import RequestHeader, read_response_header, write_request_header

# The last version without tagged fields: lengths have a fixed place. Brokers since 2.4 know it.
PRODUCE_VERSION = 8
PRODUCE_KEY = 0
ACKS_ALL = -1
PRODUCE_TIMEOUT_MS = 30_000  # How long a broker may wait for its followers.

_HEAD = Struct(">ihhi")  # Size, the API's key and version, correlation.
_INT16, _INT32 = Struct(">h"), Struct(">i")


def request_head(
    client_id: str, topic: str, partition: int, transactional_id: str | None = None
) -> bytes:
    """The head of a Produce request: everything before its one batch, which ends it."""
    writer = Writer()
    write_request_header(RequestHeader(PRODUCE_KEY, PRODUCE_VERSION, 0, client_id), writer)
    data = PartitionProduceData(index=partition, records=b"")
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=ACKS_ALL,
        timeout_ms=PRODUCE_TIMEOUT_MS,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
    write_produce_request(request, PRODUCE_VERSION, writer)
    return _INT32.pack(0) + writer.to_bytes()


def put_head(out: np.ndarray, head: bytes, end: int, correlation_id: int) -> None:
    """Write a head, with its open fields, in front of a batch that ends at `end`."""
    data, head_bytes = out.data, len(head)
    data[:head_bytes] = head
    _HEAD.pack_into(data, 0, end - _INT32.size, PRODUCE_KEY, PRODUCE_VERSION, correlation_id)
    _INT32.pack_into(data, head_bytes - _INT32.size, end - head_bytes)


class ProduceAnswer(NamedTuple):
    """The answer of a broker to a request of one batch."""

    correlation_id: int
    error_code: int
    base_offset: int
    append_time_ms: int
    error_message: str | None = None


def answer_format(topic: str) -> Struct:
    """The usual answer: one partition, without an error message."""
    topic_bytes = _INT32.size + _INT16.size + len(topic.encode())
    return Struct(f">i{topic_bytes + 2 * _INT32.size}xhqq{8 + 4 + 2 + 4}x")


def read_answer(data: bytes, usual: Struct) -> ProduceAnswer:
    """An answer, mostly of the usual format. Raises Malformed."""
    if len(data) == usual.size:
        return ProduceAnswer(*usual.unpack(data))
    correlation_id, at = read_response_header(data, 0, PRODUCE_KEY, PRODUCE_VERSION)
    response = read_produce_response(data, at, PRODUCE_VERSION)
    answers = [each for topic in response.responses for each in topic.partition_responses]
    if len(answers) != 1:
        raise Malformed(f"an answer to one batch is about {len(answers)}")
    (one,) = answers
    fields = one.error_code, one.base_offset, one.log_append_time_ms, one.error_message
    return ProduceAnswer(correlation_id, *fields)
