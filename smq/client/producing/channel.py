"""A channel to one broker: whole Produce requests go in, answers come out, both in order.

There are two: a socket (`wire_channel`) and a door to a shard (`smq.client.door.door`). What is on
its way when a channel is gone may have been taken or not; the accumulator sends it again.
"""

from struct import Struct
from typing import NamedTuple, Protocol

import numpy as np

from shm.kernels.record.records_encode import One
from smq.client.producing.batch_writer import Stamp
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
REQUEST_BYTES_MAX = 2**31 - 1  # What the size before it can say.
PRODUCE_TIMEOUT_MS = 30_000  # How long a broker may wait for its followers.

_HEAD = Struct(">ihhi")  # Size, the API's key and version, correlation.
_INT16, _INT32 = Struct(">h"), Struct(">i")


class Channel(Protocol):
    """Raises ChannelGone from all of these. One thread at a time uses it, and one may poll.

    is_quiet           whether an answer wakes nobody who polls, unless `arm` has asked for that
    request_bytes_max  the largest request it ever has room for, with its size
    """

    is_quiet: bool
    request_bytes_max: int

    def reserve(self, size_bytes: int) -> np.ndarray | None:
        """Room to write a request of at most this size, uint8; None: there is none for now."""

    def send_one(
        self, size_bytes: int, head: np.ndarray, correlation_id: int, one: One, stamp: Stamp
    ) -> bool:
        """Send a request of one record that is not compressed; False: there is no room for now."""

    def commit(self, used_bytes: int) -> None:
        """Send what was written into the room."""

    def answers(self) -> list[bytes]:
        """Answers that have come, in the order of the requests, without their sizes."""

    def push(self) -> None:
        """Send on what the other end would not take at once."""

    def fileno(self) -> int:
        """Something to poll, between `arm` and `disarm`; -1 once it is gone."""

    def arm(self) -> bool:
        """About to sleep; False: there is something already."""

    def disarm(self) -> bool:
        """Awake again; whether there may be answers."""

    def events(self) -> int:
        """What to poll for: POLLIN, and POLLOUT while there is something to push."""

    def close(self) -> None:
        """Nothing more will be sent."""

    def forget(self) -> None:
        """In a forked child: let go of the copy; the parent's goes on."""


def request_head(client_id: str, topic: str, partition: int) -> bytes:
    """A Produce request of one batch up to the batch, which is all that follows."""
    writer = Writer()
    write_request_header(RequestHeader(PRODUCE_KEY, PRODUCE_VERSION, 0, client_id), writer)
    data = PartitionProduceData(index=partition, records=b"")
    request = ProduceRequest(
        acks=ACKS_ALL,
        timeout_ms=PRODUCE_TIMEOUT_MS,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
    write_produce_request(request, PRODUCE_VERSION, writer)
    return _INT32.pack(0) + writer.to_bytes()


def put_head(out: np.ndarray, head: bytes, end: int, correlation_id: int) -> None:
    """Put a head, with what it leaves open, in front of a batch that ends at `end`."""
    data, head_bytes = out.data, len(head)
    data[:head_bytes] = head
    _HEAD.pack_into(data, 0, end - _INT32.size, PRODUCE_KEY, PRODUCE_VERSION, correlation_id)
    _INT32.pack_into(data, head_bytes - _INT32.size, end - head_bytes)


class Answer(NamedTuple):
    """What a broker says to a request of one batch."""

    correlation_id: int
    error_code: int
    base_offset: int
    append_time_ms: int
    error_message: str | None = None


def answer_format(topic: str) -> Struct:
    """An answer as it mostly is: one partition, and no words about an error."""
    topic_bytes = _INT32.size + _INT16.size + len(topic.encode())
    return Struct(f">i{topic_bytes + 2 * _INT32.size}xhqq{8 + 4 + 2 + 4}x")


def read_answer(data: bytes, usual: Struct) -> Answer:
    """An answer, mostly of the usual format. Raises Malformed."""
    if len(data) == usual.size:
        return Answer(*usual.unpack(data))
    correlation_id, at = read_response_header(data, 0, PRODUCE_KEY, PRODUCE_VERSION)
    response = read_produce_response(data, at, PRODUCE_VERSION)
    answers = [each for topic in response.responses for each in topic.partition_responses]
    if len(answers) != 1:
        raise Malformed(f"an answer to one batch is about {len(answers)}")
    (one,) = answers
    fields = one.error_code, one.base_offset, one.log_append_time_ms, one.error_message
    return Answer(correlation_id, *fields)
