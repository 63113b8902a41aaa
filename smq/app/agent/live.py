"""The streams that are open now, for those who ask who publishes and subscribes."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar
from uuid import UUID

from smq.agent.layouts import RingRange


@dataclass(slots=True, kw_only=True, eq=False)
class LivePublisher:
    """A stream of a publisher to one partition."""

    topic: UUID
    partition: RingRange
    name: str
    client_id: str
    connected_ns: int
    seen_ns: int
    published_offset: int = -1
    acked_offset: int = -1


@dataclass(slots=True, kw_only=True, eq=False)
class LiveSubscriber:
    """A stream of a subscriber from one partition."""

    topic: UUID
    partition: RingRange
    group: str
    consumer_id: str
    client_id: str
    connected_ns: int
    seen_ns: int
    position: int = 0
    received_offset: int = -1


Stream = TypeVar("Stream", LivePublisher, LiveSubscriber)


class Live(Generic[Stream]):
    """The open streams of one kind, in the order in which they began."""

    def __init__(self) -> None:
        self._open: dict[Stream, None] = {}

    def begin(self, stream: Stream) -> Stream:
        """A stream is open from now on."""
        self._open[stream] = None
        return stream

    def end(self, stream: Stream) -> None:
        """A stream has ended."""
        self._open.pop(stream, None)

    def of(self, topic: UUID) -> Iterator[Stream]:
        """The streams of a topic: of its name there may be others, which it has replaced."""
        return (each for each in self._open if each.topic == topic)
