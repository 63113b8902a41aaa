"""The sources of a consumer's records: a protocol with two implementations.

    LocalSource   the rings in the broker's shared memory, if the broker is on this host
    WireSource    Fetch over Kafka's protocol: everywhere, and for what a ring no longer has

One source at a time reads a partition. A source moves on only when the reader calls `commit`: a
batch that cannot be cut stays next in its partition.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol
from uuid import UUID

from smq.client.consuming.batch.chunk import Chunk, PlacedBatches
from smq.client.names import TopicPartition
from smq.wire.codec import ZERO_UUID


class Partition:
    """A partition that is read. `position` is the offset of its next record.

    topic_id    the id of the topic that the position is in; ZERO_UUID: not known yet
    is_pinned   whether no other topic of the name may be read
    is_on_wire  whether it was read over the wire last; None: it has not been read yet
    """

    __slots__ = ("is_on_wire", "is_pinned", "name", "position", "topic_id")

    def __init__(self, name: TopicPartition, position: int, topic_id: UUID = ZERO_UUID) -> None:
        self.name = name
        self.position = position
        self.topic_id, self.is_pinned = topic_id, topic_id != ZERO_UUID
        self.is_on_wire: bool | None = None

    def is_in(self, topic_id: UUID) -> bool:
        """Whether the position is in the topic with this id; False: the topic was created again.

        ZERO_UUID, from a broker without ids, matches any topic. A partition whose topic is not
        known yet takes this id.
        """
        if ZERO_UUID in {self.topic_id, topic_id}:
            self.topic_id = topic_id
        return self.topic_id == topic_id


class Taken(NamedTuple):
    """Batches that a source has taken, and the chunks cut from them.

    ends       where their partitions continue after the batches that were cut, or after all
    commit     tells the source how many batches were cut, unless it has cut them itself
    is_intact  whether their memory has not been overwritten
    chunks     the records of the batches that were cut; None: none has been cut yet
    """

    batches: PlacedBatches
    ends: list[tuple[Partition, int]]
    commit: Callable[[int], None]
    is_intact: Callable[[], bool]
    chunks: list[Chunk] | None = None


class Source(Protocol):
    """Reads some partitions."""

    def add(self, partitions: Iterable[Partition]) -> list[Partition]:
        """Read these from their positions on; returns those that it cannot read."""

    def remove(self, partition: Partition) -> None:
        """Stop reading a partition, if it is read here."""

    def clear(self) -> None:
        """Stop reading all, even after an interrupt in the middle of a call."""

    def take(self) -> list[Taken]:
        """The batches available now, without waiting."""

    def leave(self) -> list[Partition]:
        """Partitions that it has stopped reading since the last call."""

    def close(self) -> None:
        """Close what it holds open."""


def always_intact() -> bool:
    """`Taken.is_intact` of memory that nobody overwrites."""
    return True
