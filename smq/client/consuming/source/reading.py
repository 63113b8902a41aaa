"""Reads partitions from the rings where these have what comes next, else over the wire.

    ring ──overtaken, seek, shard gone──► wire ──caught up, door open again──► ring

A partition is read by one source at a time and changes between them by itself, at the offset where
it stands; each change is counted. Where it begins is no change.

KeyboardInterrupt may break off whatever is done here. A partition's position is what counts: after
an interrupt the sources begin again where the partitions stand, and those of which something was
taken that nobody was given stand before that.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import wraps
from math import ceil
from typing import Concatenate, ParamSpec

from shm.kernels.reader.lend import F_ROW, F_START
from shm.kernels.record.records import B_BASE_OFFSET, B_LAST_OFFSET
from smq.client.clock import SYSTEM_CLOCK, Clock
from smq.client.consuming.batch.chunk import Chunk, cut
from smq.client.consuming.source.local_source import LocalSource
from smq.client.consuming.source.source import Partition, Taken
from smq.client.consuming.source.wire_source import WireSource
from smq.client.names import TopicPartition
from smq.model.errors import BrokerError, ErrorCode, PeerError
from smq.wire.codec import ZERO_UUID

P = ParamSpec("P")

RETURN_SECONDS = 0.5  # A partition on the wire that does not move looks for its ring so often.


@dataclass(slots=True)
class Counts:
    """What has been read so far; what is read again counts again."""

    records: int = 0
    records_from_rings: int = 0
    ring_to_wire: int = 0
    wire_to_ring: int = 0
    overruns: int = 0


Move = tuple[TopicPartition, int, int]
"""A partition, its positions before and after."""


Step = Callable[Concatenate["Reading", P], None]


def _or_begin_again(step: Step[P]) -> Step[P]:
    """If it is broken off, `take` begins again."""

    @wraps(step)
    def whole(reading: "Reading", /, *args: P.args, **keywords: P.kwargs) -> None:
        was_torn, reading.is_torn = reading.is_torn, True
        step(reading, *args, **keywords)
        reading.is_torn = was_torn

    return whole


class Reading:
    """Some partitions and how far they have been read. `local` is None away from the broker.

    moves     of the partitions whose records were taken last
    is_given  whether somebody has what was taken last; who gives it says so
    is_torn   whether the sources may read something else than the partitions, where they stand

    Invariant, unless it is torn: the sources have those partitions that are wanted, and no others.
    """

    def __init__(
        self, local: LocalSource | None, wire: WireSource, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self.partitions: dict[TopicPartition, Partition] = {}
        self.counts = Counts()
        self.is_given, self.is_torn = True, False
        self.moves: list[Move] = []
        self._local = local
        self._wire = wire
        self._clock = clock
        self._on_wire: dict[TopicPartition, Partition] = {}
        self._paused: set[TopicPartition] = set()
        self._only: frozenset[TopicPartition] | None = None  # If so, these, paused or not.
        self._returning: list[Partition] = []
        self._return_at = 0.0
        self._stopped: tuple[TopicPartition, int, BrokerError] | None = None
        self._wire_error: BrokerError | PeerError | None = None  # Yet to be raised.

    def close(self) -> None:
        """Close all that is open."""
        self._wire.close()
        if self._local is not None:
            self._local.close()

    @property
    def is_local(self) -> bool:
        """Whether everything is read from rings now."""
        return self._local is not None and not self._on_wire

    @_or_begin_again
    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these positions on, and no others."""
        self.drop(list(self.partitions))
        self._wire_error = None  # It was of what is read no longer.
        self.add(positions)

    @_or_begin_again
    def add(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these partitions too."""
        added = {name: Partition(name, position) for name, position in positions.items()}
        self.partitions |= added
        self._start(each for name, each in added.items() if self._is_wanted(name))

    @_or_begin_again
    def drop(self, names: Iterable[TopicPartition]) -> None:
        """Read these no longer."""
        for name in names:
            self._stop(self.partitions.pop(name))
            self._paused.discard(name)

    def seek(self, name: TopicPartition, position: int) -> None:
        """Go on elsewhere, in the topic as it is now."""
        self.partitions[name].topic_id = ZERO_UUID
        self.stand_at(name, position)

    @_or_begin_again
    def stand_at(self, name: TopicPartition, position: int) -> None:
        """Go on elsewhere in the topic that is read."""
        partition = self.partitions[name]
        self._stop(partition)
        partition.position = position
        if self._is_wanted(name):
            self._start([partition])

    @_or_begin_again
    def pause(self, names: Iterable[TopicPartition]) -> None:
        """Give nothing of these until they are resumed."""
        for name in names:
            self._paused.add(name)
            if not self._is_wanted(name):
                self._stop(self.partitions[name])

    @_or_begin_again
    def resume(self, names: Iterable[TopicPartition]) -> None:
        """Go on where they were paused."""
        wanted = list(names)
        resting = [name for name in wanted if not self._is_wanted(name)]
        self._paused.difference_update(wanted)
        self._start(self.partitions[name] for name in resting if self._is_wanted(name))

    def read_only(self, names: Iterable[TopicPartition] | None) -> None:
        """Read these and no others, whatever is paused, from the next `take` on; None: as before.

        No more than a note, so that it can be taken back whatever has happened meanwhile.
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
        """Count it if a partition has changed between ring and wire."""
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

    def take(self) -> list[Taken]:
        """Take the records that are there now, cut. Raises BrokerError.

        Their partitions go on behind them. They come again after `put_back`, unless `is_given`.
        """
        if self.is_torn:
            self._begin_again()
        self.moves = []
        self.is_given = False
        self._tell_left()
        if self._local is not None and self._on_wire:
            self._return(self._local)  # First: what is taken has not moved yet.
        taken = [] if self._local is None else self._take_from_rings(self._local)
        if self._on_wire:
            taken += self._take_from_wire(has_others=bool(taken))
        intact = [each for each in map(self._cut, taken) if each is not None]
        if not any(each.chunks for each in intact):
            self._tell_unreadable()
            return []
        return intact

    def _tell_left(self) -> None:
        """Raise what the last take has left to this one, which gave what others had."""
        if self._stopped is not None:
            self._tell_unreadable()
        if self._wire_error is not None:
            error, self._wire_error = self._wire_error, None
            raise error

    def _tell_unreadable(self) -> None:
        """Raise what stopped a partition, if it still stands there; others are not held up."""
        stopped, self._stopped = self._stopped, None
        if stopped is not None:
            name, position, error = stopped
            partition = self.partitions.get(name)
            if partition is not None and partition.position == position:
                raise error

    def put_back(self) -> None:
        """Have what was taken last come again, unless somebody was given it."""
        if self.is_given:
            return
        self.is_torn = True
        for name, before, after in self.moves:
            partition = self.partitions.get(name)
            if partition is not None and partition.position == after:
                partition.position = before
        self.is_given = True

    def position(self, name: TopicPartition) -> int:
        """Where a partition goes on: before what nobody was given yet. Only looks."""
        position = self.partitions[name].position
        moves = [] if self.is_given else self.moves
        befores = (before for each, before, after in moves if (each, after) == (name, position))
        return next(befores, position)

    def _begin_again(self) -> None:
        """Have the sources read the partitions from where they stand, whatever they read now."""
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
        """Undo the moves over records that were overtaken, but of partitions moved since."""
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
            self._wire_error = error  # Behind what the rings have given.
            return []
        self._returning += [partition for part in taken for partition, _ in part.ends]
        return taken

    def _return(self, local: LocalSource) -> None:
        """Have those go back to their rings that can."""
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
        """Cut what can be read of it, and move its partitions on; None: it was overtaken."""
        if taken.chunks is not None:
            return self._move_on(taken, taken.chunks)
        chunks, good = cut(taken.batches)
        if not taken.is_intact():
            taken.commit(0)
            return None
        taken = taken._replace(chunks=chunks)
        if good < taken.batches.facts.shape[1]:
            self._stopped = _unreadable(taken, good)
            taken = taken._replace(ends=_ends_before(taken, good))
        taken.commit(good)
        return self._move_on(taken, chunks)

    def _move_on(self, taken: Taken, chunks: list[Chunk]) -> Taken:
        records = sum(map(len, chunks))
        self.counts.records += records
        if taken.batches.is_lent:
            self.counts.records_from_rings += records
        for partition, position in taken.ends:
            move = partition.name, partition.position, position
            self.moves.append(move)  # First: an interrupt from here on has it put back.
            partition.position = position
        return taken

    def fall_asleep(self) -> list[int] | None:
        """What becomes readable when there may be something to take; None: there is already.

        Nothing is done on waking: whoever wakes looks at the rings at once. What rang is swallowed
        before the next sleep, and until then nobody rings again.
        """
        filenos = self._wire.filenos() if self._on_wire else []
        if self._local is None:
            return filenos
        self._local.doors.disarm()
        # What comes before the shards know that we sleep rings nobody: so look again.
        if not self._local.doors.arm() or self._local.is_ready():
            return None
        return [*filenos, *self._local.doors.filenos()]

    def sleep(self, also: int, timeout_s: float) -> bool:
        """Sleep until there may be something to take, or `also` is readable, or for so long.

        False: one call cannot wait for all of them; use `fall_asleep`.
        """
        if self._local is None or self._on_wire:
            return False
        return self._local.sleep(also, ceil(1000 * timeout_s))

    def nap_seconds(self, timeout_s: float) -> float:
        """How long to sleep at most: what failed is tried again, what is on the wire may return."""
        if self._on_wire and (pause := self._wire.retry_in_seconds()):
            return min(pause, timeout_s)
        return max(0.0, timeout_s)


def _ends_before(taken: Taken, good: int) -> list[tuple[Partition, int]]:
    """Where partitions go on when only the first so many batches could be cut."""
    rows, last_offsets = taken.batches.facts[[F_ROW, B_LAST_OFFSET], :good].tolist()
    ends = dict(zip(rows, last_offsets, strict=True))  # Of each partition its last one.
    by_name = {partition.name: partition for partition, _ in taken.ends}
    return [(by_name[taken.batches.names[row]], last + 1) for row, last in ends.items()]


def _unreadable(taken: Taken, batch: int) -> tuple[TopicPartition, int, BrokerError]:
    """Which partition stands before a batch that cannot be read, where, and the words for it."""
    facts = [B_BASE_OFFSET, B_LAST_OFFSET, F_ROW, F_START]
    first, last, row, start = taken.batches.facts[facts, batch].tolist()
    name = taken.batches.names[row]
    error = BrokerError(
        ErrorCode.CORRUPT_MESSAGE,
        f"{name.topic}-{name.partition} has a batch at offset {first} that cannot be read; "
        f"seek to {last + 1} to go on behind it",
    )
    return name, max(first, start), error
