"""The idempotent producers of a log, in the table of shm.kernels.log.producers.

Clients decide how many there are. So the table is bounded and forgets the oldest first, producers
that are silent for producer.id.expiration.ms expire, and no step of the loop handles all of them.
"""

from collections.abc import Iterator

import numpy as np

from shm.kernels.log.producers import (
    H_CAPACITY,
    H_COUNT,
    H_NEWEST,
    H_OLDEST,
    H_TOP,
    PRODUCER_COLUMNS,
    R_BATCH_COUNT,
    R_BATCHES,
    R_LAST_MS,
    R_NEWER,
    R_NEWEST,
    R_OLDER,
    R_PARTITION,
    clip_producers,
    expire_producers,
    file_producers,
    forget_partitions,
    producer_row,
    restore_producers,
)
from shm.producer_table import new_producers

# Per log, each for one partition: 64 MB, and as much for each checkpoint. Apache Kafka has no
# bound, and runs out of memory.
PRODUCERS_MAX = 1 << 18
ROWS_AT_ONCE = 4096  # A megabyte to copy, or as many rows to examine: half a millisecond.


class Producers:
    """The table of a log in the kernels' form, and its operations other than appends.

    Invariants: the rows in use are those in the list by age; none is above H_TOP.
    """

    def __init__(self, key: bytes, capacity: int = PRODUCERS_MAX) -> None:
        self.table = new_producers(capacity, key)
        self.copied_at_once = ROWS_AT_ONCE
        self._gone: set[int] = set()  # Partitions whose rows may still be there …
        self._swept_to = 1  # … from this row on.

    def __len__(self) -> int:
        return int(self.table[0, H_COUNT])

    def invariants(self) -> None:
        """Raise AssertionError when the table is not as the class says."""
        header, rows = self.table[0], self.table[: self.end]
        assert 0 <= header[H_COUNT] <= header[H_TOP] <= header[H_CAPACITY]
        used = np.flatnonzero(rows[1:, R_PARTITION]) + 1
        assert len(used) == header[H_COUNT]
        for begin, forth, back in ((H_OLDEST, R_NEWER, R_OLDER), (H_NEWEST, R_OLDER, R_NEWER)):
            following = rows[used, forth]
            assert (rows[following[following > 0], back] == used[following > 0]).all()
            assert np.count_nonzero(following) == max(0, len(used) - 1)
            assert rows[header[begin], back] == 0 if len(used) else header[begin] == 0

    @property
    def end(self) -> int:
        """The row after the last that was ever used."""
        return int(self.table[0, H_TOP]) + 1

    def newest(self, number: int, producer_id: int) -> int:
        """The offset of a producer's newest batch in a partition; -1: it is not known."""
        row = producer_row(self.table, number, producer_id)
        if not row or not self.table[row, R_BATCH_COUNT]:
            return -1
        return int(self.table[row, R_BATCHES + 4 * self.table[row, R_NEWEST] + 2])

    def rows_of(self, numbers: list[int]) -> Iterator[dict[int, np.ndarray]]:
        """The rows of these partitions' producers, by partition: one piece of the table after the
        other, and others may be served between two."""
        places = np.array(numbers, np.int64) + 1
        for first in range(1, self.end, ROWS_AT_ONCE):
            partitions = self.table[first : min(self.end, first + ROWS_AT_ONCE), R_PARTITION]
            rows = np.flatnonzero(np.isin(partitions, places))
            rows = rows[np.argsort(partitions[rows], kind="stable")]
            there, starts = np.unique(partitions[rows], return_index=True)
            pieces = np.split(rows + first, starts[1:])
            yield dict(zip((there - 1).tolist(), pieces, strict=False))

    def expire(self, oldest_ms: int) -> int:
        """Forget some producers that have been silent since `oldest_ms`; returns how many. Call it
        often."""
        return int(expire_producers(self.table, oldest_ms, ROWS_AT_ONCE))

    def drop_partitions(self, numbers: set[int]) -> None:
        """Note that these partitions were deleted: sweep() forgets their producers."""
        if numbers and len(self):
            self._gone |= numbers
            self._swept_to = 1
            self.sweep()

    def sweep(self) -> None:
        """Forget the producers of deleted partitions among some rows. Call it often."""
        if not self._gone:
            return
        end = min(self.end, self._swept_to + ROWS_AT_ONCE)
        gone = np.array(sorted(self._gone), np.int64)
        forget_partitions(self.table, self._swept_to, end, gone)
        self._swept_to = end
        if end == self.end:
            self._gone.clear()

    def forget_now(self, number: int) -> None:
        """Forget a partition's producers before others of it come."""
        forget_partitions(self.table, 1, self.end, np.array([number]))
        self._gone.discard(number)

    @property
    def room(self) -> int:
        """How many more it takes without forgetting one."""
        return int(self.table[0, H_CAPACITY]) - len(self)

    def clip(self, numbers: np.ndarray, ends: np.ndarray) -> None:
        """Forget batches that the log does not hold: a retry of them must be appended.

        `numbers` are those of all partitions, sorted; `ends` are their log ends.
        """
        clip_producers(self.table, numbers, ends)

    def restore(self, rows: np.ndarray) -> None:
        """Restore the producers from a checkpoint."""
        order = np.argsort(rows[:, R_LAST_MS], kind="stable")
        restore_producers(self.table, rows[order])

    def copy(self) -> "ProducersCopy":
        """Begin to copy the table, piece by piece."""
        return ProducersCopy(self.table, self.end, self.copied_at_once)


class ProducersCopy:
    """A copy of a table as of its beginning, made while producers continue.

    take() is for the loop,
    file() for the background thread. file() removes later changes from each piece: batches at or
    above the partitions' ends at the beginning.
    """

    def __init__(self, table: np.ndarray, end: int, at_once: int) -> None:
        self._table, self._next, self._end, self._at_once = table, 1, end, at_once
        self._filed = np.empty((end - 1, PRODUCER_COLUMNS), np.int64)  # Allocated as written.
        self._count = 0

    @property
    def is_whole(self) -> bool:
        """Whether take() has copied all rows."""
        return self._next >= self._end

    def take(self) -> np.ndarray:
        """Copy the next rows, which may be none."""
        first = self._next
        self._next = min(self._end, first + self._at_once)
        return self._table[first : self._next].copy()

    def file(self, piece: np.ndarray, numbers: np.ndarray, ends: np.ndarray) -> None:
        """File a piece; `numbers`, sorted, and `ends` are those at the beginning."""
        assert self._count + len(piece) <= len(self._filed)
        filed = self._filed[self._count :]
        self._count += int(file_producers(piece, numbers, ends, filed))

    @property
    def filed(self) -> np.ndarray:
        """Rows in a checkpoint's form."""
        return self._filed[: self._count]
