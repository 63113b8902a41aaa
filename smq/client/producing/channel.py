"""A channel to one broker: whole Produce requests go in, answers come out, both in order.

There are two: a socket (`wire_channel`) and memory shared with a shard (`door_channel`). What is on
its way when a channel is gone may have been taken or not; the accumulator sends it again.
"""

from struct import Struct
from typing import Protocol

import numpy as np

from smq.wire.codec import Writer
from smq.wire.generated.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
    write_produce_request,
)
from smq.wire.headers import RequestHeader, write_request_header

# The last version without tagged fields: lengths have a fixed place. Brokers since 2.4 know it.
PRODUCE_VERSION = 8
PRODUCE_KEY = 0
ACKS_ALL = -1
PRODUCE_TIMEOUT_MS = 30_000  # How long a broker may wait for its followers.

_INT32 = Struct(">i")
_CORRELATION_AT = 8  # Behind the size, the API's key and its version.


class ChannelGone(Exception):
    """Nobody is at the other end any more."""


class Channel(Protocol):
    """Raises ChannelGone from all of these. One thread writes at a time, and one waits."""

    def reserve(self, size_bytes: int) -> np.ndarray | None:
        """Room to write a request of at most this size, uint8; None: there is none for now."""

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

    def disarm(self) -> None:
        """Awake again."""

    def events(self) -> int:
        """What to poll for: POLLIN, and POLLOUT while there is something to push."""

    def close(self) -> None:
        """Nothing more will be sent."""

    def forget(self) -> None:
        """In a forked child: let go of the copy; the parent's goes on."""


def request_head(client_id: str, topic: str, partition: int) -> np.ndarray:
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
    return np.frombuffer(_INT32.pack(0) + writer.to_bytes(), np.uint8)


def complete_request(out: np.ndarray, head_bytes: int, end: int, correlation_id: int) -> None:
    """Fill in what a head leaves open, once the batch stands behind it."""
    _INT32.pack_into(out.data, 0, end - _INT32.size)
    _INT32.pack_into(out.data, _CORRELATION_AT, correlation_id)
    _INT32.pack_into(out.data, head_bytes - _INT32.size, end - head_bytes)
