"""Consumes topics: all their partitions, some of them, or those that a group assigns.

    with client.consumer("clicks", group="readers", start="earliest") as consumer:
        while True:
            with consumer.poll(timeout_s=1) as batch:
                for record in batch: ...
            consumer.commit()

`poll` lends a batch and moves the positions past it. The end of the `with` block, or the next
poll, gives the batch back. Only one thread may use a consumer. Heartbeats and asynchronous commits
have threads of their own. A forked process cannot use its parent's consumers.
"""

import os
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from datetime import datetime
from typing import Self

from smq.client.arguments import duration, offsets_by_partition
from smq.client.consuming.batch.batch import Batch
from smq.client.consuming.batch.chunk import Record
from smq.client.consuming.consumer_settings import (
    ISOLATION_LEVELS,
    ConsumerSettings,
    checked_topics,
)
from smq.client.consuming.group.commits import Committing
from smq.client.consuming.group.group_member import GroupMember
from smq.client.consuming.lending import Lending
from smq.client.consuming.positions import Positions
from smq.client.consuming.sharing import Sharing
from smq.client.consuming.silence import Silence
from smq.client.consuming.source.beginnings import Beginnings
from smq.client.consuming.source.local_source import LocalSource
from smq.client.consuming.source.reading import Reading
from smq.client.consuming.source.source import Partition
from smq.client.consuming.source.wire_source import WireSource
from smq.client.consuming.statistics import ConsumerStatistics
from smq.client.door.doors import Doors
from smq.client.errors import Closed, Overrun
from smq.client.kafka.offsets import READ_COMMITTED, Start, place_of, wanted_of
from smq.client.names import GroupOffsets, OffsetsIn, TopicPartition
from smq.client.reach import Reach
from smq.client.wait import wait_readable

SLEEP_SECONDS_MAX = 1.0  # So that a member that waits for records counts as polling.


class Consumer:
    """Reads all partitions of its topics, those that a group assigns, or those of `assign`."""

    def __init__(
        self, reach: Reach, topics: str | Sequence[str], settings: ConsumerSettings
    ) -> None:
        self._settings = settings
        self.clock = reach.clock
        self._topics = checked_topics(topics)
        self._pid = os.getpid()
        self._is_closed = False
        self._has_waited = False
        self._cluster = reach.cluster()
        group, every_s, deadline_s = settings.group, settings.auto_commit_s, reach.deadline_seconds
        self._committing = (
            None
            if group is None
            else Committing(reach.cluster, group, every_s, deadline_s, reach.clock)
        )
        level, bytes_max = ISOLATION_LEVELS[settings.isolation_level], settings.batch_bytes_max
        begin = wanted_of(settings.start) or place_of(settings.start)
        self._beginnings = Beginnings(self._cluster, begin, self._committing, isolation_level=level)
        wire = WireSource(
            self._cluster, bytes_max, deadline_s, self._beginnings, isolation_level=level
        )
        local = None
        if reach.open_door is not None:
            doors = Doors(reach.open_door, reach.clock, reach.node_id)
            local = LocalSource(doors, bytes_max, is_committed=level == READ_COMMITTED)
        inflated_bytes_max, topic_ids = settings.inflated_bytes_max, settings.topic_ids
        self._reading = Reading(local, wire, reach.clock, inflated_bytes_max, topic_ids)
        self._lending = Lending(self._reading, reach.payloads())
        self._positions = Positions(reach, self._cluster, self._beginnings, self._reading)
        self._member: GroupMember | None = None
        self._sharing: Sharing | None = None
        try:
            partitions = self._beginnings.partitions_of(self._topics)
            if group is not None and self._topics:
                self._member = GroupMember(reach, settings, self._topics)
            if self._committing is not None:
                shared = self._reading, self._beginnings, self._committing
                self._sharing = Sharing(*shared, self._member)
            if self._member is None and self._topics:
                self._positions.assign(partitions, whole=self._topics)
        except BaseException:
            self.close(commit=False)
            raise

    # --- partitions ------------------------------------------------------------------------------

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read these partitions and no others, from their committed offsets, else from `start`.

        Not for a consumer whose group assigns partitions. Raises NoSuchTopic, ValueError.
        """
        self._check()
        if self._member is not None:
            raise ValueError("assign: the group assigns the partitions of this consumer")
        self.give_back()
        self._positions.assign(partitions)

    def assignment(self) -> list[TopicPartition]:
        """The assigned partitions."""
        return self._positions.names()

    def position(self, topic: str, partition: int) -> int:
        """The offset of the next record."""
        return self._reading.position(self._partition(topic, partition).name)

    def seek(self, topic: str, partition: int, place: Start) -> None:
        """Continue at an offset, "earliest", "latest", or a time with a time zone."""
        self._check()
        name = self._partition(topic, partition).name
        self.give_back()
        self._positions.seek(name, place_of(place, "place"))

    def pause(self, topic: str, partition: int) -> None:
        """Give no records of a partition until `resume`; in a loop, from the next record on."""
        self._check()
        name = self._partition(topic, partition).name
        self._reading.pause([name])
        self._lending.leave(name)

    def resume(self, topic: str, partition: int) -> None:
        """Continue a paused partition."""
        self._check()
        name = self._partition(topic, partition).name
        self._reading.resume([name])
        self._lending.leave(name)

    def offsets_for_times(
        self, times: Mapping[tuple[str, int], datetime | int]
    ) -> dict[TopicPartition, int | None]:
        """The first offset at or after a time (with a zone, or in ms since 1970), by partition.

        None where no record is that late.
        """
        self._check()
        return self._beginnings.at_times(times)

    def find(self, place: Start) -> dict[TopicPartition, int]:
        """The offset of "earliest", "latest" or a time with a time zone in each assigned partition.

        The end, where no record is that late.
        """
        self._check()
        return self._positions.find(place_of(place, "place"))

    def lag(self) -> dict[TopicPartition, int]:
        """The distance in offsets from each partition's position to its end."""
        self._check()
        partitions = self._reading.partitions
        return {
            name: max(0, end - partitions[name].position)
            for name, end in self.find("latest").items()
        }

    def _partition(self, topic: str, partition: int) -> Partition:
        return self._positions.partition(topic, partition)

    # --- records ---------------------------------------------------------------------------------

    def poll(self, timeout_s: float = 1.0) -> Batch:
        """The available records, or those that arrive in time; else an empty batch.

        Releases the last batch. Raises Overrun if the ring has overtaken that, and BrokerError:
        NoSuchTopic, BrokerUnavailable, UnreadableBatch, BatchTooLarge, and the group's errors.
        After an interrupted poll, the next one returns its records.
        """
        batch = self._await(timeout_s)
        self._reading.is_given = True  # Uninterruptible with the return.
        return batch

    def poll_up_to(self, ends: Mapping[TopicPartition, int], timeout_s: float) -> Batch:
        """As `poll`, but stops waiting once all positions have reached their ends.

        Markers and records of aborted transactions move positions without yielding records.
        """
        batch = self._await(timeout_s, ends)
        self._reading.is_given = True  # Uninterruptible with the return.
        return batch

    def _await(self, timeout_s: float, ends: Mapping[TopicPartition, int] = {}) -> Batch:
        timeout_s = duration("timeout_s", timeout_s)
        self.give_back()
        now = self.clock.monotonic_s()
        deadline, spin_until = now + timeout_s, now + self._settings.spin_us / 1e6
        # If the last poll had to wait, this one probably must too, and checks as it falls asleep.
        sleeps = self._has_waited and timeout_s and not self._reading.is_torn
        batch = None if sleeps else self.take()
        self._has_waited = False
        while batch is None:
            now = self.clock.monotonic_s()
            if now >= deadline or (ends and self._positions.have_reached(ends)):
                return Batch([])
            if now >= spin_until:
                self._wait(deadline - now)
                self._has_waited = True
            batch = self.take()
        return batch

    def __iter__(self) -> Iterator[Record]:
        """Records as they arrive, without end: copies, which stay valid.

        The position is always after the last record given, also after `break` and for commits.
        """
        return self._follow(None)

    def follow(self, timeout_s: float | None = None) -> Iterator[Record]:
        """Records from the end on; stops when none has arrived for `timeout_s`.

        If a group assigns the partitions, it starts at the group's positions. Records are copies,
        as in a loop.
        """
        if timeout_s is not None:
            duration("timeout_s", timeout_s)
        self.seek_to_end()
        return self._follow(timeout_s)

    def seek_to_end(self) -> None:
        """Continue all partitions at their ends, unless a group assigns them."""
        if self._member is None:
            for topic, partition in self.assignment():
                self.seek(topic, partition, "latest")

    def _follow(self, timeout_s: float | None) -> Iterator[Record]:
        while True:
            batch = self._await(SLEEP_SECONDS_MAX if timeout_s is None else timeout_s)
            yield from self.walk(batch)
            if not batch and timeout_s is not None:
                return

    def read_until(
        self, ends: OffsetsIn, *, silence_s: float | None = None
    ) -> Generator[Record, None, None]:
        """Yields all records below these offsets: copies, as in a loop.

        They may be still to come. With `silence_s` they are not waited for longer than this since
        the last one came: then it raises BrokerError REQUEST_TIMED_OUT.

        Reads only the named partitions meanwhile, even paused ones. The end of the loop, also by
        `break`, restores the former ones. Raises TypeError, ValueError.
        """
        self._check()
        named = offsets_by_partition("ends", ends)
        for name in named:
            self._partition(*name)
        silence = None
        if silence_s is not None:
            silence = Silence(self.clock, duration("silence_s", silence_s))
        return self._read_until(named, silence)

    def _read_until(
        self, ends: dict[TopicPartition, int], silence: Silence | None
    ) -> Generator[Record, None, None]:
        self._check()
        try:
            while left := {each: end for each, end in ends.items() if self.position(*each) < end}:
                if silence is not None:
                    silence.check({each: (self.position(*each), left[each]) for each in left})
                self._reading.read_only(left)
                yield from self.walk(self._await(SLEEP_SECONDS_MAX, left), left)
        finally:
            self._reading.read_only(None)

    def walk(self, batch: Batch, ends: Mapping[TopicPartition, int] = {}) -> Iterator[Record]:
        """Release the last batch; iterate over copies of its records, below `ends` where given.

        Yields nothing if the ring has overtaken the batch: the next poll reads it again.
        """
        self._reading.is_given = False
        records = self._lending.copies(batch, ends)
        self._reading.is_given = True
        return records

    def take(self, *, may_ask: bool = True) -> Batch | None:
        """The records available now; None: there are none. Does not wait for any.

        It asks brokers for records that no ring has, unless it may not ask.
        """
        if self._sharing is not None:
            self._sharing.turn()
        if self._positions.is_look_due():
            self._positions.read_new()
        taken = self._reading.take(may_ask=may_ask)
        return self._lending.lend(taken) if taken else None

    def give_back(self) -> None:
        """Release the last batch. Raises Overrun."""
        self._check()
        self._lending.give_back()

    def given(self) -> None:
        """Confirm that the caller has the last taken batch; else the next call undoes the take."""
        self._reading.is_given = True

    def _wait(self, timeout_s: float) -> None:
        also = -1 if self._member is None else self._member.fileno()
        if self._reading.sleep(also, self.nap_seconds(timeout_s)):
            return
        filenos = self.fall_asleep()
        if filenos is not None:
            wait_readable(filenos, self.nap_seconds(timeout_s))

    # For event loops: `take`, sleep on the descriptors of `fall_asleep`, take again.

    def may_wait(self) -> bool:
        """Whether `take` may have to ask a broker first."""
        if not self._reading.is_local or self._positions.is_look_due():
            return True
        return bool(self._member and self._member.events)

    def fall_asleep(self) -> list[int] | None:
        """Descriptors that become readable when there may be records; None: there are some now."""
        filenos = self._reading.fall_asleep()
        if filenos is not None and self._member is not None:
            filenos.append(self._member.fileno())
        return filenos

    def nap_seconds(self, timeout_s: float) -> float:
        """How long to sleep at most before the next `take`."""
        return min(self._reading.nap_seconds(timeout_s), SLEEP_SECONDS_MAX)

    # --- the group -------------------------------------------------------------------------------

    def commit(self, offsets: OffsetsIn | None = None) -> None:
        """Commit the positions, or these offsets. Raises BrokerError."""
        self.commit_async(offsets).result()

    def commit_async(self, offsets: OffsetsIn | None = None) -> Future[None]:
        """Commit without waiting; the future raises BrokerError if the commit fails."""
        self._check()
        if self._sharing is None:
            raise ValueError("commit: only a consumer with a group can; name one with group=")
        return self._sharing.commit(
            None if offsets is None else offsets_by_partition("offsets", offsets)
        )

    def group_offsets(self, offsets: OffsetsIn | None = None) -> GroupOffsets:
        """The offsets that a transaction commits for our group: the positions, or these offsets."""
        self._check()
        if self._sharing is None or self._settings.group is None:
            raise ValueError("commit_offsets: only a consumer with a group can; name one, group=")
        named = (
            {name: each.position for name, each in self._reading.partitions.items()}
            if offsets is None
            else offsets_by_partition("offsets", offsets)
        )
        return GroupOffsets(self._settings.group, named, *self._sharing.membership)

    def committed(self) -> dict[TopicPartition, int]:
        """The group's committed offsets of the assigned partitions."""
        self._check()
        if self._committing is None:
            raise ValueError("committed: only a consumer with a group has that; name one, group=")
        return self._committing.fetch(self.assignment())

    # --- the rest --------------------------------------------------------------------------------

    @property
    def transport(self) -> str:
        """How records are read now: 'shared memory', or 'kafka' for at least one partition."""
        return "shared memory" if self._reading.is_local else "kafka"

    def statistics(self) -> ConsumerStatistics:
        """Counters of the records read so far."""
        rebalances = 0 if self._sharing is None else self._sharing.rebalances
        return ConsumerStatistics.of(self._reading.counts, self._beginnings.resets, rebalances)

    def _check(self) -> None:
        if self._is_closed:
            raise Closed("this consumer is closed")
        if os.getpid() != self._pid:
            raise Closed("this consumer is of the process that forked: make one in this process")
        self._lending.put_back()

    def close(self, *, commit: bool = True) -> None:
        """Commit if commits are automatic, leave the group, and close everything."""
        if self._is_closed or os.getpid() != self._pid:
            return
        self._lending.put_back()
        with suppress(Overrun):  # The next reader fetches it again.
            self._lending.release()
        if commit and self._sharing is not None:
            self._sharing.give_up(self.assignment())
        if self._committing is not None:
            self._committing.settle()  # While still a member.
        self._is_closed = True
        if self._member is not None:
            self._member.close()
        if self._committing is not None:
            self._committing.close()
        self._reading.close()
        self._cluster.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(commit=kind is None)
