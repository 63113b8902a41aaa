"""Loses the frames of pages that the disk cannot read, from the index: nobody asks for each.

A megabyte may have ten thousand frames, and a client that gets an error comes again after half a
second. So with the pages that have just failed once more goes all that has a part in them, and
nothing else: not what has a page that has not failed for long, nor what the ring has. What a sealed
segment has too is read from there (Lookup.choose).

Of a frame that has a page that can be read, that page is set aside.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from shm.kernels.base.words import (
    FRAME_HEADER_BYTES,
    P_LOG_START,
    P_OPEN_FROM,
    P_SEALED_END,
)
from smq.log.files.disk import PAGE_BYTES
from smq.log.files.segment import WalSegment
from smq.log.files.segment_files import QUARANTINE
from smq.log.files.wal import Wal
from smq.log.lookup import IndexedBatch, Lookup
from smq.log.partitions import Partitions

NOTICES_MAX = 1000  # At a time, of what is lost: there may be 10,000 partitions.


def set_aside(directory: Path, segment: WalSegment, position: int, found: np.ndarray) -> str:
    """Keep damaged bytes of a log for later inspection; returns a sentence on what they are and
    where they are now."""
    path = directory / QUARANTINE / f"{position:020d}.frame"
    try:
        path.parent.mkdir(exist_ok=True, mode=0o700)
        path.write_bytes(found.data)
        where = f"set aside in {path}"
    except OSError as error:
        where = f"not set aside ({error})"
    return f"the frame at position {position} of {segment.path} is damaged and {where}"


class _Frame(NamedTuple):
    """A frame of the index."""

    position: int
    bytes: int
    partition: int
    base_offset: int
    record_count: int


_FRAME_COLUMNS = _Frame._fields


class _LostRange(NamedTuple):
    """Neighbours of a partition, of which the first one lies at a position."""

    path: Path
    position: int
    base: int
    end: int


class GivenUp:
    """What one log has given up.

    notices     sentences for the operator
    ring_oldest the ring has what lies behind this position
    are_over    whether those of a segment's pages that fail have done so for long
    """

    def __init__(  # noqa: PLR0913, PLR0917  (parts of a log)
        self,
        wal: Wal,
        partitions: Partitions,
        lookup: Lookup,
        notices: list[str],
        ring_oldest: Callable[[], int],
        are_over: Callable[[WalSegment, range], bool],
    ) -> None:
        self._wal, self._partitions, self._lookup = wal, partitions, lookup
        self._notices, self._ring_oldest, self.are_over = notices, ring_oldest, are_over
        self._untold: dict[int, _LostRange] = {}  # By partition.

    def frames_in(self, segment: WalSegment, pages: range) -> Callable[[], np.ndarray]:
        """What finds the frames that have a part in pages of a segment: as the index has them
        (filed_index.ENTRY). Not in the loop: a table may have a million."""
        start, end = (segment.start + page * PAGE_BYTES for page in (pages.start, pages.stop))
        if segment.index is not None:
            return partial(_frames_between, segment.index.entries, start, end)
        first = max(0, self._lookup.entry_at(start) - 1)  # One may begin before.
        entries = self._lookup.entries(first, self._lookup.entry_at(end))
        return partial(_frames_between, entries, start, end)

    def lose(self, segment: WalSegment, frames: np.ndarray, bad: Sequence[int]) -> None:
        """Pages of a segment have failed for long, and once more just now (ascending): lose those
        of these frames that have a part in them."""
        positions = frames["position"]
        firsts = (positions - segment.start) // PAGE_BYTES
        ends = -(-(_ends(frames) - segment.start) // PAGE_BYTES)
        hit = np.searchsorted(bad, ends) > np.searchsorted(bad, firsts)
        hit &= positions + FRAME_HEADER_BYTES < self._ring_oldest()
        pages = zip(firsts[hit].tolist(), ends[hit].tolist(), strict=True)
        are_over = dict[tuple[int, int], bool]()  # Most frames lie in one page.
        rows = zip(*(frames[name][hit].tolist() for name in _FRAME_COLUMNS), strict=True)
        for row, (first, end) in zip(rows, pages, strict=True):
            if (first, end) not in are_over:
                are_over[first, end] = self.are_over(segment, range(first, end))
            if not are_over[first, end] or not self._lose(segment, _Frame(*row)):
                continue
            is_in_one = first + 1 == end
            if not is_in_one and len(segment.bad_pages.failing_of(range(first, end))) < end - first:
                self._set_aside(segment, *row[:2])

    def _lose(self, segment: WalSegment, frame: _Frame) -> bool:
        """Lose a frame, unless it was lost before, or nobody reads it."""
        position, _, number, base, count = frame
        slot = self._partitions.slots.get(number)
        if slot is None or self._lookup.behind_damage(number, base) != base:
            return False
        place = IndexedBatch(number, base, base + count)
        self.lose_offsets(place)
        partition = self._partitions.table[slot]
        if place.end_offset > max(partition[P_SEALED_END], partition[P_LOG_START]):
            self._note(segment, position, place)
        return True

    def lose_offsets(self, place: IndexedBatch) -> None:
        """Skip a batch from now on."""
        number = place.number
        slot = self._partitions.slots.get(number)
        needed_from = 0  # Below it nobody asks for what was lost: no reader, no open transaction.
        if slot is not None and not self._partitions.table[slot, P_OPEN_FROM]:
            needed_from = next((offset for offset, _ in self._lookup.filed_of(number)), 0)
        self._lookup.lose(place, needed_from)

    def _note(self, segment: WalSegment, position: int, place: IndexedBatch) -> None:
        number, base, end = place
        before = self._untold.pop(number, None)
        if before is not None and (before.path, before.end) == (segment.path, base):
            self._untold[number] = before._replace(end=end)
            return
        if before is not None:
            self._tell(number, before)
        self._untold[number] = _LostRange(segment.path, position, base, end)

    def tell(self) -> None:
        """Tell the operator what was lost; some of it, if that is of many partitions."""
        while self._untold and len(self._notices) < NOTICES_MAX:
            number = next(iter(self._untold))
            self._tell(number, self._untold.pop(number))

    def _tell(self, number: int, told: _LostRange) -> None:
        path, position, base, end = told
        what = lost(number, base, end)
        self._notices.append(f"{path} from position {position} on cannot be read: {what}")

    def tell_why(self, segment: WalSegment) -> None:
        """Tell the operator of an error that may last, and gives up nothing however long it does:
        what it hides may be whole."""
        if segment.other_error is not None and len(segment.bad_pages.failing()):
            self._notices.append(
                f"{segment.path} cannot be read in part: {segment.other_error}. This says nothing "
                "of what the file holds, so none of it is given up: its readers and its sealing "
                "wait, and it is tried again all the time. If that does not help, mend what the "
                "error names, and start the broker again"
            )

    def _set_aside(self, segment: WalSegment, position: int, size: int) -> None:
        """Read what can be read of a frame, and keep it."""
        length = FRAME_HEADER_BYTES + size

        def loaded(found: np.ndarray) -> None:
            if len(found) == length:  # Otherwise the segment was freed meanwhile.
                keep = partial(
                    set_aside, self._wal.files.directory, segment, position, found[:length]
                )
                self._wal.aside(keep, self._notices.append)

        self._wal.load(position, length, loaded)


def lost(number: int, base: int, end: int) -> str:
    """What a notice says of offsets of a partition that are lost."""
    return f"offsets {base} to {end - 1} of partition {number} are lost, the others are served"


def _frames_between(entries: np.ndarray, start: int, end: int) -> np.ndarray:
    found: np.ndarray = entries[(entries["position"] < end) & (_ends(entries) > start)]
    return found[np.argsort(found["position"])]


def _ends(entries: np.ndarray) -> np.ndarray:
    ends: np.ndarray = entries["position"] + FRAME_HEADER_BYTES + entries["bytes"]
    return ends
