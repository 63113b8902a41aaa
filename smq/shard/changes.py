"""The changes of a shard's partitions since the sealer last asked.

    sealer   since 0 ─▶        version 1000, there is more      the first rows, all being new
             since 1000 ─▶     version 1730                     the rest
             since 1730 ─▶     version 1732                     two partitions that have grown

Each change of a row gets the next version. Versions belong to one life of the shard: a question
with another life's version gets a full answer, and so does one that has missed deleted partitions.
An answer has at most ROWS_MAX rows. Besides, a question compares some rows of the tables (in
NumPy): known changes are returned first, and `more` is set until all rows have been compared.
"""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from shm.kernels.base.words import (
    P_DECIDED_END,
    P_HIGH_WATERMARK,
    P_LAST_STABLE,
    P_LOG_START,
    P_NUMBER,
    P_SEALED_END,
    P_UNSEALED_BYTES,
    P_UNSEALED_SINCE_MS,
    WORD_PARTITION_COUNT,
)
from smq.log.log import Log
from smq.wire.internal.messages import PartitionState

ROWS_MAX = 1000  # Per answer: a millisecond, and 60 KB of JSON.
LOOKED_AT_MAX = 20_000  # Rows, per answer: a millisecond or two.
GONE_MAX = 20_000  # Deleted partitions to remember.
_COLUMNS = (  # The fields of PartitionState except the log.
    P_NUMBER,
    P_LOG_START,
    P_DECIDED_END,
    P_LAST_STABLE,
    P_UNSEALED_BYTES,
    P_UNSEALED_SINCE_MS,
    P_SEALED_END,
    P_HIGH_WATERMARK,
)


class Changed(NamedTuple):
    """An answer: everything that changed after version `since` up to `version`.

    `since` is 0 in a full answer.
    """

    since: int
    version: int
    more: bool
    gone: list[int]
    partitions: list[PartitionState]


class _Table:
    """A log's rows as last seen, and the version at which each changed."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.seen = np.zeros((len(log.partitions.table), len(_COLUMNS)), np.int64)
        self.versions = np.zeros(len(self.seen), np.int64)

    @property
    def count(self) -> int:
        """How many rows are, or have been, in use."""
        return int(self.log.words[WORD_PARTITION_COUNT])

    def look(self, version: int, first: int, end: int) -> tuple[int, list[tuple[int, int]]]:
        """Detect changes in some rows; returns the new version, and (version, number) of deleted
        partitions."""
        now, seen = self.log.partitions.table[first:end, _COLUMNS], self.seen[first:end]
        changed = np.flatnonzero((now != seen).any(axis=1))
        versions = version + 1 + np.arange(len(changed))
        before = seen[changed, 0]
        is_gone = (before != 0) & (before != now[changed, 0])
        gone = zip(versions[is_gone].tolist(), before[is_gone].tolist(), strict=True)
        seen[changed], self.versions[first:end][changed] = now[changed], versions
        return version + len(changed), list(gone)

    def after_slots(self, version: int) -> np.ndarray:
        """The slots in use that changed after a version."""
        return np.flatnonzero((self.versions > version) & (self.seen[:, 0] != 0))

    def after(self, version: int) -> tuple[np.ndarray, np.ndarray]:
        """The rows in use that changed after a version: versions and rows."""
        slots = self.after_slots(version)
        rows = np.insert(self.seen[slots], 1, self.log.number, axis=1)
        return self.versions[slots], rows


class Changes:
    """The changes of one life of a shard. Invariant: rows have distinct versions, none later than
    that of the last question."""

    def __init__(self, logs: Iterable[Log]) -> None:
        self._tables = [_Table(log) for log in logs]
        self._version = 0
        self._gone: deque[tuple[int, int]] = deque()
        self._complete_from = 0  # All deletions since this version are known.
        self._log = self._row = 0  # Where the next look begins: a table, and a row of it.
        self._is_round_over = False  # All rows have been looked at; the rest is to be told.

    def invariants(self) -> None:
        """Raise AssertionError when versions are not as the class says."""
        versions = np.concatenate([table.versions for table in self._tables])
        versions = versions[versions > 0]
        assert len(np.unique(versions)) == len(versions)
        assert versions.max(initial=0) <= self._version
        assert len(self._gone) <= GONE_MAX

    def after(self, since: int) -> Changed:
        """The changes after a version that was reported before; 0: everything."""
        if not self._is_round_over and self._count_after(since) <= ROWS_MAX:
            self._is_round_over = self._look()
        if not self._complete_from <= since <= self._version:
            since = 0
        found = [table.after(since) for table in self._tables]
        versions = np.concatenate([each[0] for each in found])
        rows = np.concatenate([each[1] for each in found])
        order = np.argsort(versions)[:ROWS_MAX]
        is_cut = len(order) < len(versions)
        version = int(versions[order[-1]]) if is_cut else self._version
        has_more = is_cut or not self._is_round_over
        self._is_round_over &= has_more
        gone = [number for at, number in self._gone if 0 < since < at <= version]
        states = [PartitionState._make(row) for row in rows[order].tolist()]
        return Changed(since, version, has_more, gone, states)

    def _count_after(self, since: int) -> int:
        """How many known rows an answer has to tell."""
        if not self._complete_from <= since <= self._version:
            since = 0
        return sum(len(table.after_slots(since)) for table in self._tables)

    def _look(self) -> bool:
        """Look at the next rows, from the first table's first to the last one's last; whether these
        were the last."""
        left = LOOKED_AT_MAX
        while left > 0 and self._log < len(self._tables):
            table = self._tables[self._log]
            end = min(table.count, self._row + left)
            self._version, gone = table.look(self._version, self._row, end)
            self._gone += gone
            left -= max(0, end - self._row)
            self._row = end
            if end >= table.count:
                self._log, self._row = self._log + 1, 0
        while len(self._gone) > GONE_MAX:
            self._complete_from, _ = self._gone.popleft()
        if self._log < len(self._tables):
            return False
        self._log = 0
        return True
