"""The aborted transactions of one partition that its log remembers, in the order of their markers.

    blocks   int64 [n, 5]: the fields of Aborted      full ones never change, so copies share them
    floors   the smallest first offset of each block  a look-up skips blocks by it

A row takes 40 bytes. A look-up reads the rows of its range block by block and stops where it has
enough: it costs the same however many transactions were aborted later.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from smq.log.files.checkpoint import ABORTED_COLUMNS, Aborted

BLOCK_ROWS = 1024
_FIRST_BLOCK_ROWS = 16  # Most partitions have few.
PRODUCER, FIRST, LAST = map(Aborted._fields.index, ("producer_id", "first_offset", "last_offset"))
NONE = np.empty((0, ABORTED_COLUMNS), np.int64)


class AbortedIn(NamedTuple):
    """The aborted transactions that overlap a range, which ends at `end` for there are too many.

    table   int64 [n, 5]: the fields of Aborted
    """

    table: np.ndarray
    end: int

    @property
    def rows(self) -> list[Aborted]:
        """The same, one by one."""
        return [Aborted._make(row) for row in self.table.tolist()]

    def within(self, start: int, end: int) -> np.ndarray:
        """The rows of those that overlap [start, end)."""
        return self.table[(self.table[:, FIRST] < end) & (self.table[:, LAST] >= start)]


class AbortedRows:
    """See above. Never empty: without rows there is no such object."""

    def __init__(self) -> None:
        self._blocks: list[np.ndarray] = []
        self._count = 0  # Of the last block.
        self._floors: list[int] = []
        self._lasts: list[int] = []

    @classmethod
    def of(cls, rows: np.ndarray) -> "AbortedRows":
        """Rows as of `rows`."""
        self = cls()
        for at in range(0, len(rows), BLOCK_ROWS):
            block = rows[at : at + BLOCK_ROWS].copy()
            self._blocks.append(block)
            self._floors.append(int(block[:, FIRST].min()))
            self._lasts.append(int(block[-1, LAST]))
            self._count = len(block)
        return self

    @property
    def end(self) -> int:
        """The offset after the last marker."""
        return self._lasts[-1] + 1

    @property
    def first_marker(self) -> int:
        """The offset of the first marker."""
        return int(self._blocks[0][0, LAST])

    def add(self, aborted: Aborted) -> None:
        """Add the newest one."""
        if not self._blocks or self._count == BLOCK_ROWS:
            self._blocks.append(np.empty((_FIRST_BLOCK_ROWS, ABORTED_COLUMNS), np.int64))
            self._count = 0
            self._floors.append(aborted.first_offset)
            self._lasts.append(aborted.last_offset)
        block = self._blocks[-1]
        if self._count == len(block):
            grown = np.empty((min(2 * len(block), BLOCK_ROWS), ABORTED_COLUMNS), np.int64)
            grown[: len(block)] = block
            self._blocks[-1] = block = grown
        block[self._count] = aborted
        self._count += 1
        self._floors[-1] = min(self._floors[-1], aborted.first_offset)
        self._lasts[-1] = aborted.last_offset

    def copies(self) -> list[np.ndarray]:
        """All rows, in arrays that do not change."""
        return [*self._blocks[:-1], self._blocks[-1][: self._count]]

    def forget(self, offset: int) -> "AbortedRows | None":
        """These without those whose markers lie below an offset; None: all do."""
        if self.end <= offset:
            return None
        at = bisect_left(self._lasts, offset)
        kept = self._filled(at)
        first = int(np.searchsorted(kept[:, LAST], offset))
        self._blocks = [kept[first:], *self._blocks[at + 1 :]]
        self._floors, self._lasts = self._floors[at:], self._lasts[at:]
        self._floors[0] = int(self._blocks[0][:, FIRST].min())
        if len(self._blocks) == 1:
            self._count = len(self._blocks[0])
        return self

    def overlapping(self, start: int, end: int, count_max: int) -> AbortedIn:
        """Those with records or markers in [start, end). More than `count_max`: the range ends
        where the next one begins, but not before `start` + 1; only then there may be more."""
        found = self._overlapping(start, end, count_max + 1)
        if len(found) > count_max:
            end = max(start + 1, int(found[count_max, FIRST]))
            found = self._overlapping(start, end, None)  # Later markers, but begun earlier.
        if len(found) > count_max:
            end = max(start + 1, int(np.partition(found[:, FIRST], count_max)[count_max]))
            found = found[found[:, FIRST] < end]
        return AbortedIn(found, end)

    def overlaps(self, start: int, end: int) -> bool:
        """Whether there are any with records or markers in [start, end)."""
        return any(map(len, self._pieces(start, end)))

    def of_producers(self, start: int, end: int, producers: Sequence[int]) -> np.ndarray:
        """The rows of those in [start, end) that are of these producers."""
        rows = self._overlapping(start, end, None)
        return rows[np.isin(rows[:, PRODUCER], producers)]

    def _overlapping(self, start: int, end: int, count_max: int | None) -> np.ndarray:
        """Rows, at most `count_max` if that is given."""
        pieces: list[np.ndarray] = []
        count = 0
        for rows in self._pieces(start, end):
            pieces.append(rows)
            count += len(rows)
            if count_max is not None and count >= count_max:
                break
        return np.concatenate(pieces)[:count_max] if pieces else NONE

    def _pieces(self, start: int, end: int) -> Iterator[np.ndarray]:
        """The rows of [start, end), block by block."""
        for index in range(bisect_left(self._lasts, start), len(self._blocks)):
            if self._floors[index] < end:
                rows = self._filled(index)
                rows = rows[int(np.searchsorted(rows[:, LAST], start)) :]
                yield rows[rows[:, FIRST] < end]

    def _filled(self, index: int) -> np.ndarray:
        block = self._blocks[index]
        return block[: self._count] if index == len(self._blocks) - 1 else block

    def invariants(self) -> None:
        """Raise AssertionError if the order or what is known of a block is wrong."""
        rows = [self._filled(index) for index in range(len(self._blocks))]
        assert self._count == len(rows[-1]) > 0
        assert self._floors == [int(each[:, FIRST].min()) for each in rows]
        assert self._lasts == [int(each[-1, LAST]) for each in rows]
        assert (np.diff(np.concatenate(rows)[:, LAST]) > 0).all()
