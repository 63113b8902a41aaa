"""Reads each partition from its ring if that has the next record, else over the wire.

    ring ──overtaken, seek, shard gone──► wire ──caught up, door open again──► ring

One source at a time reads a partition. Partitions switch sources by themselves, at their positions.
Each switch is counted, except the first choice.

KeyboardInterrupt may break off any call here. The positions of the partitions are what counts:
after an interrupt the sources start again from these, and `put_back` moves positions back over
records that were taken but not given to the caller.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import wraps
from math import ceil
from typing import Concatenate, ParamSpec
from uuid import UUID

from shm.kernels.reader.lend import F_ROW, F_START
from shm.kernels.record.records import B_BASE_OFFSET, B_LAST_OFFSET
from smq.client.clock import SYSTEM_CLOCK, Clock
from smq.client.consuming.batch.chunk import Chunk, CutStop, PollRoom, cut
from smq.client.consuming.consumer_settings import INFLATED_BYTES_MAX
from smq.client.consuming.source.local_source import LocalSource
from smq.client.consuming.source.source import Partition, Taken
from smq.client.consuming.source.wire_source import WireSource
from smq.client.errors import BatchTooLarge, UnreadableBatch
from smq.client.names import TopicPartition
from smq.model.errors import BrokerError, PeerError
from smq.wire.codec import ZERO_UUID

P = ParamSpec("P")

RETURN_SECONDS = 0.5  # How often a partition on the wire without new records looks for its ring.


@dataclass(slots=True)
class ReadCounts:
    """Counters of the records read so far. Records that are read again count again."""

    records: int = 0
    records_from_rings: int = 0
    ring_to_wire: int = 0
    wire_to_ring: int = 0
    overruns: int = 0


Move = tuple[TopicPartition, int, int]
"""A partition, and its positions before and after."""


Step = Callable[Concatenate["Reading", P], None]


def _or_begin_again(step: Step[P]) -> Step[P]:
    """If the step is broken off, the next `take` starts the sources again."""

    @wraps(step)
    def whole(reading: "Reading", /, *args: P.args, **keywords: P.kwargs) -> None:
        was_torn, reading.is_torn = reading.is_torn, True
        step(reading, *args, **keywords)
        reading.is_torn = was_torn

    return whole


class Reading:
    """Some partitions and their positions. `local` is None if the broker is on another host.

    moves     the moves of the last take
    is_given  whether the caller has what was taken last; the code that hands it over sets this
    is_torn   whether the sources may disagree with the partitions and their positions

    Invariant, unless is_torn: the sources read exactly the partitions that are wanted.
    """

    def __init__(
        self,
        local: LocalSource | None,
        wire: WireSource,
        clock: Clock = SYSTEM_CLOCK,
        inflated_bytes_max: int = INFLATED_BYTES_MAX,
        topic_ids: Mapping[str, UUID] = {},
    ) -> None:
        self._topic_ids = topic_ids  # Of topics that no other of their name may replace.
        self.partitions: dict[TopicPartition, Partition] = {}
        self.counts = ReadCounts()
        self.is_given, self.is_torn = True, False
        self.moves: list[Move] = []
        self._local = local
        self._wire = wire
        self._clock = clock
        self._on_wire: dict[TopicPartition, Partition] = {}
        self._paused: set[TopicPartition] = set()
        self._only: frozenset[TopicPartition] | None = (
            None  # If set, only these are read, paused or not.
        )
        self._returning: list[Partition] = []
        self._return_at = 0.0
        self._stopped: tuple[TopicPartition, int, BrokerError] | None = None
        self._wire_error: BrokerError | PeerError | None = None  # To be raised by the next take.
        self._room = PollRoom(inflated_bytes_max)
        self._waiting: list[TopicPartition] = []  # The last take had no room for any of theirs.

    def close(self) -> None:
        """Close the sources."""
        self._wire.close()
        if self._local is not None:
            self._local.close()

    @property
    def is_local(self) -> bool:
        """Whether all partitions are read from rings now."""
        return self._local is not None and not self._on_wire

    @_or_begin_again
    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these positions on, and no others."""
        self.drop(list(self.partitions))
        self._wire_error = None  # It concerns what is no longer read.
        self.add(positions)

    @_or_begin_again
    def add(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these partitions as well."""
        added = {
            name: Partition(name, position, self._topic_ids.get(name.topic, ZERO_UUID))
            for name, position in positions.items()
        }
        self.partitions |= added
        self._start(each for name, each in added.items() if self._is_wanted(name))

    @_or_begin_again
    def drop(self, names: Iterable[TopicPartition]) -> None:
        """Stop reading these."""
        for name in names:
            self._stop(self.partitions.pop(name))
            self._paused.discard(name)

    def seek(self, name: TopicPartition, position: int) -> None:
        """Continue at another position, in the topic as it is now."""
        self.partitions[name].topic_id = self._topic_ids.get(name.topic, ZERO_UUID)
        self.stand_at(name, position)

    @_or_begin_again
    def stand_at(self, name: TopicPartition, position: int) -> None:
        """Continue at another position of the same topic."""
        partition = self.partitions[name]
        self._stop(partition)
        partition.position = position
        if self._is_wanted(name):
            self._start([partition])

    @_or_begin_again
    def pause(self, names: Iterable[TopicPartition]) -> None:
        """Return no records of these until `resume`."""
        for name in names:
            self._paused.add(name)
            if not self._is_wanted(name):
                self._stop(self.partitions[name])

    @_or_begin_again
    def resume(self, names: Iterable[TopicPartition]) -> None:
        """Continue where they were paused."""
        wanted = list(names)
        resting = [name for name in wanted if not self._is_wanted(name)]
        self._paused.difference_update(wanted)
        self._start(self.partitions[name] for name in resting if self._is_wanted(name))

    def read_only(self, names: Iterable[TopicPartition] | None) -> None:
        """From the next `take` on, read these and no others, paused or not; None: as before.

        It only records them, so that a `finally` can undo it after any error.
        """
        only = None if names is None else frozenset(names)
        if only != self._only:
            self._only, self.is_torn = only, True

    def _is_wanted(self, name: TopicPartition) -> bool:
        return name not in self._paused if self._only is None else name in self._only

    def _start(self, partitions: Iterable[Partition]) -> None:
        wanted = list(partitions)
        others = wanted if self._local is None else self._local.add(wanted)
        self._go_to_wire(others)
        for partition in wanted:
            self._note(partition)

    def _go_to_wire(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            self._on_wire[partition.name] = partition
            self._wire.add([partition])
            self._note(partition)

    def _note(self, partition: Partition) -> None:
        """Count a change between ring and wire."""
        was_on_wire, partition.is_on_wire = partition.is_on_wire, partition.name in self._on_wire
        if was_on_wire is False and partition.is_on_wire:
            self.counts.ring_to_wire += 1
        elif was_on_wire and not partition.is_on_wire:
            self.counts.wire_to_ring += 1

    def _stop(self, partition: Partition) -> None:
        if self._on_wire.pop(partition.name, None) is not None:
            self._wire.remove(partition)
        elif self._local is not None:
            self._local.remove(partition)

    def take(self, *, may_ask: bool = True) -> list[Taken]:
        """Take the available records, cut; without `may_ask`, those in rings alone.

        Raises BrokerError. Moves their partitions past them. They come again after `put_back`,
        unless `is_given`.
        """
        if self.is_torn:
            self._begin_again()
        self.moves = []
        self.is_given = False
        self._tell_left()
        if self._local is not None and self._on_wire:
            self._return(self._local)  # First: nothing taken has moved yet.
        taken = [] if self._local is None else self._take_from_rings(self._local)
        if self._on_wire and may_ask:  # A door may just have been lost.
            taken += self._take_from_wire(has_others=bool(taken))
        self._room.renew()
        if self._waiting:  # They come first now.
            ranks = {name: rank for rank, name in enumerate(self._waiting)}
            taken.sort(
                key=lambda each: min(ranks.get(name, len(ranks)) for name in _names_of(each))
            )
            self._waiting = []
        intact = [each for each in map(self._cut, taken) if each is not None]
        if not any(each.chunks for each in intact):
            self._tell_unreadable()
            return []
        return intact

    def _tell_left(self) -> None:
        """Raise an error that the last take met while it returned other records first."""
        if self._stopped is not None:
            self._tell_unreadable()
        if self._wire_error is not None:
            error, self._wire_error = self._wire_error, None
            raise error

    def _tell_unreadable(self) -> None:
        """Raise the error of a partition before an unreadable batch, if it is still there."""
        stopped, self._stopped = self._stopped, None
        if stopped is not None:
            name, position, error = stopped
            partition = self.partitions.get(name)
            if partition is not None and partition.position == position:
                raise error

    def put_back(self) -> None:
        """Undo the last take, unless the caller has its records."""
        if self.is_given:
            return
        self.is_torn = True
        for name, before, after in self.moves:
            partition = self.partitions.get(name)
            if partition is not None and partition.position == after:
                partition.position = before
        self.is_given = True

    def position(self, name: TopicPartition) -> int:
        """A partition's position, before records that the caller does not have yet."""
        position = self.partitions[name].position
        moves = [] if self.is_given else self.moves
        befores = (before for each, before, after in moves if (each, after) == (name, position))
        return next(befores, position)

    def _begin_again(self) -> None:
        """Start the sources again, from the partitions' positions."""
        self._paused &= self.partitions.keys()
        reading = {name: each for name, each in self.partitions.items() if self._is_wanted(name)}
        self._on_wire = {name: each for name, each in reading.items() if name in self._on_wire}
        self._wire.clear()
        self._wire.add(self._on_wire.values())
        on_rings = [each for name, each in reading.items() if name not in self._on_wire]
        if self._local is not None:
            self._local.clear()
        self._start(on_rings)
        self.is_torn = False

    def go_back(self, moves: Iterable[Move]) -> None:
        """Undo moves over records that were overtaken, except of partitions that moved since."""
        self.counts.overruns += 1
        for name, before, after in moves:
            partition = self.partitions.get(name)
            if partition is not None and partition.position == after:
                self.stand_at(name, before)

    def _take_from_rings(self, local: LocalSource) -> list[Taken]:
        if left := local.leave():
            self._go_to_wire(left)
        return local.take()

    def _take_from_wire(self, *, has_others: bool) -> list[Taken]:
        try:
            taken = self._wire.take()
        except (BrokerError, PeerError) as error:
            if not has_others:
                raise
            self._wire_error = error  # After the records from the rings.
            return []
        self._returning += [partition for part in taken for partition, _ in part.ends]
        return taken

    def _return(self, local: LocalSource) -> None:
        """Move partitions back to their rings, where these have the next record."""
        now = self._clock.monotonic_s()
        if now >= self._return_at:
            self._return_at = now + RETURN_SECONDS
            self._returning = list(self._on_wire.values())
        if not self._returning:
            return
        on_wire = (each for each in self._returning if self._on_wire.get(each.name) is each)
        asking = {each.name: each for each in on_wire}
        self._returning = []
        refused = {each.name for each in local.add(asking.values())}
        for name in asking.keys() - refused:
            self._wire.remove(self._on_wire.pop(name))
            self._note(asking[name])

    def _cut(self, taken: Taken) -> Taken | None:
        """Cut the readable batches of it, and move its partitions on; None: it was overtaken."""
        if taken.chunks is not None:
            return self._move_on(taken, taken.chunks)
        chunks, good = cut(taken.batches, self._room)
        if not taken.is_intact():
            taken.commit(0)
            return None
        taken = taken._replace(chunks=chunks)
        if good < taken.batches.facts.shape[1]:
            if self._room.stop is CutStop.FULL:
                self._waiting += _names_of(taken) if good == 0 else ()
            else:
                self._stopped = _unreadable(taken, good, self._room)
            taken = taken._replace(ends=_ends_before(taken, good))
        taken.commit(good)
        return self._move_on(taken, chunks)

    def _move_on(self, taken: Taken, chunks: list[Chunk]) -> Taken:
        records = sum(map(len, chunks))
        self.counts.records += records
        if taken.batches.is_lent:
            self.counts.records_from_rings += records
        for partition, position in taken.ends:
            # A commit of a position that has gone back lets others read records again.
            assert position >= partition.position
            move = partition.name, partition.position, position
            self.moves.append(move)  # First: an interrupt from here on has it put back.
            partition.position = position
        return taken

    def fall_asleep(self) -> list[int] | None:
        """Descriptors that become readable when there may be records; None: there are some now.

        Waking needs no call: the bells are discarded before the next sleep, and until then no shard
        rings again.
        """
        filenos = self._wire.filenos() if self._on_wire else []
        if self._local is None:
            return filenos
        self._local.doors.disarm()
        # Records that arrive before the shards know that we sleep ring no bell: look again.
        if not self._local.doors.arm() or self._local.is_ready():
            return None
        return [*filenos, *self._local.doors.filenos()]

    def sleep(self, also: int, timeout_s: float) -> bool:
        """Sleep until there may be records, `also` is readable, or the time is over.

        False: one call cannot wait for all of them; use `fall_asleep`.
        """
        if self._local is None or self._on_wire:
            return False
        return self._local.sleep(also, ceil(1000 * timeout_s))

    def nap_seconds(self, timeout_s: float) -> float:
        """How long to sleep at most: until failed fetches are to be repeated."""
        if self._on_wire and (pause := self._wire.retry_in_seconds()):
            return min(pause, timeout_s)
        return max(0.0, timeout_s)


def _ends_before(taken: Taken, good: int) -> list[tuple[Partition, int]]:
    """Where partitions continue if only the first batches could be cut."""
    rows, last_offsets = taken.batches.facts[[F_ROW, B_LAST_OFFSET], :good].tolist()
    ends = dict(zip(rows, last_offsets, strict=True))  # The last one of each partition.
    by_name = {partition.name: partition for partition, _ in taken.ends}
    return [(by_name[taken.batches.names[row]], last + 1) for row, last in ends.items()]


def _names_of(taken: Taken) -> Iterator[TopicPartition]:
    return (partition.name for partition, _ in taken.ends)


def _unreadable(
    taken: Taken, batch: int, room: PollRoom
) -> tuple[TopicPartition, int, BrokerError]:
    """A partition, its position before a batch that cannot be read, and the error for it."""
    facts = [B_BASE_OFFSET, B_LAST_OFFSET, F_ROW, F_START]
    first, last, row, start = taken.batches.facts[facts, batch].tolist()
    name = taken.batches.names[row]
    offsets = first, last + 1
    if room.stop is CutStop.BEYOND:
        return name, max(first, start), BatchTooLarge(name, offsets, room.bytes_max)
    return name, max(first, start), UnreadableBatch(name, offsets)
