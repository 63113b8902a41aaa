"""Writes checkpoints, and frees the segments that a checkpoint makes unnecessary.

A segment may go when all its partitions are sealed beyond it or deleted, and a checkpoint says so:
a start without the segment must know the same ends, sealed ends and producers. It is kept and
readable until the WAL needs its space (smq.log.files.segment_files).

What undecided segments hold goes once two checkpoints say so. A death while the newest is written
leaves the one before: it must know which transactions were open in what the WAL has no more.
"""

from collections.abc import Callable

from shm.kernels.base.words import (
    P_DECIDED_END,
    P_LOG_START,
    WORD_SPACE_END,
    WORD_TAIL,
)
from smq.log.adoption import Adoptions
from smq.log.files.background import Background
from smq.log.files.disk import Disk
from smq.log.files.segment import WalSegment
from smq.log.holders import LOOKS_MAX, Holders
from smq.log.producers import Producers
from smq.log.reading import ReadableLog
from smq.log.snapshot import LogSnapshot
from smq.log.transactions import LogTransactions


class Freeing:
    """The checkpoints of one log, one at a time, and the segments that each of them frees.

    `freed()` is called after segments have become free space.
    """

    def __init__(
        self,
        log: ReadableLog,
        kept: tuple[Producers, LogTransactions, Adoptions],
        disk: Disk,
        background: Background,
        freed: Callable[[], None],
    ) -> None:
        self._log, self._kept = log, kept
        self._disk, self._background, self._freed = disk, background, freed
        self.holders = Holders(log.partitions, log.lookup)
        self._readable = Holders(log.partitions, log.lookup, P_LOG_START)
        self._undecided = Holders(log.partitions, log.lookup, P_DECIDED_END)
        self._known_before: list[WalSegment] = []  # Those that the last checkpoint allowed to free.
        log.wal.files.kept.reclaim = self._reclaim
        self._is_writing = self._is_wanted = False
        self._when_durable: list[Callable[[], None]] = []

    def invariants(self) -> None:
        """Raise AssertionError when a caller waits for a checkpoint that will never be written."""
        self.holders.invariants()
        self._readable.invariants()
        self._undecided.invariants()
        assert self._is_writing or self._is_wanted or not self._when_durable

    def snapshot(self) -> LogSnapshot:
        """The current state, to be saved."""
        return LogSnapshot(self._log.memory, self._log.partitions, *self._kept)

    def checkpoint(self, durable: Callable[[], None] | None = None) -> None:
        """Write a checkpoint in the background; then free the segments that it allows to free.

        `durable()` is called once a checkpoint of the present state, or a later one, is durable.
        """
        if durable is not None:
            self._when_durable.append(durable)
        self._is_wanted = True
        if not self._is_writing:
            self._begin()

    def tend(self) -> None:
        """Write a checkpoint if the last one failed, or if segments could be freed."""
        self._forget_unreadable()
        self._log.wal.files.make_room()
        if self._is_wanted or self.freeable():
            self.checkpoint()

    def keep_sealed(self) -> None:
        """At a start: mark all segments as kept that are sealed according to the loaded checkpoint,
        however many partitions it must examine. Unmarked segments count as needed."""
        is_done = False
        while not is_done:
            found = self.freeable()
            is_done = self.holders.looks < LOOKS_MAX
            self._keep([each for each in found if not self._undecided.need(each)])

    def freeable(self) -> list[WalSegment]:
        """The full segments that are not kept yet and whose partitions are all sealed beyond them
        or deleted."""
        self.holders.begin()
        self._undecided.begin()
        segments = self._log.wal.segments[:-1]
        wanted = (each for each in segments if each.index is not None and not each.is_kept)
        return [each for each in wanted if self._is_free(each)]

    def _is_free(self, segment: WalSegment) -> bool:
        if self._log.wal.files.must_stay(segment):
            return False
        return not self.holders.need(segment)

    def _begin(self) -> None:
        self._is_writing, self._is_wanted = True, False
        waiting, self._when_durable = self._when_durable, []
        state, known = self.snapshot(), self.freeable()
        free = [
            each for each in known if each in self._known_before or not self._undecided.need(each)
        ]

        def done(failure: OSError | None) -> None:
            self._is_writing = False
            if failure is not None:  # The next checkpoint, or tend(), tries again.
                self._when_durable = waiting + self._when_durable
                self._is_wanted = True
                return
            self._known_before = known
            self._keep(free)
            for call in waiting:
                call()
            if self._is_wanted and not self._is_writing:
                self._begin()

        state.save(self._background, self._disk, self._log.directory, done)

    def _keep(self, segments: list[WalSegment]) -> None:
        self.holders.begin()
        for segment in segments:
            if self._is_free(segment):
                self.holders.forget(segment)
                self._undecided.forget(segment)
                self._log.wal.files.kept.add(segment)
        self._forget_unreadable()
        self._log.wal.files.make_room()
        self._freed()

    def _reclaim(self, *, even_lent: bool) -> bool:
        """See smq.log.files.kept.Reclaim."""
        log = self._log
        left = log.words[WORD_SPACE_END] - log.words[WORD_TAIL]
        files = log.wal.files
        kept = [segment for segment in files.kept.segments if not files.must_stay(segment)]
        found = [segment for segment in kept if not log.wal.is_held(segment, left)]
        if not found and even_lent:
            found = [segment for segment in kept if segment.pins == 0]
        for segment in found[:1]:
            self._free(segment)
        return bool(found)

    def _forget_unreadable(self) -> None:
        """Free the kept segments whose records have all been dropped by retention or deletion."""
        self._readable.begin()
        for segment in [*self._log.wal.files.kept.segments]:
            if segment.index is None or segment.pins or segment.loans:
                continue  # Freeing one may have freed others.
            if self._log.wal.files.must_stay(segment):
                continue
            if not self._readable.need(segment):
                self._free(segment)

    def _free(self, segment: WalSegment) -> None:
        self._readable.forget(segment)
        self._log.wal.files.free(segment)
        self._log.lookup.forget(segment)
