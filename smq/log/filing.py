"""Files look-up tables: index entries of full segments leave the index's window.

    loop         note where a segment's entries begin      register the table
    background                                   sort them                    save the table

The window is a ring of entries in shared memory. An entry may be overwritten once a table holds it
and it is published: WORD_INDEX_KEEP is the first entry that may not.
"""

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from shm.kernels.base.words import (
    DURABILITY_DISK,
    DURABILITY_MEMORY,
    DURABILITY_OS,
    WORD_INDEX_KEEP,
    WORD_INDEX_TAIL,
)
from smq.log.files.background import Background, JobLane
from smq.log.files.disk import Disk
from smq.log.files.filed_index import FiledIndex
from smq.log.files.segment import WalSegment
from smq.log.reading import ReadableLog

LEVELS = frozenset({DURABILITY_MEMORY, DURABILITY_OS, DURABILITY_DISK})


class Filing:
    """The window of a log's index, and the tables of its full segments.

    cursors          int64 [3], by durability: the first entry that publish() has not passed
    has_disk_frames  the log may have frames of `disk` topics: then a close syncs, and so does the
                     next start. Stays true for a log's life
    """

    def __init__(
        self,
        log: ReadableLog,
        disk: Disk,
        background: Background,
        boot_id: bytes,
        filed: Callable[[], None],
    ) -> None:
        self._log, self._disk, self._background = log, disk, background
        self._boot_id, self._filed = boot_id, filed
        self.cursors = np.zeros(3, np.int64)
        self.has_disk_frames = False

    def invariants(self) -> None:
        """Raise AssertionError if the window has lost an entry that is needed."""
        words = self._log.words
        kept = words[WORD_INDEX_TAIL] - words[WORD_INDEX_KEEP]
        assert 0 <= kept <= self._log.memory.layout.index_capacity

    def enter_segments(self) -> None:
        """Note where the entries of new segments begin; file the tables of those that are full.

        The last segment must be a new one.
        """
        segments = self._log.wal.segments
        first = len(segments)
        while first and segments[first - 1].first_entry < 0:
            first -= 1
            segments[first].first_entry = self._log.lookup.entry_at(segments[first].start)
        for full, following in pairwise(segments[max(0, first - 1) :]):
            if full.index is None:
                self._file(full, following.first_entry)

    def _file(self, segment: WalSegment, end_entry: int) -> None:
        """Build a full segment's table and save it. The window keeps its entries until then."""
        first, has_disk_frames = segment.first_entry, self.has_disk_frames

        def build() -> FiledIndex:
            entries = self._log.lookup.entries(first, end_entry)
            return FiledIndex.sorted(entries, has_disk_frames=has_disk_frames)

        def save(index: FiledIndex) -> FiledIndex:
            index.save(self._disk, segment.index_path, segment.start, self._boot_id)
            filed = FiledIndex.load(segment.index_path, segment.start)
            return index if filed is None else filed[0]

        def built(index: FiledIndex | OSError) -> None:
            assert not isinstance(index, OSError)  # Building it reads memory only.
            self.register(segment, index)
            self._background.submit(JobLane.TABLES, lambda: save(index), saved)
            self._filed()

        def saved(index: FiledIndex | OSError) -> None:
            # The only cost of a missing table: the next start scans the segment.
            if isinstance(index, FiledIndex) and segment.index is not None:
                segment.index = index

        self._background.submit(JobLane.TABLES, build, built)

    def register(self, segment: WalSegment, index: FiledIndex) -> None:
        """Make a full segment's table part of look-ups; the window may drop its entries."""
        self._log.lookup.register(segment, index)
        self.free_entries()

    def free_entries(self) -> None:
        """Let filed and published entries be overwritten."""
        unfiled = (s.first_entry for s in self._log.wal.segments if s.index is None)
        keep = [first for first in unfiled if first >= 0]
        keep += [self._log.words[WORD_INDEX_TAIL], int(self.cursors.min())]
        self._log.words[WORD_INDEX_KEEP] = min(keep)

    def make_room(self, levels: set[int]) -> None:
        """Let filed and published entries be overwritten; wait for a table if there are none.

        `levels` are the durabilities of the log's partitions.
        """
        for level in LEVELS - levels:
            self.cursors[level] = self._log.words[WORD_INDEX_TAIL]  # It has nothing to publish.
        self.free_entries()
        if not self.has_room():
            self._background.wait_a_job(JobLane.TABLES)
            self.free_entries()

    def has_room(self) -> bool:
        """Whether the window takes one more entry."""
        entries = self._log.words[WORD_INDEX_TAIL] + 1 - self._log.words[WORD_INDEX_KEEP]
        return entries <= self._log.memory.layout.index_capacity
