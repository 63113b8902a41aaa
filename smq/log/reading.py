"""Reads bytes of a log by position: from the ring while it has them, else from the WAL, checked.

A WAL frame that fails its check is damaged: its bytes, if any could be read, are put aside under
quarantine/, it is reported once, and look-ups skip it from then on, so that no reader gets stuck.

One that the disk cannot read may be whole: an error of the disk may end. So it is read again and
again, and taken for damaged only after a minute of failures, or some seconds while the log's space
is short, which it keeps from being freed. Each of its pages that fail must have failed for so long.
Meanwhile who asks for it is told that it cannot be read, and only the log itself tries the disk
(own_tries.py): again and again, and once more before the frame is lost. What lies before it is read
as ever.
"""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from shm.kernels.base.words import (
    BATCH_HEADER_BYTES,
    FRAME_ALIGNMENT_BYTES,
    FRAME_HEADER_BYTES,
    P_COMPACTED_END,
    P_DECIDED_END,
    P_LED_FROM,
    P_SEALED_END,
    WORD_RING_START,
    WORD_SPACE_END,
    WORD_TAIL,
)
from shm.kernels.log.spans import gather, gather_checked
from shm.segment import LogMemory
from smq.log.files.bad_pages import PATIENCE, PATIENCE_SHORT, pages_of
from smq.log.files.filed_index import FiledIndex
from smq.log.files.segment import WalSegment
from smq.log.files.wal import LOANS_END_BELOW, Wal
from smq.log.given_up import GivenUp, lost, set_aside
from smq.log.lookup import FoundBatches, Lookup
from smq.log.own_tries import OwnTries
from smq.log.partitions import Partitions

READ_GAP_BYTES_MAX = 64 * 1024  # Gap of other partitions' frames that one read of the WAL may span.
RUN_BYTES_MAX = 1024 * 1024  # Per read of the WAL: about what a socket takes at once.
DAMAGES_MAX = 64  # Of one run: each is put aside, in the loop.
RUNS_MAX = 64  # Reads for one answer to a socket: less than a millisecond's work.


class DamagedFrame(Exception):
    """Bytes of the WAL are damaged, gone or cannot be read now. Names file and position."""


class WalRange(NamedTuple):
    """Batches for one read of the WAL: `length` bytes of the log from `position` on."""

    position: int
    length: int
    spans: np.ndarray


class ReadableLog:
    """Finds and reads the batches of a log.

    notices        sentences for the operator, until they are taken
    now_ms         monotonic, as of about a second ago; None: not known yet
    bad_tried_ms   the latest of its segments
    """

    def __init__(self, memory: LogMemory, wal: Wal) -> None:
        self.memory, self.words = memory, memory.words
        self.wal, self.directory = wal, wal.files.directory
        self.partitions = Partitions(memory)
        self.lookup = Lookup(memory)
        self.links = self.lookup.links
        self.notices: list[str] = []
        self.now_ms: int | None = None
        self.bad_tried_ms = -1
        self.given_up = GivenUp(
            wal, self.partitions, self.lookup, self.notices, self._ring_oldest, self._are_over
        )
        self.own_tries = OwnTries(wal, memory, lambda: self.now_ms, self.given_up)

    def find(self, number: int, offset: int, limit: int, bytes_max: int) -> FoundBatches | None:
        """The whole batches of a partition from `offset` on and below offset `limit`.

        None: the offset has left the WAL or was compacted; sealed segments have it. So it is for
        decided ones of former leaderships: which transactions were aborted there nobody may know
        any more. The `limit` for these is the end of the leadership: offsets of other logs would
        seem to be lost.
        """
        slot = self.partitions.slots[number]
        row = self.partitions.table[slot]
        sealed_end = int(row[P_SEALED_END])
        if offset < row[P_COMPACTED_END]:
            return None
        if offset < row[P_LED_FROM]:
            if offset < row[P_DECIDED_END]:
                return None
            limit = min(limit, int(row[P_LED_FROM]))
        found = self.lookup.choose(number, slot, offset, limit, bytes_max, sealed_end)
        if found is None or not len(found.spans) or self.in_ring(int(found.spans[0, 0])):
            return found
        first = self.wal.find(int(found.spans[0, 0]))
        if first is not None and found.spans[-1, 0] < first.end:
            return found
        held = self._held(found.spans)
        return held if len(held.spans) else None

    def _held(self, spans: np.ndarray) -> FoundBatches:
        """The spans before the first one whose segment was freed (sealed data may go in any
        order)."""
        starts = np.array([segment.start for segment in self.wal.segments])
        ends = np.array([segment.end for segment in self.wal.segments])
        at = np.searchsorted(starts, spans[:, 0], "right") - 1
        gone = (spans[:, 0] >= ends[at]) | (at < 0)
        gone &= spans[:, 0] < self._ring_oldest()
        count = int(np.argmax(gone)) if gone.any() else len(spans)
        return FoundBatches(spans[:count], int(spans[:count, 1].sum()))

    def filed_indexes(self, number: int) -> list[FiledIndex]:
        """The filed tables that have the partition, oldest first."""
        return [segment.index for _, segment in self.lookup.filed_of(number) if segment.index]

    def in_ring(self, position: int) -> bool:
        """Whether the ring still has the bytes at a position."""
        return position >= self._ring_oldest()

    def _ring_oldest(self) -> int:
        words = self.words
        return max(words[WORD_RING_START], words[WORD_TAIL] - self.memory.layout.ring_bytes)

    def view(self, position: int, length: int) -> memoryview | None:
        """Bytes in the ring, lent until the next append; None when the ring has moved on."""
        if not self.in_ring(position):
            return None
        place = position % self.memory.layout.ring_bytes
        return self.memory.ring_view[place : place + length]

    def views(self, spans: np.ndarray) -> list[memoryview]:
        """Batches in the ring, lent until the next append."""
        ring, ring_bytes = self.memory.ring_view, self.memory.layout.ring_bytes
        places: list[tuple[int, int]] = spans.tolist()
        return [ring[(at := position % ring_bytes) : at + size] for position, size in places]

    def gather(self, spans: np.ndarray, out: np.ndarray) -> int:
        """Copy batches in the ring one after another into `out` (uint8); returns their bytes."""
        return int(gather(self.memory.ring, spans, len(spans), out))

    # --- the WAL ---------------------------------------------------------------------------------

    def first_run(self, spans: np.ndarray, bytes_max: int = RUN_BYTES_MAX) -> WalRange:
        """The first read of the WAL for batches that begin with one that the ring no longer has.

        One batch at least, otherwise `bytes_max` at most.
        """
        return self.runs(spans, bytes_max)[0]

    def runs(self, spans: np.ndarray, bytes_max: int = RUN_BYTES_MAX) -> list[WalRange]:
        """The reads for batches of one segment that begin with one that the ring no longer has.

        One batch at least, otherwise `bytes_max` at most in all.
        """
        spans = spans[: bytes_max // BATCH_HEADER_BYTES + 1]  # There may be a million more.
        ends = np.cumsum(spans[:, 1])
        count = max(1, int(np.searchsorted(ends, bytes_max, "right")))
        count = min(count, int(np.searchsorted(spans[:, 0], self._ring_oldest())))
        assert count, "the ring has the first of them"
        segment = self.wal.find(int(spans[0, 0]) - FRAME_HEADER_BYTES)
        if segment is not None:
            count = min(count, max(1, int(np.searchsorted(spans[:, 0], segment.end))))
        spans = spans[:count]
        gaps = spans[1:, 0] - (spans[:-1, 0] + spans[:-1, 1])
        # Reading across a wide gap would bring more foreign bytes than wanted ones.
        cuts = 1 + np.flatnonzero(gaps > READ_GAP_BYTES_MAX)[:RUNS_MAX]
        borders = [0, *cuts.tolist(), *([count] if len(cuts) < RUNS_MAX else [])]
        return [self.run_of(spans[start:end]) for start, end in pairwise(borders)]

    def run_of(self, spans: np.ndarray) -> WalRange:
        """One read of the WAL for all of these batches, which lie in one segment."""
        start = int(spans[0, 0]) - FRAME_HEADER_BYTES
        length = int(spans[-1].sum()) - start + FRAME_ALIGNMENT_BYTES
        return WalRange(start, length, spans)

    def read_cached(self, run: WalRange, out: np.ndarray | None = None) -> np.ndarray | None:
        """A run's bytes; None if they must be loaded. For `out` see Wal.read_cached()."""
        try:
            return self.wal.read_cached(run.position, run.length, out)
        except OSError:
            return None

    def read_runs(
        self, spans: np.ndarray, bytes_max: int, room: np.ndarray, out: np.ndarray
    ) -> tuple[memoryview, int] | None:
        """The first batches, joined, each checked, and their number; None if they must be loaded.
        A single one may be lent, as by Wal.read_cached(). Raises DamagedFrame for the first one.

        `room` (uint8) is memory to read into, and `out` for batches, `bytes_max` long at least.
        """
        runs = self.runs(spans, bytes_max)
        data = self.read_cached(runs[0], room)
        if data is None:
            return None
        if len(runs) == 1:
            return self.batches_of(runs[0], data, out), len(runs[0].spans)
        end = count = 0
        for run in runs:
            found = self.read_cached(run, room) if count else data
            if found is None:
                break
            there = int(gather_checked(found, run.position, run.spans, out, end))
            if there < 0:  # It raises when it is the first.
                break
            end, count = there, count + len(run.spans)
        if count == 0:
            return self.batches_of(runs[0], data, out), len(runs[0].spans)
        return out[:end].data, count

    def load(self, run: WalRange, done: Callable[[np.ndarray], None]) -> None:
        """Have a run's bytes read in the background."""
        self.wal.load(run.position, run.length, done)

    def batches_of(
        self, run: WalRange, data: np.ndarray, out: np.ndarray | None = None
    ) -> memoryview:
        """The batches of a run's bytes, one after another, each checked. Raises DamagedFrame.

        A single one is lent from `data`; more are copied, to `out` (uint8) if that is long enough.
        """
        total_bytes = int(run.spans[:, 1].sum())
        if len(run.spans) == 1:
            out = np.empty(0, np.uint8)
        elif out is None or total_bytes > len(out):
            out = np.empty(total_bytes, np.uint8)
        end = int(gather_checked(data, run.position, run.spans, out, 0))
        if end < 0:
            raise self._damage_in(run, data, -end - 1)
        assert end == total_bytes, "what an earlier answer left in `out` would go out as records"
        if len(run.spans) == 1:
            start = int(run.spans[0, 0]) - run.position
            return data[start : start + total_bytes].data
        return out[:total_bytes].data

    def collect(
        self, spans: np.ndarray, done: Callable[[bytes | DamagedFrame], None], before: bytes = b""
    ) -> None:
        """Give `done` the bytes of batches, appended to `before`: now, or once loaded.

        Only those before damage, and before what is not to be tried now: perhaps none. `done` gets
        a DamagedFrame if nothing lies before the damage.
        """
        parts, spans = [before], self.readable(spans)
        try:
            while len(spans) and not self.in_ring(int(spans[0, 0])):
                for run in self.runs(spans):
                    data = self.read_cached(run)
                    if data is None:
                        self.load(run, partial(self._collect_on, spans, done, b"".join(parts), run))
                        return
                    parts.append(bytes(self.batches_of(run, data)))
                    spans = spans[len(run.spans) :]
        except DamagedFrame as damage:
            done(b"".join(parts) or damage)
            return
        done(b"".join((*parts, *self.views(spans))))

    def _collect_on(
        self,
        spans: np.ndarray,
        done: Callable[[bytes | DamagedFrame], None],
        before: bytes,
        run: WalRange,
        data: np.ndarray,
    ) -> None:
        try:
            before += self.batches_of(run, data)
        except DamagedFrame as damage:
            done(before or damage)
            return
        self.collect(spans[len(run.spans) :], done, before)

    # --- damage ----------------------------------------------------------------------------------

    def _damage_in(self, run: WalRange, data: np.ndarray, first: int) -> DamagedFrame:
        """The error for the first damaged frame of a run. It meets those behind it too: a bad page
        may have very many, and each would cost its readers an attempt."""
        damages, number = list[DamagedFrame](), self._partition_of(run, first)
        while len(damages) < DAMAGES_MAX:
            position, size = run.spans[first].tolist()
            frame = position - FRAME_HEADER_BYTES
            at = frame - run.position
            damages.append(self._damage(number, frame, data[at : at + FRAME_HEADER_BYTES + size]))
            behind = run.spans[first + 1 :]
            end = int(gather_checked(data, run.position, behind, np.empty(0, np.uint8), 0))
            if end >= 0:
                break
            first -= end
        self.own_tries.begin()
        return damages[0]

    def _partition_of(self, run: WalRange, i: int) -> int:
        """The number of the partition whose batches a run has; it is asked for once: an index of a
        segment is searched for it."""
        position = int(run.spans[i, 0]) - FRAME_HEADER_BYTES
        segment = self.wal.find(position)
        return -1 if segment is None else self.lookup.partition_at(position, segment)

    def _damage(self, number: int, position: int, found: np.ndarray) -> DamagedFrame:
        """The error for a partition's damaged frame, which it puts aside, reports and skips."""
        segment = self.wal.find(position)
        if segment is None:
            return DamagedFrame(f"{self.directory}: position {position} has been freed")
        if segment.is_kept:
            return self._give_up(segment, position)
        place = self.lookup.place_of(number, position)
        if (
            place is None
            or self.lookup.behind_damage(number, place.base_offset) != place.base_offset
        ):
            return DamagedFrame(f"{segment.path}: damaged frame at position {position}")
        pages = pages_of(position - segment.start, len(found))
        if segment.bad_pages.has_any(pages):
            is_over = self._is_given_up(segment, position, pages)
            failing = segment.bad_pages.failing_of(pages)
            if is_over and len(failing):
                self.own_tries.ask(segment, int(failing[0]))
            if not is_over or len(failing):
                return DamagedFrame(f"{segment.path}: position {position} cannot be read now")
        self.given_up.lose_offsets(place)
        what = (
            f"{set_aside(self.directory, segment, position, found)}: "
            f"{lost(number, place.base_offset, place.end_offset)}"
        )
        self.notices.append(what)
        return DamagedFrame(what)

    def readable(self, spans: np.ndarray) -> np.ndarray:
        """These batches, or those before the first that the disk could not read.

        If that is the first of them: none. Then the log decides soon whether to give it up, if it
        could not for long.
        """
        if self.now_ms is None or self.bad_tried_ms < 0:
            return spans
        positions = spans[: np.searchsorted(spans[:, 0], self._ring_oldest()), 0]
        for segment in self.wal.segments:
            if segment.bad_tried_ms < 0:
                continue
            first, end = np.searchsorted(positions, (segment.start, segment.end)).tolist()
            if first < end:
                count = first + segment.count_before_unread(spans[first:end])
                if count == 0 and segment.is_kept:  # Whoever reads it frees it.
                    continue
                if count == 0:
                    self._ask_for(segment, spans[0])
                if count < end:
                    return spans[:count]
        return spans

    def _ask_for(self, segment: WalSegment, span: np.ndarray) -> None:
        """Have a frame with a page that fails tried once more, if that is all that is missing."""
        position, size = span.tolist()
        at = position - FRAME_HEADER_BYTES - segment.start
        pages = pages_of(at, FRAME_HEADER_BYTES + size)
        if self._are_over(segment, pages):
            self.own_tries.ask(segment, int(segment.bad_pages.failing_of(pages)[0]))
            self.own_tries.begin()

    def _is_given_up(self, segment: WalSegment, position: int, pages: range) -> bool:
        """Whether what cannot be read of a frame's pages has failed for long enough."""
        if self.now_ms is None:
            return False
        if self._are_over(segment, pages):
            return True
        is_told = segment.bad_tried_ms >= max(0, self.now_ms - PATIENCE.wait_ms)
        if segment.other_error is None and not is_told:  # Of others the log's own tries tell.
            self.notices.append(
                f"{segment.path}: position {position} cannot be read; it is tried again for up to "
                f"{PATIENCE.wait_ms // 1000} s before its records are given up"
            )
        segment.bad_tried_ms = self.bad_tried_ms = self.now_ms
        return False

    def _are_over(self, segment: WalSegment, pages: range) -> bool:
        left = self.words[WORD_SPACE_END] - self.words[WORD_TAIL]
        is_short = left < LOANS_END_BELOW * self.wal.files.limit
        patience = PATIENCE_SHORT if is_short else PATIENCE
        return segment.bad_pages.are_over(pages, patience, self.own_tries.waited_ms)

    def _give_up(self, segment: WalSegment, position: int) -> DamagedFrame:
        """Free a damaged kept segment: its records are sealed too, and are read from there."""
        what = f"{segment.path}: damage at position {position}; sealed segments have what it holds"
        if segment.pins == 0 and not self.wal.files.must_stay(segment):
            self.wal.files.free(segment)
            self.lookup.forget(segment)
            self.notices.append(what)
        return DamagedFrame(what)
