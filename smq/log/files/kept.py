"""Sealed segments that stay in the WAL: they are read there until their space is needed.

They count as free space. Tables of kept segments stay in memory, so their rows are bounded too.
"""

from bisect import insort
from typing import Protocol

from smq.log.files.segment import WalSegment

ROWS_MAX = 100_000  # Rows of their tables, one per partition and segment, some 500 bytes each.


class Reclaim(Protocol):
    """Frees a kept segment."""

    def __call__(self, *, even_lent: bool) -> bool:
        """Free the oldest that no read pins; failing that, if allowed, one that is lent to unsent
        answers. Returns whether there was one."""


class Kept:
    """The kept segments of one log, oldest first."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.segments: list[WalSegment] = []
        self.bytes = self._rows = 0
        self.reclaim: Reclaim = _nothing

    def invariants(self) -> None:
        """Raise AssertionError when the sums are not those of the segments."""
        assert all(segment.is_kept for segment in self.segments)
        assert self.bytes == sum(segment.end - segment.start for segment in self.segments)
        assert self._rows == sum(map(_rows, self.segments))

    def add(self, segment: WalSegment) -> None:
        """All of a full segment is sealed."""
        assert not segment.is_kept
        segment.is_kept = True
        insort(self.segments, segment, key=lambda each: each.start)
        self.bytes += segment.end - segment.start
        self._rows += _rows(segment)

    def remove(self, segment: WalSegment) -> None:
        """It is being freed; its table is still there."""
        self.segments.remove(segment)
        self.bytes -= segment.end - segment.start
        self._rows -= _rows(segment)

    def trim(self) -> None:
        """Free kept segments beyond their share, except lent ones."""
        while self.bytes > self.bytes_max or self._rows > ROWS_MAX:
            if not self.reclaim(even_lent=False):
                return


def _rows(segment: WalSegment) -> int:
    return 0 if segment.index is None else len(segment.index.ends)


def _nothing(*, even_lent: bool) -> bool:  # noqa: ARG001
    return False
