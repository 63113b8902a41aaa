"""Tells the torn end of a log from damage, by what is known after a bad frame.

A bad frame is damage if it lies below a position known to be synced, from the checkpoint or from a
good frame after it (a segment is synced before any sync in the next one counts). It is also damage
if a good frame follows and the machine has not been booted since it was written: the page cache has
lost nothing, and only the very last write can be torn. Otherwise the log ends there.

Bytes that cannot be read tell nothing: a frame is bad if it was read (smq.log.files.start_reads).
"""

import numpy as np

from shm.kernels.base.crc_sums import new_sums
from shm.kernels.base.frames import frame_bytes, frame_is_good_by_sums
from shm.kernels.base.words import (
    FRAME_BYTES_AT,
    FRAME_KIND_AT,
    FRAME_KIND_BATCH,
)
from shm.kernels.log.recover import (
    S_SYNCED,
    SCAN_COLUMNS,
    find_frame,
    scan_frames,
)
from smq.log.files.segment import WalSegment
from smq.log.files.start_reads import StartReads
from smq.log.reading import ReadableLog

SCAN_ROWS = 4096
LOOK_BYTES = 1024 * 1024  # The start of a later segment: one that was begun has good frames there.


class Evidence:
    """What a start knows: `synced` is the highest synced position that a good frame names.

    is_same_boot   see Losses
    """

    def __init__(self, log: ReadableLog, reads: StartReads, *, is_same_boot: bool) -> None:
        self._log, self._reads, self.is_same_boot = log, reads, is_same_boot
        self.synced = 0
        self._rows = np.zeros((SCAN_ROWS, SCAN_COLUMNS), np.int64)

    def after_damage(self, data: np.ndarray, at: int, segment: WalSegment, generation: int) -> int:
        """Where to continue after the bad frame at data[at] of a segment; -1: the log ends
        there. Raises UnreadableFile."""
        position = segment.start + at
        following = _following(data, at, segment.start, generation)
        follows = following >= 0 and self._look(data, following, segment.start, generation)
        if position >= self.synced and not (follows and self.is_same_boot):
            follows = self._look_behind(segment, position, generation) or follows
        if position >= self.synced and not (follows and self.is_same_boot):
            return -1
        if following >= 0:
            assert at < following < len(data)
            return following
        # The rest of the segment is only known to have been written.
        is_whole = self.synced >= segment.end or position >= self.synced
        behind = len(data) if is_whole else self.synced - segment.start
        assert at < behind <= len(data)
        return behind

    def _look_behind(self, segment: WalSegment, position: int, generation: int) -> bool:
        """Examine how later segments begin, until a frame proves that the position is synced."""
        follows = False
        for later in self._log.wal.segments:
            if later.start > segment.start:
                data = self._reads.head(later, LOOK_BYTES)
                follows |= self._look(data, 0, later.start, generation)
                if self.synced > position:
                    break
        return follows

    def _look(self, data: np.ndarray, at: int, first_position: int, generation: int) -> bool:
        """Learn the synced positions from good frames at or after data[at]; whether there are
        any."""
        found, sums = False, new_sums(len(data))
        while 0 <= at < len(data):
            count, stopped, generation = scan_frames(
                data, at, len(data), first_position, generation, self._rows, sums
            )
            if count:
                found = True
                self.synced = max(self.synced, int(self._rows[:count, S_SYNCED].max()))
            at = int(stopped)
            if count < len(self._rows):
                at = int(find_frame(data, at, len(data), first_position, generation, sums))
        return found


def _following(data: np.ndarray, at: int, first_position: int, generation: int) -> int:
    """The next place after a bad frame where a good one begins; -1: there is none."""
    sums = new_sums(len(data))
    if frame_is_good_by_sums(data, at, len(data), first_position + at, sums):
        kind, size = (int(data[at + i : at + i + 4].view(np.int32)[0]) for i in _KIND_AND_BYTES)
        behind = at + int(frame_bytes(size))
        if kind == FRAME_KIND_BATCH and frame_is_good_by_sums(
            data, behind, len(data), first_position + behind, sums
        ):
            return behind
    return int(find_frame(data, at, len(data), first_position, generation, sums))


_KIND_AND_BYTES = (FRAME_KIND_AT, FRAME_BYTES_AT)
