"""The doors to the shards of a broker on this host, as a reader uses them.

A door closes with its shard. Its partitions are then read over the wire. `find` opens the door
again, at most once in REOPEN_SECONDS.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol
from uuid import UUID

from shm.cluster import Node
from shm.kernels.reader.sleep import ReaderState
from shm.reader import LogReader
from smq.client.clock import SYSTEM_CLOCK, Clock
from smq.client.door.door import DoorUnavailable
from smq.client.errors import ChannelGone
from smq.client.names import TopicPartition
from smq.model.catalog import Catalog

REOPEN_SECONDS = 0.5


class ReadingDoor(Protocol):
    """The part of a door (smq.client.door.door) that a reader uses."""

    readers: dict[int, LogReader]
    closed: bool

    def catalog(self) -> Catalog:
        """The topics as of now."""

    def nodes(self) -> Sequence[Node]:
        """The nodes of the broker."""

    def fileno(self) -> int:
        """Readable when the shard rings or ends."""

    def arm(self) -> bool:
        """Ask for a bell at the next news; False: there is news already."""

    def disarm(self) -> bool:
        """After a sleep: whether there is news. Raises ChannelGone."""

    def sleep(self, reader: ReaderState, also: int, timeout_ms: int) -> bool:
        """Sleep until a reader of one log may have something, or `also` (-1: nothing) is readable.

        False: it is closed.
        """

    def watch(self, numbers: Iterable[int]) -> None:
        """Have the shard ring at new records of these partitions. Raises ChannelGone."""

    def close(self) -> None:
        """End the session."""


class FoundPartition(NamedTuple):
    """Where a partition is."""

    node: int
    log: int
    reader: LogReader
    number: int
    topic_id: UUID


class Doors:
    """A door for each node, opened when a partition of its logs is looked up.

    The first door is that of `first_node`: its catalog says where the partitions are.
    """

    def __init__(
        self,
        open_door: Callable[[int], ReadingDoor],
        clock: Clock = SYSTEM_CLOCK,
        first_node: int = 1,
    ) -> None:
        self._open_door, self._first_node = open_door, first_node
        self._clock = clock
        self._doors: dict[int, ReadingDoor] = {}
        self._watched: dict[int, set[int]] = {}
        self._tried_at: dict[int, float] = {}
        self._catalog: Catalog | None = None
        self.has_lost = False  # A door was dropped; reset by the code that read through it.

    def find(self, name: TopicPartition) -> FoundPartition | None:
        """Where a partition is; None: no door leads to it now."""
        some = next(iter(self._doors.values()), None) or self._open(self._first_node)
        if some is None:
            return None
        topic = some.catalog().by_name.get(name.topic)
        if topic is None or not 0 <= name.partition < topic.partition_count:
            return None
        log = topic.logs[name.partition]
        node = topic.node(name.partition, some.nodes()).id
        door = self._open(node)
        reader = None if door is None else door.readers.get(log)
        if reader is None:
            return None
        return FoundPartition(node, log, reader, topic.partition_numbers[name.partition], topic.id)

    def at(self, node: int) -> ReadingDoor | None:
        """The door to a node, if it is open."""
        return self._doors.get(node)

    def has_other_topics(self) -> bool:
        """Whether the catalog has changed since the last call."""
        some = next(iter(self._doors.values()), None)
        if some is None or some.catalog() is self._catalog:
            return False
        self._catalog = some.catalog()
        return True

    def logs(self) -> set[int]:
        """The logs that can be read now."""
        return {log for door in self._doors.values() for log in door.readers}

    def watch(self, numbers: Mapping[int, set[int]]) -> None:
        """Have each node ring at new records of these partitions, and of no others."""
        for node, door in list(self._doors.items()):
            wanted = numbers.get(node, set())
            if self._watched.get(node, set()) != wanted:
                self._watched[node] = wanted
                try:
                    door.watch(wanted)
                except ChannelGone:
                    self._drop(node)

    def arm(self) -> bool:
        """Ask all for bells; False: one has news already, or is gone."""
        return all(door.arm() for door in self._doors.values())

    def disarm(self) -> None:
        """After a sleep: drop the doors that are gone."""
        for node, door in list(self._doors.items()):
            try:
                door.disarm()
            except ChannelGone:
                self._drop(node)

    def filenos(self) -> list[int]:
        """Descriptors that become readable when a shard rings or ends."""
        return [door.fileno() for door in self._doors.values()]

    def close(self) -> None:
        """Close all."""
        for node in list(self._doors):
            self._drop(node)

    def _open(self, node: int) -> ReadingDoor | None:
        now = self._clock.monotonic_s()
        if node not in self._doors and now >= self._tried_at.get(node, 0) + REOPEN_SECONDS:
            self._tried_at[node] = now
            with suppress(DoorUnavailable):
                self._doors[node] = self._open_door(node)
        return self._doors.get(node)

    def _drop(self, node: int) -> None:
        self._watched.pop(node, None)
        self._doors.pop(node).close()
        self.has_lost = True
