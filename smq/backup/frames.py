"""Judges the frames of a log that is restored.

Right checks say that nothing has changed by chance, not who wrote it. A start reads a log as one
that its own lives have written: by another's it might end, each time anew, or give clients a batch
that ends them. So a restore walks through each segment as a start does, and refuses what no log
writes:

    a batch that is not as long as its frame, not of our format, or at offsets that there are not
    padding that ends where no frame may begin
    a generation that the snapshot's meta.json has not taken
    a leader epoch that is negative, or above that generation: the next one drawn would be lower
    a synced position above its frame's, or one where no frame may end
    offsets so high that a broker which goes on has no room
    segments that overlap

Damage and torn ends stay: a start knows what to do with them.
"""

from pathlib import Path

import numpy as np

from shm.kernels.base.frames import frame_is_made_up
from shm.kernels.base.words import FRAME_ALIGNMENT_BYTES, FRAME_KIND_BATCH
from shm.kernels.log.recover import (
    S_AT,
    S_BASE_OFFSET,
    S_EPOCH,
    S_KIND,
    S_SYNCED,
)
from smq.backup.wal import check_segment
from smq.log.files.checkpoint import RESTORED
from smq.log.files.disk import OsDisk
from smq.log.files.newer import FrameWalk
from smq.model.errors import StoreError


class RestoredFrames:
    """The frames of one log, segment by segment in the order of their positions.

    `generation`: the last one that the snapshot's meta.json has taken
    """

    def __init__(self, directory: Path, generation: int) -> None:
        self._walk, self._generation = FrameWalk(directory, generation), generation
        self._end = 0  # Of the last segment.

    def judge_file(self, path: Path, fd: int, size: int) -> None:
        """As judge(), of a file. Nobody else may write to it meanwhile."""
        check_segment(path, size)  # Also the copy of what grew meanwhile.
        if not size:
            return
        disk = OsDisk()
        try:
            data = disk.map(fd, size)
        except OSError:  # Not every file system maps.
            data = disk.read(fd, size, 0)
        self.judge(path, data)

    def judge(self, path: Path, data: np.ndarray) -> None:
        """Raise StoreError, MadeByNewer among them, for what a start must not read."""
        first_position = int(path.stem)
        if first_position < self._end:
            raise _refused(path, f"it begins below position {self._end}, where the one before ends")
        self._end = first_position + len(data)
        for rows, at in self._walk.through(data, first_position):
            batches = rows[rows[:, S_KIND] == FRAME_KIND_BATCH]
            offsets, epochs = batches[:, S_BASE_OFFSET], batches[:, S_EPOCH]
            if len(batches) and offsets.max() > RESTORED.place_max:
                raise _refused(path, f"it has a batch at offset {offsets.max()}")
            others = epochs[(epochs > self._generation) | (epochs < 0)]
            if len(others):
                raise _refused(path, f"it has a batch of leader epoch {others[0]}")
            synced = rows[:, S_SYNCED]
            ahead = synced > first_position + rows[:, S_AT]
            others = synced[ahead | (synced < 0) | (synced % FRAME_ALIGNMENT_BYTES != 0)]
            if len(others):
                raise _refused(path, f"one of its frames calls position {others[0]} synced")
            if frame_is_made_up(data, at, len(data), first_position + at):
                raise _refused(path, f"the frame at position {first_position + at} is none")


def _refused(path: Path, why: str) -> StoreError:
    return StoreError(str(path), f"{why}: no log writes that, so somebody has changed it")
