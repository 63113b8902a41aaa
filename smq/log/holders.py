"""Tells which full segments are still needed by partitions with unsealed records in them, or with
any records.

Each seal asks for every segment, and a segment may have records of 10,000 partitions. A partition
that no longer needs a segment never needs it again: sealed ends and log starts only grow, and
numbers of deleted partitions are not reused. So one walk goes through a segment's partitions once
in its life and pauses at each that needs it; one call examines LOOKS_MAX at most.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from shm.kernels.base.words import P_SEALED_END
from smq.log.files.filed_index import FiledIndex
from smq.log.files.segment import WalSegment
from smq.log.lookup import Lookup
from smq.log.partitions import Partitions

LOOKS_MAX = 4096  # Per step of the loop: some 2 ms.


@dataclass(slots=True)
class _Walk:
    """A walk through a segment's partitions: (number, end of its records in the segment)."""

    index: FiledIndex
    left: Iterator[tuple[int, int]]
    holder: tuple[int, int] | None


class Holders:
    """The walks through all full segments of a log.

    `column` of a partition's row holds the offset from which it needs its records.
    """

    def __init__(self, partitions: Partitions, lookup: Lookup, column: int = P_SEALED_END) -> None:
        self._partitions, self._lookup, self._column = partitions, lookup, column
        self._walks: dict[int, _Walk] = {}
        self.looks = 0  # Since the last begin().

    def invariants(self) -> None:
        """Raise AssertionError if a walk has passed a partition that needs its segment."""
        for walk in self._walks.values():
            for pair in walk.index.ends.items():
                if pair == walk.holder:
                    break
                assert not self._needs(walk.index, *pair), pair

    def begin(self) -> None:
        """A new step of the loop begins."""
        self.looks = 0

    def need(self, segment: WalSegment) -> bool:
        """Whether a partition needs a full segment, or may: the walk has not finished."""
        assert segment.index is not None
        walk = self._walks.get(segment.start)
        if walk is None:
            left = iter(segment.index.ends.items())
            walk = self._walks[segment.start] = _Walk(segment.index, left, next(left, None))
        while walk.holder is not None and self.looks < LOOKS_MAX:
            self.looks += 1
            if self._needs(walk.index, *walk.holder):
                return True
            walk.holder = next(walk.left, None)
        return walk.holder is not None

    def forget(self, segment: WalSegment) -> None:
        """Forget a segment that was freed."""
        self._walks.pop(segment.start, None)

    def _needs(self, index: FiledIndex, number: int, end: int) -> bool:
        slot = self._partitions.slots.get(number)
        if slot is None:
            return False
        start = int(self._partitions.table[slot, self._column])
        return start < end and self._lookup.has_readable(number, index, start)
