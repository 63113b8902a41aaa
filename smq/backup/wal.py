"""The files of one log, for a snapshot.

    pin()         hard-links all segments, then copies the checkpoint
    pin_at_cut()  hard-links newer segments, while no line of the manifest can be added
    pin_new()     hard-links newer segments; call it once the log's end at the cut is written
    write()       writes the segments below the end, and the checkpoint with the bounds of the cut

A sealed segment is freed only after a checkpoint says so, and a linked one is not written again
(smq.log.files.wal). So the segments linked first and the checkpoint read afterwards together hold
everything that no later manifest names, and later frames are in later segments: all of them are
linked, or another cut is made. One that came and went in between may have the markers of what was
sealed as it was sent, and what producers did. Log starts and compacted ends are only in
checkpoints, so those of the cut are entered: DeleteRecords may have been answered since, and
compaction may have removed records. All else of the checkpoint stays of its own moment: a start
reads the later frames.
"""

import os
import re
from collections.abc import Mapping, Set as AbstractSet
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from shm.kernels.base import words
from shm.kernels.base.crc_sums import new_sums
from shm.kernels.base.frames import write_frame_header
from shm.kernels.log.recover import (
    S_AT,
    S_BYTES,
    S_GENERATION,
    S_KIND,
    S_PARTITION,
    S_SYNCED,
    SCAN_COLUMNS,
    find_frame,
    scan_frames,
)
from shm.segment import LogMemory
from smq.app.process.clock import monotonic_ms, sleep
from smq.backup.files import Open, copy, link, open_named, opened, write
from smq.log.files.checkpoint import (
    FILE_NAME,
    FILE_NAME_BEFORE,
    RESTORED,
    Checkpoint,
    PartitionCheckpoint,
)
from smq.log.files.disk import OsDisk
from smq.log.files.filed_index import FiledIndex
from smq.model.config import SETTINGS
from smq.model.errors import StoreError

CHECKPOINT_WAIT_MS = 10_000  # Between the shard's two renames no checkpoint exists for an instant.
SEGMENT_BYTES_MAX = SETTINGS["wal.segment.bytes"].at_most or 0
_NAME = re.compile(r"[0-9]{20}\.wal")
_POLL_S = 0.01
_SCAN_ROWS = 65536


class PartitionBounds(NamedTuple):
    """Below which offsets of a partition nothing is there, or only segments tell."""

    log_start: int
    compacted_end: int


class LogCut(NamedTuple):
    """A log at the cut: where it ends, and the bounds of each partition by number."""

    end: int
    bounds: Mapping[int, PartitionBounds]


def cut_of(memory: LogMemory) -> LogCut:
    """A served log at this moment."""
    rows = memory.partitions[: int(memory.words[words.WORD_PARTITION_COUNT])]
    rows = rows[rows[:, words.P_FLAGS] & words.FLAG_IN_USE != 0]
    numbers = rows[:, words.P_NUMBER].tolist()
    bounds = map(
        PartitionBounds._make, rows[:, [words.P_LOG_START, words.P_COMPACTED_END]].tolist()
    )
    return LogCut(int(memory.words[words.WORD_TAIL]), dict(zip(numbers, bounds, strict=True)))


class LogFiles:
    """A log's directory, and this snapshot's directory of links to its segments."""

    def __init__(self, directory: Path, pins: Path) -> None:
        self.directory, self.pins = directory, pins
        self._checkpoint: Checkpoint | None = None
        self.last = 0  # The last segment before the checkpoint.
        pins.mkdir(parents=True, mode=0o700)

    def pin(self) -> None:
        """Link the current segments and copy the checkpoint. Raises OSError, MadeByNewer."""
        self._link_segments()
        self.last = max((int(path.stem) for path in self.pins.glob("*.wal")), default=0)
        deadline = monotonic_ms() + CHECKPOINT_WAIT_MS
        while not self._copy_checkpoint() and monotonic_ms() < deadline:
            sleep(_POLL_S)
        self._checkpoint, _ = Checkpoint.load(self.pins)

    def pin_at_cut(self) -> None:
        """Link segments begun since, within the instant of the cut. Raises OSError."""
        self._link_segments()

    def pin_new(self, end: int = 0) -> bool:
        """Link segments begun since the cut; whether all up to `end` are linked. Raises OSError."""
        self._link_segments()
        at = self.last
        while at < end:
            path = self.pins / f"{at:020d}.wal"
            size = path.stat().st_size if path.exists() else 0
            if not size:
                return False
            at += size
        return True

    def write(
        self, target: Path, cut: LogCut | None, known: AbstractSet[int], *, only: bool
    ) -> None:
        """Write what lies below the cut (None: all), except segments that are sealed in whole.

        `known` are the numbers of the partitions in the snapshot. `only` leaves out the batches of
        all others. Raises OSError, StoreError.
        """
        end = None if cut is None else cut.end
        for path in sorted(self.pins.glob("*.wal")):
            start, size = int(path.stem), path.stat().st_size
            if size == 0 or (end is not None and start >= end) or (self._is_sealed(path, known)):
                continue
            length = size if end is None else min(size, end - start)
            to = target / path.name
            if only:
                write_only(path, to, length, known)
            elif not (_is_full(path, length, end) and link(path, to)):
                copy(path, to, length)
        found = {} if cut is None else cut.bounds
        bounds = {number: each for number, each in found.items() if number in known}
        self._write_checkpoint(target, bounds)

    def _write_checkpoint(self, target: Path, bounds: Mapping[int, PartitionBounds]) -> None:
        kept = self._checkpoint or Checkpoint(0, 0, 0, [], np.zeros(0, np.int64))
        raised = with_bounds(kept, bounds)
        if raised != kept.partitions:
            target.mkdir(parents=True, exist_ok=True, mode=0o700)
            replace(kept, partitions=raised).save(OsDisk(), target)
        elif (self.pins / FILE_NAME).exists():
            copy(self.pins / FILE_NAME, target / FILE_NAME)

    def _link_segments(self) -> None:
        for path in self.directory.glob("*.wal"):
            if path.stem.isdigit():
                # It has just been freed, or its table does not exist yet.
                with suppress(FileNotFoundError):
                    _link_again(path, self.pins / path.name)
                    index = path.with_suffix(".index")
                    _link_again(index, self.pins / index.name)

    def _copy_checkpoint(self) -> bool:
        """Copy the newest checkpoint; True also if there never was one."""
        try:
            content = (self.directory / FILE_NAME).read_bytes()
        except FileNotFoundError:
            return not (self.directory / FILE_NAME_BEFORE).exists()
        (self.pins / FILE_NAME).unlink(missing_ok=True)  # Of an earlier attempt.
        write(self.pins / FILE_NAME, content)
        return True

    def _is_sealed(self, path: Path, known: AbstractSet[int]) -> bool:
        """Whether the log may free the segment: its partitions are sealed beyond it or deleted,
        and the checkpoint says so."""
        if self._checkpoint is None:
            return False
        if int(path.stem) + path.stat().st_size > self._checkpoint.position:
            return False
        loaded = FiledIndex.load(path.with_suffix(".index"), int(path.stem))
        if loaded is None:
            return False
        sealed = {each.number: each.sealed_end for each in self._checkpoint.partitions}
        ends = loaded[0].ends.items()
        return all(end <= sealed.get(number, -1) for number, end in ends if number in known)


def with_bounds(
    checkpoint: Checkpoint, bounds: Mapping[int, PartitionBounds]
) -> list[PartitionCheckpoint]:
    """A checkpoint's partitions with higher bounds, by partition number."""
    known = {each.number: each for each in checkpoint.partitions}
    for number, each in bounds.items():
        state = known.get(number) or PartitionCheckpoint(number)
        start = max(state.log_start, each.log_start)
        compacted_end = max(state.compacted_end, each.compacted_end)
        if (start, compacted_end) != (state.log_start, state.compacted_end):
            known[number] = replace(state, log_start=start, compacted_end=compacted_end)
    return sorted(known.values(), key=lambda state: state.number)


def check_segment(path: Path, size: int) -> None:
    """Raises StoreError for what no log has as a segment: a file from elsewhere may have any name
    and any size, and recovery reads what it finds. A log that went on where a segment ends between
    two lines could not be read again."""
    at = int(path.stem) if _NAME.fullmatch(path.name) else -1
    is_place = 0 <= at <= RESTORED.place_max and at % words.FRAME_ALIGNMENT_BYTES == 0
    if not is_place or size > SEGMENT_BYTES_MAX or size % words.FRAME_ALIGNMENT_BYTES:
        raise StoreError(
            str(path), f"with {size} bytes it is no segment of a log: somebody has changed it"
        )


def write_only(
    path: Path,
    target: Path,
    length: int,
    known: AbstractSet[int],
    open_source: Open = open_named,
) -> None:
    """Write a segment's first bytes, with padding in place of other partitions' batches.

    Raises OSError, StoreError as check_segment and blank_others do, and as `open_source`.
    """
    with opened(path, length, open_source) as fd:
        size = os.fstat(fd).st_size
        check_segment(path, size)
        data = OsDisk().read(fd, size, 0)
    length = min(length, len(data))  # The name may be another file's by then.
    data[length:] = 0
    blank_others(data, length, int(path.stem), known, path)
    write(target, data.data)


def blank_others(
    data: np.ndarray, end: int, first_position: int, known: AbstractSet[int], path: Path
) -> None:
    """Turn the batches and adoptions of other partitions in data[:end] into padding.

    Raises StoreError for damaged frames: beyond them a batch's partition is unknown.
    """
    rows, at, generation = np.zeros((_SCAN_ROWS, SCAN_COLUMNS), np.int64), 0, 0
    sums = new_sums(len(data))  # Only frames that have been passed are changed.
    while at < end:
        place = data, at, end, first_position
        count, stopped, generation = scan_frames(*place, generation, rows, sums)
        stops = [*rows[1 : int(count), S_AT].tolist(), int(stopped)]
        for row, stop in zip(rows[: int(count)].tolist(), stops, strict=False):
            _blank(data, row, stop, first_position, known)
        at = int(stopped)
        if int(count) < len(rows):
            break
    if at < end and int(find_frame(data, at, end, first_position, generation, sums)) >= 0:
        raise StoreError(
            str(path),
            f"it is damaged at position {first_position + at}; take a snapshot of all topics",
        )
    data[at:] = 0


def _blank(
    data: np.ndarray, row: list[int], stop: int, first_position: int, known: AbstractSet[int]
) -> None:
    """Blank a frame of others, and what the ring had before where a frame has nothing."""
    start = row[S_AT]
    has_number = row[S_KIND] in {words.FRAME_KIND_BATCH, words.FRAME_KIND_ADOPTION}
    if has_number and row[S_PARTITION] not in known:
        data[start:stop] = 0
        size = stop - start - words.FRAME_HEADER_BYTES
        stamps, kind = (row[S_SYNCED], row[S_GENERATION]), words.FRAME_KIND_PADDING
        write_frame_header(data, start, first_position + start, stamps, size, 0, kind, 0)
    else:
        filled = 0 if row[S_KIND] == words.FRAME_KIND_PADDING else row[S_BYTES]
        data[start + words.FRAME_HEADER_BYTES + filled : stop] = 0


def _is_full(path: Path, length: int, end: int | None) -> bool:
    """Whether nothing more is written to a segment. Of a log that no shard serves, only a full
    segment has a table."""
    is_filed = path.with_suffix(".index").exists()
    return length == path.stat().st_size and (end is not None or is_filed)


def _link_again(path: Path, pin: Path) -> None:
    """Link a file, replacing an existing link."""
    if pin.exists():
        if path.samefile(pin):
            return
        pin.unlink()
    os.link(path, pin)
