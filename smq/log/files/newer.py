"""Detects a log that a newer SMQ has written, before changing or truncating anything.

    a file of an unknown version             the checkpoint refuses the start; an index is rebuilt
    a frame of an unknown, skippable kind    it stays in the WAL unchanged, as long as its segment
    a frame of any other unknown kind        the start is refused
    a frame of a generation not taken yet    the start is refused: meta.json is of another moment

`smq serve` calls refuse_newer() before it takes a generation. A start that
meets such a frame later, after a damaged table for example, ends there as well.
"""

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np

from shm.kernels.base.crc_sums import new_sums
from shm.kernels.base.words import (
    FRAME_KIND_ADOPTION,
    FRAME_KIND_BATCH,
    FRAME_KIND_PADDING,
    FRAME_KIND_SKIPPABLE,
)
from shm.kernels.log.recover import S_AT, S_KIND, SCAN_COLUMNS, find_frame, scan_frames
from smq.log.files.checkpoint import OWN, Checkpoint
from smq.log.files.disk import Disk
from smq.log.files.filed_index import is_of_our_version
from smq.log.files.salvage import salvage
from smq.model.errors import MadeByNewer, StoreError

SCAN_ROWS = 4096
_KNOWN = (FRAME_KIND_BATCH, FRAME_KIND_PADDING, FRAME_KIND_ADOPTION)


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
        assert not set(_KNOWN) & self.counts.keys()

    def meet(self, rows: np.ndarray, first_position: int) -> None:
        """Look at scanned frames, the S_ columns. Raises MadeByNewer."""
        kinds = rows[:, S_KIND]
        unknown = rows[~np.isin(kinds, _KNOWN)]
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


def check_generation(directory: Path, found: int, generation: int) -> None:
    """Raise StoreError if a log has frames of a later generation than the one that a start takes:
    it would take its own frames for an earlier life's."""
    if found > generation:
        raise StoreError(
            str(directory),
            f"its frames are of up to generation {found}, and by meta.json this is generation "
            f"{generation}: the two are not of one moment; nothing was changed. Restore all of "
            "the data directory from one backup",
        )


class FrameWalk:
    """Walks through the frames of one log, segment by segment, and also beyond what a start takes
    for the end of the log: it would truncate there.

    `generation` is what check_generation takes.
    """

    def __init__(self, directory: Path, generation: int) -> None:
        self._directory, self._generation_max = directory, generation
        self._unknown, self._generation = UnknownFrames(directory), 0
        self._rows = np.zeros((SCAN_ROWS, SCAN_COLUMNS), np.int64)

    def through(self, data: np.ndarray, first_position: int) -> Iterator[tuple[np.ndarray, int]]:
        """The good frames of a segment, some at a time: their S_ columns, lent until the next, and
        where they end. Raises MadeByNewer, and StoreError as check_generation."""
        at, sums = 0, new_sums(len(data))
        while 0 <= at < len(data):
            count, stopped, generation = scan_frames(
                data, at, len(data), first_position, self._generation, self._rows, sums
            )
            assert at <= stopped <= len(data)
            rows, at, self._generation = self._rows[:count], int(stopped), int(generation)
            self._unknown.meet(rows, first_position)
            check_generation(self._directory, self._generation, self._generation_max)
            yield rows, at
            if count < len(self._rows):
                place = data, at, len(data), first_position
                at = int(find_frame(*place, self._generation, sums))


def refuse_newer(directory: Path, disk: Disk, generation: int) -> None:
    """Walk through the segments that a start of this log would scan, with this generation.

    Changes nothing. Raises MadeByNewer, and StoreError as check_generation. Skips segments with a
    table of our version: they have no frames that must be known.
    """
    with suppress(OSError):  # The start itself reports it.
        Checkpoint.load(directory)
    walk = FrameWalk(directory, generation)
    for path in sorted(directory.glob("*.wal")):
        is_ours = path.stem.isdigit() and int(path.stem) <= OWN.place_max
        if is_ours and not is_of_our_version(path.with_suffix(".index")):
            for _ in walk.through(_bytes_of(path, disk), int(path.stem)):
                pass


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
