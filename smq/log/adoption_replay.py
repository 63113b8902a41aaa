"""Finds adoptions among the frames that a start scans, and where a pending one is to be applied.

It is where the first batch of its leadership follows. Without one the log says nothing of whether
it was to lead: the move may have been given up.
"""

import numpy as np

from shm.kernels.base.frames import frame_bytes
from shm.kernels.base.words import (
    FRAME_HEADER_BYTES,
    FRAME_KIND_ADOPTION,
    FRAME_KIND_BATCH,
)
from shm.kernels.log.recover import (
    S_AT,
    S_BASE_OFFSET,
    S_BYTES,
    S_EPOCH,
    S_KIND,
    S_PARTITION,
)
from smq.log.files.adopted import read_content
from smq.log.start_rows import StartRows


class AdoptionReplay:
    """Enters adoptions into the log of a start."""

    def __init__(self, start_rows: StartRows) -> None:
        self._start_rows, self._log = start_rows, start_rows.log

    def next_turn(self, rows: np.ndarray, first_position: int, known_to: int) -> int:
        """The first of scanned frames, the S_ columns, before which take() is to be called; their
        number: none. What lies below position `known_to` the checkpoint knows."""
        start = int(np.searchsorted(rows[:, S_AT], known_to - first_position))
        rows = rows[start:]
        is_turn = rows[:, S_KIND] == FRAME_KIND_ADOPTION
        pending = self._log.adoptions.numbers()
        if pending and len(rows):
            batches = rows[:, S_KIND] == FRAME_KIND_BATCH
            met = set(np.unique(rows[batches, S_PARTITION]).tolist())
            for number in pending & met:
                adoption = self._log.adoptions.pending(number)
                assert adoption is not None
                begun = (rows[:, S_EPOCH] >= adoption.epoch) & (
                    rows[:, S_BASE_OFFSET] >= adoption.start
                )
                is_turn |= batches & (rows[:, S_PARTITION] == number) & begun
        return start + (int(is_turn.argmax()) if is_turn.any() else len(rows))

    def take(self, data: np.ndarray, row: np.ndarray, first_position: int) -> bool:
        """Note the adoption of a frame, or apply the one that is pending before a batch. Returns
        whether the frame is done with. Raises StoreError as StartRows."""
        number, at = int(row[S_PARTITION]), int(row[S_AT])
        adoptions = self._log.adoptions
        if row[S_KIND] == FRAME_KIND_BATCH:
            if self._start_rows.give(number):
                adoptions.apply(number)
            else:
                adoptions.drop(number)
            return False
        start, size = at + FRAME_HEADER_BYTES, int(row[S_BYTES])
        end = first_position + at + int(frame_bytes(size))
        try:
            part, page = read_content(data[start : start + size])
            adoptions.meet(part, page, end)
        except ValueError:  # A right check says that it is whole, not who wrote it.
            self._log.notices.append(
                f"{self._log.directory}: the frame at position {first_position + at} is no "
                "adoption of a partition that a log writes: it is ignored"
            )
        return True
