"""Reads the partitions of one log in place, in its ring."""

from collections.abc import Iterable
from functools import partial

import numpy as np

from shm.kernels.reader.lend import (
    CURSOR_AWAY,
    CURSOR_BOUND,
    CURSOR_ENTRY,
    CURSOR_GENERATION,
    CURSOR_MOVED,
    CURSOR_WORDS,
    F_FIELDS,
    F_POSITION,
    F_ROW,
    OVERTAKEN,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    W_AFTER,
    W_AWAY,
    W_FIELDS,
    W_HERE,
    W_LIMIT,
    W_MOVED,
    W_NEXT,
    W_NUMBER,
    W_SEEKING,
    W_SLOT,
    W_STATE,
    has_from,
    lend_batches,
    place_rows,
)
from shm.kernels.reader.lend_few import NOT_FEW, lend_few, new_few
from shm.kernels.reader.sleep import ReaderState
from shm.kernels.record.records import B_LAST_OFFSET
from shm.reader import LogReader
from smq.client.consuming.batch.chunk import Chunk, PlacedBatches
from smq.client.consuming.source.source import Partition, Taken
from smq.client.door.doors import ReadingDoor

BATCHES_MAX = 256  # Lent per step: the facts of one batch fit on few pages.
_FAR = np.iinfo(np.int64).max


class Lane:
    """Reads partitions of a log. Each has a column of `_wanted`, sorted by partition number.

    Invariant: the ring has the next record of each partition, or will get it.
    """

    def __init__(self, log: LogReader, batch_bytes_max: int, *, is_committed: bool = False) -> None:
        self._memory = log.memory.memory
        self._ring = log.memory.ring
        self._bytes_max = batch_bytes_max
        self.partitions: list[Partition] = []
        self._names = [partition.name for partition in self.partitions]
        self._wanted = np.empty((W_FIELDS, 0), np.int64)
        self._cursor = np.zeros(CURSOR_WORDS, np.int64)
        self._cursor[[CURSOR_ENTRY, CURSOR_GENERATION]] = _FAR, -1
        self._cursor[CURSOR_BOUND] = READ_COMMITTED if is_committed else READ_UNCOMMITTED
        self._before = _FAR
        self._facts = np.empty((F_FIELDS, BATCHES_MAX), np.int64)
        self._few = new_few()

    def numbers(self) -> list[int]:
        """The partitions' numbers, as frames have them."""
        numbers: list[int] = self._wanted[W_NUMBER].tolist()
        return numbers

    def add(self, partitions: Iterable[tuple[int, Partition]]) -> list[Partition]:
        """Read these, by their numbers; returns those whose next record the ring has lost."""
        added = list(partitions)
        numbers = self._wanted[W_NUMBER].tolist()
        rows = sorted(
            [*zip(numbers, self.partitions, strict=True), *added], key=lambda each: each[0]
        )
        states = dict(zip(numbers, self._wanted[W_STATE].tolist(), strict=True))
        self._set([partition for _, partition in rows])
        self._wanted = np.empty((W_FIELDS, len(rows)), np.int64)
        self._wanted[W_NUMBER] = [number for number, _ in rows]
        self._wanted[W_SLOT] = self._wanted[W_LIMIT] = -1
        self._wanted[W_STATE] = [states.get(number, W_SEEKING) for number, _ in rows]
        self._wanted[W_NEXT] = [partition.position for partition in self.partitions]
        self._wanted[W_AFTER] = self._wanted[W_NEXT]
        return self._place()

    def remove(self, partition: Partition) -> None:
        """Stop reading a partition."""
        if partition in self.partitions:
            self._keep(np.array([each is not partition for each in self.partitions]))

    def take(self) -> tuple[Taken | None, list[Partition]]:
        """The next batches; and the partitions that it stopped reading because the ring lost
        them."""
        gone = self._leave_away()
        state = self._wanted, self._cursor, *self._few
        count = lend_few(self._memory, self._ring, *state, self._bytes_max)
        if count > 0:
            return self._taken_few(count), gone
        if count == NOT_FEW:
            count = self._lend()
        if count == OVERTAKEN:
            self._wanted[W_STATE] = W_SEEKING
            gone += self._place()
            count = self._lend()
        if count == OVERTAKEN:  # Again: the ring moves faster than we read.
            self._wanted[W_STATE] = self._cursor[CURSOR_AWAY] = W_AWAY
        if count <= 0:
            return None, gone + self._leave_away()
        return self._taken(self._facts[:, :count].copy()), gone

    def is_ready(self) -> bool:
        """Whether `take` would give something."""
        count = self._lend()
        self._cursor[CURSOR_ENTRY] = self._before
        return count != 0 or self._cursor.item(CURSOR_AWAY) != 0

    def sleep(self, door: ReadingDoor, also: int, timeout_ms: int) -> bool:
        """See ReadingDoor."""
        reader = ReaderState(self._memory, self._wanted, self._cursor, self._facts)
        return door.sleep(reader, also, timeout_ms)

    def _lend(self) -> int:
        self._before = self._cursor.item(CURSOR_ENTRY)
        state = self._wanted, self._cursor, self._facts
        return int(lend_batches(self._memory, *state, self._bytes_max))

    def _taken_few(self, count: int) -> Taken:
        facts, columns, counts, told = self._few
        records, position, moved, *moves = told.tolist()
        is_lent = True
        batches = PlacedBatches(self._ring, facts[:, :count].copy(), self._names, is_lent)
        chunk = Chunk(batches, columns[:, :records].copy(), counts[:count].copy())
        ends = [(self.partitions[moves[i]], moves[i + 1]) for i in range(0, 2 * moved, 2)]
        is_intact = partial(has_from, self._memory, position)
        return Taken(batches, ends, _has_committed, is_intact, [chunk])

    def _taken(self, facts: np.ndarray) -> Taken:
        moved = self._wanted[W_MOVED, : self._cursor.item(CURSOR_MOVED)].tolist()
        after = self._wanted[W_AFTER]
        ends = [(self.partitions[row], after.item(row)) for row in moved]
        batches = PlacedBatches(self._ring, facts, self._names, is_lent=True)
        is_intact = partial(has_from, self._memory, facts.item(F_POSITION, 0))
        return Taken(batches, ends, partial(self._commit, facts), is_intact)

    def _commit(self, facts: np.ndarray, good: int) -> None:
        if good == facts.shape[1]:
            self._wanted[W_NEXT] = self._wanted[W_AFTER]
            return
        for row, last_offset in facts[[F_ROW, B_LAST_OFFSET], :good].T.tolist():
            self._wanted[W_NEXT, row] = last_offset + 1
        self._cursor[CURSOR_ENTRY] = self._before

    def _place(self) -> list[Partition]:
        place_rows(self._memory, self._wanted, self._cursor)
        return self._leave_away()

    def _leave_away(self) -> list[Partition]:
        """Drop partitions whose next record the ring has lost."""
        if not self._cursor.item(CURSOR_AWAY):
            return []
        self._cursor[CURSOR_AWAY] = 0
        here = self._wanted[W_STATE] == W_HERE
        away = [each for each, stays in zip(self.partitions, here, strict=True) if not stays]
        self._keep(here)
        return away

    def _keep(self, kept: np.ndarray) -> None:
        self._wanted = np.ascontiguousarray(self._wanted[:, kept])
        self._set([each for each, stays in zip(self.partitions, kept, strict=True) if stays])

    def _set(self, partitions: list[Partition]) -> None:
        self.partitions = partitions
        self._names = [partition.name for partition in partitions]


def _has_committed(_good: int) -> None:
    """Nothing to do: the kernel cuts all batches and commits them."""
