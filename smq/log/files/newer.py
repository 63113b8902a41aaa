"""Detects a log that a newer SMQ has written, before changing or truncating anything.

    a file of an unknown version             the checkpoint refuses the start; an index is rebuilt
    a frame of an unknown, skippable kind    it stays in the WAL unchanged, as long as its segment
    a frame of any other unknown kind        the start is refused

`smq serve` calls refuse_newer() before it takes a generation. A start that
meets such a frame later, after a damaged table for example, ends there as well.
"""

import os
from collections import Counter
from contextlib import suppress
from pathlib import Path

import numpy as np

from shm.kernels.base.words import FRAME_KIND_BATCH, FRAME_KIND_PADDING, FRAME_KIND_SKIPPABLE
from shm.kernels.log.recover import S_AT, S_KIND, SCAN_COLUMNS, find_frame, scan_frames
from smq.log.files.checkpoint import Checkpoint
from smq.log.files.disk import Disk
from smq.log.files.filed_index import is_of_our_version
from smq.log.files.salvage import salvage
from smq.model.errors import MadeByNewer

SCAN_ROWS = 4096


class UnknownFrames:
    """Counts the frames of each unknown kind that a walk through a log has met.

    Invariant: all of them may be passed over.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.counts: Counter[int] = Counter()

    def invariants(self) -> None:
        """Raise AssertionError when the counts are not as the class says."""
        assert all(kind & FRAME_KIND_SKIPPABLE for kind in self.counts)
        assert not {FRAME_KIND_BATCH, FRAME_KIND_PADDING} & self.counts.keys()

    def meet(self, rows: np.ndarray, first_position: int) -> None:
        """Look at scanned frames, the S_ columns. Raises MadeByNewer."""
        kinds = rows[:, S_KIND]
        unknown = rows[(kinds != FRAME_KIND_BATCH) & (kinds != FRAME_KIND_PADDING)]
        for at, kind in unknown[:, [S_AT, S_KIND]].tolist():
            if not kind & FRAME_KIND_SKIPPABLE:
                raise MadeByNewer(
                    str(self._directory),
                    f"the frame at position {first_position + at} is of kind {kind}, which this "
                    "SMQ does not know and may not pass over",
                )
            self.counts[kind] += 1
        self.invariants()

    def notices(self) -> list[str]:
        """A sentence for the operator, or nothing."""
        if not self.counts:
            return []
        kinds = ", ".join(f"{kind:#x}" for kind in sorted(self.counts))
        what = f"{self.counts.total()} frames of kinds that this SMQ does not know ({kinds})"
        return [f"{self._directory}: {what} are kept but ignored: a newer SMQ wrote them"]


def refuse_newer(directory: Path, disk: Disk) -> None:
    """Walk through the segments that a start of this log would scan.

    Changes nothing. Raises MadeByNewer. Skips segments with a table of our version: they have no
    frames that must be known. Looks beyond a torn end too: a start would truncate there.
    """
    with suppress(OSError):  # The start itself reports it.
        Checkpoint.load(directory)
    unknown, generation = UnknownFrames(directory), 0
    rows = np.zeros((SCAN_ROWS, SCAN_COLUMNS), np.int64)
    for path in sorted(directory.glob("*.wal")):
        if path.stem.isdigit() and not is_of_our_version(path.with_suffix(".index")):
            generation = _walk(path, disk, generation, unknown, rows)


def _walk(path: Path, disk: Disk, generation: int, unknown: UnknownFrames, rows: np.ndarray) -> int:
    """Meet the frames of one segment; the generation of the last one."""
    data, first_position, at = _bytes_of(path, disk), int(path.stem), 0
    while 0 <= at < len(data):
        count, stopped, generation = scan_frames(
            data, at, len(data), first_position, generation, rows
        )
        assert at <= stopped <= len(data)
        unknown.meet(rows[:count], first_position)
        at = int(stopped)
        if count < len(rows):
            at = int(find_frame(data, at, len(data), first_position, generation))
    return int(generation)


def _bytes_of(path: Path, disk: Disk) -> np.ndarray:
    """A segment's bytes; zeros for what cannot be read, and nothing where it cannot be opened."""
    try:
        fd = disk.open(path)
    except OSError:  # The start itself reports it.
        return np.zeros(0, np.uint8)
    try:
        size = os.fstat(fd).st_size
        try:
            return disk.map(fd, size) if size else np.zeros(0, np.uint8)
        except OSError:
            return salvage(disk, fd, size, 0).data
    finally:
        disk.close(fd)
