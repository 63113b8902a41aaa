"""Where a consumer's records come from: one protocol, two that keep it.

    LocalSource   rings of the broker's shared memory, when it is on this host
    WireSource    Fetch over Kafka's protocol: everywhere, and for what a ring no longer has

A partition is read by one source at a time. What a source takes has not been had until the reader
says `commit`: a batch that cannot be cut leaves the partition where it was.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol
from uuid import UUID

from smq.client.consuming.batch.chunk import Batches, Chunk
from smq.client.names import TopicPartition
from smq.wire.codec import ZERO_UUID


class Partition:
    """A partition as its reader sees it. `position` is the offset of the record it gives next.

    topic_id    of the topic that the position is in; ZERO_UUID: not known yet
    is_on_wire  where it was read last; None: nowhere yet
    """

    __slots__ = ("is_on_wire", "name", "position", "topic_id")

    def __init__(self, name: TopicPartition, position: int) -> None:
        self.name = name
        self.position = position
        self.topic_id = ZERO_UUID
        self.is_on_wire: bool | None = None

    def is_in(self, topic_id: UUID) -> bool:
        """Whether the position is in the topic that has this id now; False: that is another one.

        ZERO_UUID, of a broker that knows no ids, may be any topic. A partition whose topic is not
        known yet is in this one from now on.
        """
        if ZERO_UUID in {self.topic_id, topic_id}:
            self.topic_id = topic_id
        return self.topic_id == topic_id


class Taken(NamedTuple):
    """Batches that a source has taken, and what became of them.

    ends       where their partitions go on behind the batches that were cut, or behind all of them
    commit     tells the source how many batches were cut, unless it has cut them itself
    is_intact  whether the memory they lie in is still theirs
    chunks     the records of the batches that were cut; None: none has been cut yet
    """

    batches: Batches
    ends: list[tuple[Partition, int]]
    commit: Callable[[int], None]
    is_intact: Callable[[], bool]
    chunks: list[Chunk] | None = None


class Source(Protocol):
    """Reads some partitions."""

    def add(self, partitions: Iterable[Partition]) -> list[Partition]:
        """Read these from their positions on; those that it cannot read are given back."""

    def remove(self, partition: Partition) -> None:
        """Read a partition no longer, if it was read here."""

    def clear(self) -> None:
        """Read none, whatever broke off what was done before."""

    def take(self) -> list[Taken]:
        """What is there now, without waiting."""

    def leave(self) -> list[Partition]:
        """Those that it reads no longer since it was asked last."""

    def close(self) -> None:
        """Give back what it holds."""


def always_intact() -> bool:
    """`Taken.is_intact` of memory that nobody overwrites."""
    return True
