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
    FRAME_ALIGNMENT_BYTES,
    FRAME_BYTES_AT,
    FRAME_GENERATION_AT,
    FRAME_KIND_AT,
    FRAME_KIND_BATCH,
)
from shm.kernels.log.recover import (
    S_AT,
    S_GENERATION,
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


class _Frames:
    """The good frames of a part of a segment, of growing generations: each is looked at once,
    however many bad ones there are.

    rows   int64 [n, 3]: place, generation and synced position; only those that no later one of
           them exceeds in the last
    """

    def __init__(self, rows: np.ndarray) -> None:
        highest = np.maximum.accumulate(rows[::-1, 2])[::-1]
        self.rows = rows[np.append(highest[1:] < rows[:-1, 2], np.ones(len(rows[:1]), np.bool_))]

    def synced_from(self, at: int, generation: int) -> int | None:
        """The highest synced position that one of them names, at data[at] or behind, of this
        generation or a later one; None: there is none."""
        i = max(np.searchsorted(self.rows[:, 0], at), np.searchsorted(self.rows[:, 1], generation))
        return int(self.rows[i, 2]) if i < len(self.rows) else None


class Evidence:
    """What a start knows: `synced` is the highest synced position that a good frame names.

    is_same_boot   see Losses
    """

    def __init__(self, log: ReadableLog, reads: StartReads, *, is_same_boot: bool) -> None:
        self._log, self._reads, self.is_same_boot = log, reads, is_same_boot
        self.synced = 0
        self._rows = np.zeros((SCAN_ROWS, SCAN_COLUMNS), np.int64)
        self._looked_at: tuple[int, _Frames] | None = None  # Behind the first damage of a segment.
        self._heads: dict[int, _Frames] = {}  # Of later segments, by position.

    def learn(self, synced: int) -> None:
        """A good frame, or the checkpoint, names a position that is synced. A frame begins and ends
        at a whole line: a log that says otherwise is from elsewhere."""
        self.synced = max(self.synced, synced - synced % FRAME_ALIGNMENT_BYTES)

    def after_damage(
        self, data: np.ndarray, at: int, segment: WalSegment, generation: int, sums: np.ndarray
    ) -> int:
        """Where to continue after the bad frame at data[at] of a segment; -1: the log ends
        there. Call it for each, in their order; `sums` are those of the scan. Raises
        UnreadableFile."""
        position = segment.start + at
        following = _following(data, at, segment.start, generation, sums)
        follows = following >= 0 and self._follows(data, following, segment, generation, sums)
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
                if later.start not in self._heads:
                    data = self._reads.head(later, LOOK_BYTES)
                    sums = new_sums(len(data))
                    self._heads[later.start] = self._look(data, 0, later.start, generation, sums)
                follows |= self._learn_from(self._heads[later.start], 0, generation)
                if self.synced > position:
                    break
        return follows

    def _follows(
        self,
        data: np.ndarray,
        following: int,
        segment: WalSegment,
        generation: int,
        sums: np.ndarray,
    ) -> bool:
        """Learn from the good frames of a segment, from data[following] on; whether there are
        any."""
        if self._looked_at is None or self._looked_at[0] != segment.start:
            looked_at = self._look(data, following, segment.start, generation, sums)
            self._looked_at = segment.start, looked_at
        return self._learn_from(self._looked_at[1], following, generation)

    def _learn_from(self, frames: _Frames, at: int, generation: int) -> bool:
        synced = frames.synced_from(at, generation)
        if synced is not None:
            self.learn(synced)
        return synced is not None

    def _look(
        self, data: np.ndarray, at: int, first_position: int, generation: int, sums: np.ndarray
    ) -> _Frames:
        """The good frames at or after data[at]."""
        pieces = [np.zeros((0, 3), np.int64)]
        while 0 <= at < len(data):
            count, stopped, generation = scan_frames(
                data, at, len(data), first_position, generation, self._rows, sums
            )
            columns = [S_AT, S_GENERATION, S_SYNCED]
            pieces.append(_Frames(self._rows[:count, columns]).rows)
            at = int(stopped)
            if count < len(self._rows):
                at = _following(data, at, first_position, generation, sums)
        return _Frames(np.concatenate(pieces))


def _following(
    data: np.ndarray, at: int, first_position: int, generation: int, sums: np.ndarray
) -> int:
    """The next place after a bad frame where a good one begins; -1: there is none."""
    if frame_is_good_by_sums(data, at, len(data), first_position + at, sums):
        kind, size = (int(data[at + i : at + i + 4].view(np.int32)[0]) for i in _KIND_AND_BYTES)
        stamped = int(data[at + FRAME_GENERATION_AT :][:4].view(np.uint32)[0])
        behind = at + int(frame_bytes(size))
        is_batch = kind == FRAME_KIND_BATCH and stamped >= generation
        if is_batch and frame_is_good_by_sums(
            data, behind, len(data), first_position + behind, sums
        ):
            return behind
    return int(find_frame(data, at, len(data), first_position, generation, sums))


_KIND_AND_BYTES = (FRAME_KIND_AT, FRAME_BYTES_AT)
