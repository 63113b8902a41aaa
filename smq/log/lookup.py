"""Where the batches of a log lie, by partition and offset.

    filed tables    of full segments, by partition (smq.log.files.filed_index)
    window          the index's newest entries, in shared memory (shm.kernels.log.index)

Both may know a batch; the window is asked first. Unknown offsets at or above a partition's sealed
end were lost with a damaged frame: readers skip them. Unknown or lost offsets below it have been
freed, or cannot be read here, and sealed segments hold them.
"""

from bisect import bisect_right
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from shm.kernels.base.entries import INDEX_DTYPES, LINK_COLUMNS
from shm.kernels.base.words import FRAME_HEADER_BYTES, WORD_INDEX_TAIL
from shm.kernels.log.index import first_entry
from shm.kernels.log.spans import NOT_IN_WINDOW, choose_batches
from shm.segment import LogMemory
from smq.log.files.filed_index import ENTRY, PIECE_ENTRIES, FiledIndex
from smq.log.files.pieces import by_pieces
from smq.log.files.segment import WalSegment
from smq.log.lost import LostOffsets

SPANS_MAX = 16384  # Batches per fetch of one partition.
UNLIMITED = 2**62


class FoundBatches(NamedTuple):
    """The result of a fetch of one partition: places of whole batches, and their bytes.

    spans   int64 [n, 2]: (position of the batch, bytes)
    """

    spans: np.ndarray
    total_bytes: int


NOTHING = FoundBatches(np.zeros((0, 2), np.int64), 0)


class IndexedBatch(NamedTuple):
    """A batch, by what the index knows of it."""

    number: int
    base_offset: int
    end_offset: int


class Lookup:
    """The window and the filed tables of one log.

    A forgotten segment loses its table at once. Its partitions' entries are dropped lazily, when
    they are next asked for or get another segment: a segment may have 10,000 of them.
    """

    def __init__(self, memory: LogMemory) -> None:
        self._memory = memory
        self._capacity = memory.layout.index_capacity
        self.links = np.zeros(
            (LINK_COLUMNS, self._capacity), np.int64
        )  # Each is written before it is read.
        # By partition number: (first offset, segment), in the order of offsets.
        self._filed: dict[int, list[tuple[int, WalSegment]]] = {}
        self._forgotten = 0  # Segments, in this life …
        self._looked: dict[int, int] = {}  # … and how many when a partition was last looked at.
        self._lost: dict[int, LostOffsets] = {}
        self._spans = np.zeros((SPANS_MAX, 2), np.int64)

    def register(self, segment: WalSegment, index: FiledIndex) -> None:
        """Make a full segment's table part of look-ups."""
        segment.index = index
        for number, offset in index.first_offsets.items():
            mine = self._filed.setdefault(number, [])
            while mine and mine[0][1].index is None:
                del mine[0]
            mine.append((offset, segment))

    def forget(self, segment: WalSegment) -> None:
        """A segment is freed."""
        assert segment.index is not None
        segment.index = None
        self._forgotten += 1

    def filed_of(self, number: int) -> list[tuple[int, WalSegment]]:
        """The full segments that have the partition: (first offset, segment), oldest first."""
        mine = self._filed.get(number, [])
        if self._looked.get(number, 0) == self._forgotten:
            return mine
        mine = [pair for pair in mine if pair[1].index is not None]
        if mine:
            self._filed[number] = mine
            self._looked[number] = self._forgotten
        else:
            self.drop_filed(number)
        return mine

    def drop_filed(self, number: int) -> None:
        """Forget the partition's entries: no full segment has it."""
        self._filed.pop(number, None)
        self._looked.pop(number, None)

    def invariants(self) -> None:
        """Raise AssertionError when a partition's segments are not in order."""
        for mine in self._filed.values():
            for (offset, segment), (later, after) in pairwise(mine):
                assert offset <= later
                assert segment.end <= after.start
        for lost in self._lost.values():
            lost.invariants()

    def drop(self, number: int) -> None:
        """A partition is gone."""
        self.drop_filed(number)
        self._lost.pop(number, None)

    # --- the window ------------------------------------------------------------------------------

    def entry_at(self, position: int) -> int:
        """The first entry at or after a position; the window must hold it."""
        positions = self._memory.column("position")
        high = self._memory.words[WORD_INDEX_TAIL]
        low = max(0, high - self._capacity)
        while low < high:
            middle = (low + high) // 2
            if positions[middle % self._capacity] < position:
                low = middle + 1
            else:
                high = middle
        return low

    def entries(self, first: int, end: int) -> np.ndarray:
        """The entries [first, end) as filed tables hold them; all must be in the window."""
        assert end - first <= self._capacity
        entries = np.zeros(end - first, ENTRY)
        columns = {name: self._memory.column(name) for name in INDEX_DTYPES}
        begin = first % self._capacity
        turn = min(end - first, self._capacity - begin)  # There the slots begin again at 0.
        for part, slot in ((entries[:turn], begin), (entries[turn:], 0)):
            for piece in by_pieces(len(part), PIECE_ENTRIES):
                slots = slice(slot + piece.start, slot + piece.stop)
                for name, column in columns.items():
                    part[name][piece] = column[slots]
        return entries

    def first_offset_from(self, number: int, position: int) -> int | None:
        """The first offset of a partition in frames at or after a position; None: it has none."""
        for _, segment in self.filed_of(number):
            assert segment.index is not None
            mine = segment.index.of_partition(number)
            later = mine[mine["position"] >= position]
            if len(later):
                return int(later["base_offset"][0])
        entries = self.entries(self.entry_at(position), self._memory.words[WORD_INDEX_TAIL])
        later = entries[entries["partition"] == number]
        return int(later["base_offset"][0]) if len(later) else None

    def oldest_offset(self, number: int, slot: int) -> int | None:
        """The first offset of a partition in a table or the window; None: there is none.

        The window may have older ones than the tables: those of a freed segment.
        """
        found = [offset for offset, _ in self.filed_of(number)[:1]]
        entry = int(first_entry(self._memory.memory, self.links, slot))
        if entry >= 0:
            found.append(int(self._memory.column("base_offset")[entry % self._capacity]))
        return min(found, default=None)

    def _in_window(self, position: int) -> IndexedBatch | None:
        entry = self.entry_at(position)
        i = entry % self._capacity
        column = self._memory.column
        if entry == self._memory.words[WORD_INDEX_TAIL] or int(column("position")[i]) != position:
            return None
        base = int(column("base_offset")[i])
        return IndexedBatch(
            int(column("partition")[i]), base, base + int(column("record_count")[i])
        )

    # --- finding ---------------------------------------------------------------------------------

    def place_of(self, number: int, position: int) -> IndexedBatch | None:
        """The batch whose frame is at a position, if it is the partition's."""
        place = self._in_window(position)
        if place is not None:
            return place
        for _, segment in self.filed_of(number):
            if segment.index is not None and segment.start <= position < segment.end:
                i = segment.index.at_position(number, position)
                if i >= 0:
                    entry = segment.index.of_partition(number)[i]
                    base = int(entry["base_offset"])
                    return IndexedBatch(number, base, base + int(entry["record_count"]))
        return None

    def partition_at(self, position: int, segment: WalSegment) -> int:
        """The number of the partition whose frame is at a position; -1: unknown."""
        place = self._in_window(position)
        if place is not None:
            return place.number
        if segment.index is None:
            return -1
        entries = segment.index.entries
        hits = np.flatnonzero(entries["position"] == position)
        return int(entries["partition"][hits[0]]) if len(hits) else -1

    def choose(  # noqa: PLR0913, PLR0917  (a partition, a range, a limit)
        self, number: int, slot: int, offset: int, limit: int, bytes_max: int, sealed_end: int
    ) -> FoundBatches | None:
        """The whole batches of a partition from `offset` on, below offset `limit`.

        None: the offset's segment was freed, or lost; sealed segments have it.
        """
        while True:
            readable = self.behind_damage(number, offset)
            if offset < min(readable, sealed_end):  # Unless it was lost before it was sealed.
                return None
            offset = readable
            damage = self._next_damage(number, offset)
            found = self._choose(number, slot, offset, min(limit, damage), bytes_max, sealed_end)
            if found is None or len(found.spans) or damage >= limit:
                return found
            offset = damage  # A start has not found what lies before.

    def _choose(  # noqa: PLR0913, PLR0917  (as choose())
        self, number: int, slot: int, offset: int, limit: int, bytes_max: int, sealed_end: int
    ) -> FoundBatches | None:
        """As choose(), of a range in which nothing turned out to be damaged."""
        if offset >= limit:
            return NOTHING
        count, total = choose_batches(
            self._memory.memory, self.links, slot, offset, limit, bytes_max, self._spans
        )
        if count == NOT_IN_WINDOW:
            count, total = self._choose_filed(number, offset, limit, bytes_max, sealed_end)
        if count <= 0 and offset >= sealed_end:
            count, total = self._choose_first(slot, offset, limit, bytes_max)
        if count <= 0:
            return None if offset < sealed_end else NOTHING
        if offset < sealed_end:
            place = self.place_of(number, int(self._spans[0, 0]) - FRAME_HEADER_BYTES)
            if place is None or place.base_offset > offset:
                return None
        return FoundBatches(self._spans[:count].copy(), int(total))

    def _choose_filed(
        self, number: int, offset: int, limit: int, bytes_max: int, sealed_end: int
    ) -> tuple[int, int]:
        for _, segment in self._filed_from(number, offset):
            assert segment.index is not None
            count, total = segment.index.choose(number, offset, limit, bytes_max, self._spans)
            if count or offset < sealed_end:
                return count, total
        return 0, 0

    def _choose_first(self, slot: int, offset: int, limit: int, bytes_max: int) -> tuple[int, int]:
        """From the oldest batch in the window on, if all of it lies beyond the offset."""
        entry = int(first_entry(self._memory.memory, self.links, slot))
        base = int(self._memory.column("base_offset")[entry % self._capacity]) if entry >= 0 else -1
        if base <= offset:
            return 0, 0
        count, total = choose_batches(
            self._memory.memory, self.links, slot, base, limit, bytes_max, self._spans
        )
        return int(count), int(total)

    def _filed_from(self, number: int, offset: int) -> list[tuple[int, WalSegment]]:
        """As filed_of(), starting at the segment that may hold `offset`: there may be many kept
        ones."""
        mine = self.filed_of(number)
        return mine[max(0, bisect_right(mine, offset, key=lambda pair: pair[0]) - 1) :]

    def filed_from(self, number: int, offset: int) -> list[tuple[int, int, int]]:
        """For each full segment, what it holds of a partition from `offset` on: end, newest time,
        bytes."""
        found = []
        for _, segment in self._filed_from(number, offset):
            assert segment.index is not None
            mine = segment.index.of_partition(number)
            mine = mine[mine["base_offset"] >= offset]
            if len(mine):
                end = segment.index.ends[number]
                found.append((end, int(mine["max_timestamp"].max()), int(mine["bytes"].sum())))
        return found

    def bytes_from(self, number: int, slot: int, offset: int) -> int:
        """The bytes of a partition's batches from `offset` on, in filed tables and window."""
        total, filed_end = 0, offset
        for _, segment in self._filed_from(number, offset):
            assert segment.index is not None
            total += segment.index.bytes_from(number, offset)
            filed_end = max(filed_end, segment.index.ends[number])
        return total + self._window_bytes(slot, filed_end)

    def _window_bytes(self, slot: int, offset: int) -> int:
        total = 0
        while True:
            count, size = choose_batches(
                self._memory.memory, self.links, slot, offset, UNLIMITED, UNLIMITED, self._spans
            )
            if count == NOT_IN_WINDOW:
                count, size = self._choose_first(slot, offset, UNLIMITED, UNLIMITED)
            total += max(0, int(size))
            if count < SPANS_MAX:
                return total
            last = self._in_window(int(self._spans[count - 1, 0]) - FRAME_HEADER_BYTES)
            assert last is not None
            if last.end_offset <= offset:  # Of a log from elsewhere, whose offsets do not grow.
                return total
            offset = last.end_offset

    # --- damage ----------------------------------------------------------------------------------

    def lose(self, place: IndexedBatch, needed_from: int = 0) -> None:
        """A batch turned out to be damaged: skip its offsets from now on. Nobody asks whether those
        below `needed_from` were lost."""
        lost = self._lost.setdefault(place.number, LostOffsets())
        lost.add(place.base_offset, place.end_offset)
        lost.forget_below(min(needed_from, place.base_offset))

    def behind_damage(self, number: int, offset: int) -> int:
        """The offset itself, or the one after the damaged batches that contain it."""
        lost = self._lost.get(number)
        return offset if lost is None else lost.behind(offset)

    def has_readable(self, number: int, index: FiledIndex, offset: int) -> bool:
        """Whether a table has batches of a partition, from an offset on, that are not lost."""
        if index.ends.get(number, 0) <= offset:
            return False
        if not self.has_damage_from(number, offset):
            return True
        mine = index.of_partition(number)
        is_lost = self._lost[number].among(mine["base_offset"])
        ends = mine["base_offset"] + mine["record_count"]
        return bool(((ends > offset) & ~is_lost).any())

    def has_damage_from(self, number: int, offset: int) -> bool:
        """Whether damaged batches hold this offset or later ones."""
        lost = self._lost.get(number)
        return lost is not None and lost.reach_beyond(offset)

    def _next_damage(self, number: int, offset: int) -> int:
        lost = self._lost.get(number)
        damage = None if lost is None else lost.next_from(offset)
        return UNLIMITED if damage is None else damage
