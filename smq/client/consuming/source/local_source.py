"""Reads records from the rings of a broker on this host."""

from collections.abc import Iterable

from smq.client.consuming.source.lane import Lane
from smq.client.consuming.source.source import Partition, Taken
from smq.client.door.doors import Doors


class LocalSource:
    """Reads partitions in shared memory, with a lane for each log.

    If `is_committed`, ranges that may contain records of aborted transactions, or that lie far
    behind an open one, are read over the wire.
    """

    def __init__(self, doors: Doors, batch_bytes_max: int, *, is_committed: bool = False) -> None:
        self.doors = doors
        self._bytes_max, self._is_committed = batch_bytes_max, is_committed
        self._lanes: dict[int, Lane] = {}
        self._nodes: dict[int, int] = {}  # By log.
        self._left: list[Partition] = []

    def add(self, partitions: Iterable[Partition]) -> list[Partition]:
        """Read these from their positions on; returns those that the rings do not have, and those
        whose topic was created again: the wire source finds their new positions.
        """
        self._leave_lost()  # First: a door that is opened again leads to other memory.
        by_log: dict[int, list[tuple[int, Partition]]] = {}
        wanted, refused = dict.fromkeys(partitions), []
        for partition in wanted:
            found = self.doors.find(partition.name)
            if found is None or not partition.is_in(found.topic_id):
                refused.append(partition)
                continue
            if found.log not in self._lanes:
                self._lanes[found.log] = Lane(
                    found.reader, self._bytes_max, is_committed=self._is_committed
                )
                self._nodes[found.log] = found.node
            by_log.setdefault(found.log, []).append((found.number, partition))
        for log, numbered in by_log.items():
            for partition in self._lanes[log].add(numbered):  # It may have been read before.
                (refused if partition in wanted else self._left).append(partition)
        self._watch()
        return refused

    def remove(self, partition: Partition) -> None:
        """Stop reading a partition, if it is read here."""
        self._left = [each for each in self._left if each is not partition]
        for lane in self._lanes.values():
            lane.remove(partition)
        self._watch()

    def clear(self) -> None:
        """Stop reading all. An interrupted lane may be inconsistent, or ahead of its positions."""
        self._lanes.clear()
        self._left.clear()

    def _watch(self) -> None:
        numbers: dict[int, set[int]] = {}
        for log, lane in self._lanes.items():
            numbers.setdefault(self._nodes[log], set()).update(lane.numbers())
        self.doors.watch(numbers)

    def take(self) -> list[Taken]:
        """The batches that there are now."""
        taken = []
        for lane in self._lanes.values():
            found, gone = lane.take()
            self._left += gone
            if found is not None:
                taken.append(found)
        return taken

    def is_ready(self) -> bool:
        """Whether there is anything to take or to leave. Notices deleted topics."""
        return self._has_to_leave() or any(lane.is_ready() for lane in self._lanes.values())

    def sleep(self, also: int, timeout_ms: int) -> bool:
        """Sleep until there may be something to take or to leave, or `also` is readable.

        False: it cannot sleep, for it reads several logs, or has something to leave.
        """
        if len(self._lanes) != 1 or self._has_to_leave():
            return False
        ((log, lane),) = self._lanes.items()
        door = self.doors.at(self._nodes[log])
        return door is not None and lane.sleep(door, also, timeout_ms)

    def _has_to_leave(self) -> bool:
        if self.doors.has_other_topics():
            self._leave_deleted()
        return self.doors.has_lost or bool(self._left)

    def leave(self) -> list[Partition]:
        """Partitions that it has stopped reading: the ring lost them, or shard or topic ended."""
        self._leave_lost()
        if not self._left:
            return []
        left, self._left = self._left, []
        self._watch()
        return left

    def _leave_lost(self) -> None:
        if self.doors.has_lost:
            self.doors.has_lost = False
            for log in self._lanes.keys() - self.doors.logs():
                self._left += self._lanes.pop(log).partitions

    def _leave_deleted(self) -> None:
        self._leave_lost()
        for lane in self._lanes.values():
            for number, partition in zip(lane.numbers(), list(lane.partitions), strict=True):
                found = self.doors.find(partition.name)
                if found is None or found.number != number:
                    lane.remove(partition)
                    self._left.append(partition)

    def close(self) -> None:
        """Close the doors."""
        self._lanes.clear()
        self.doors.close()
