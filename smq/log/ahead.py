"""Touches the ring's pages ahead of the tail, for one lap.

The first touch of a page takes far longer than later ones, above all on a virtual machine: a thread
beside the loop pays for it. It stays only a little ahead, so that an idle broker does not hold
memory that it does not use.
"""

from shm.segment import LogMemory
from smq.log.files.background import Background, JobLane
from smq.log.files.pieces import by_pieces

AHEAD_BYTES = 32 * 1024 * 1024  # Covers a burst until the thread catches up.
STEP_BYTES = 4 * 1024 * 1024  # Of one job.
PIECE_BYTES = 16 * 1024  # Per step: a tenth of a millisecond, or less.


class RingAhead:
    """Invariant: all pages from the lap's begin, or from the tail, to `_present` have been
    touched."""

    def __init__(self, memory: LogMemory, background: Background) -> None:
        self._memory, self._background = memory, background
        self._present = self._lap_end = -1
        self._is_touching = self._is_over = False

    def stop(self) -> None:
        """Touch no more: the log is about to wait for all that runs beside it."""
        self._is_over = True

    def look(self, tail: int) -> None:
        """Have more pages touched if the tail is near; the first call sets where the lap
        begins."""
        if self._lap_end < 0:
            self._present, self._lap_end = tail, tail + self._memory.layout.ring_bytes
        is_enough = self._present >= min(self._lap_end, tail + AHEAD_BYTES)
        if self._is_over or self._is_touching or is_enough:
            return
        ring_bytes = self._memory.layout.ring_bytes
        start = self._present = max(self._present, tail)
        place = start % ring_bytes
        length = min(STEP_BYTES, self._lap_end - start, ring_bytes - place)
        self._is_touching = True

        def done(_: OSError | None) -> None:
            self._is_touching = False
            self._present = start + length
            self.look(tail)

        def touch() -> None:
            for piece in by_pieces(length, PIECE_BYTES):
                if self._is_over:
                    return
                self._memory.touch(place + piece.start, piece.stop - piece.start)

        self._background.submit(JobLane.PAGES, touch, done)
