"""The offsets of one partition that were lost with damaged frames.

A disk may lose very many frames in a row, and each look-up asks here: so neighbours are joined.
"""

from bisect import bisect_left, bisect_right

import numpy as np


class LostOffsets:
    """Ranges of offsets.

    Invariant: they ascend, none is empty, and no two touch.
    """

    def __init__(self) -> None:
        self._bases: list[int] = []
        self._ends: list[int] = []

    def invariants(self) -> None:
        """Raise AssertionError when the ranges are not as the class says."""
        edges = [edge for both in zip(self._bases, self._ends, strict=True) for edge in both]
        assert edges == sorted(set(edges))

    def __len__(self) -> int:
        return len(self._bases)

    def add(self, base: int, end: int) -> None:
        """The offsets [base, end) are lost, too."""
        first, last = bisect_left(self._ends, base), bisect_right(self._bases, end)
        if first < last:  # They touch these.
            base, end = min(base, self._bases[first]), max(end, self._ends[last - 1])
        self._bases[first:last] = [base]
        self._ends[first:last] = [end]

    def forget_below(self, offset: int) -> None:
        """Nobody asks for what lies below an offset any more."""
        count = bisect_right(self._ends, offset)
        del self._bases[:count], self._ends[:count]

    def behind(self, offset: int) -> int:
        """The offset itself, or the one after the range that has it."""
        i = bisect_right(self._bases, offset) - 1
        return max(offset, self._ends[i]) if i >= 0 else offset

    def next_from(self, offset: int) -> int | None:
        """Where the first range begins, of those that begin at an offset or later."""
        i = bisect_left(self._bases, offset)
        return self._bases[i] if i < len(self._bases) else None

    def reach_beyond(self, offset: int) -> bool:
        """Whether an offset or a later one is lost."""
        return bool(self._ends) and self._ends[-1] > offset

    def among(self, offsets: np.ndarray) -> np.ndarray:
        """Whether each of these offsets (int64, ascending, not empty) is lost (bool)."""
        first = max(0, bisect_right(self._bases, int(offsets[0])) - 1)
        last = bisect_right(self._bases, int(offsets[-1]))
        bases, ends = np.array([self._bases[first:last], self._ends[first:last]], np.int64)
        at = np.searchsorted(bases, offsets, "right")
        found: np.ndarray = offsets < np.concatenate(([offsets[0]], ends))[at]
        return found
