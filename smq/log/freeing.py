"""Writing checkpoints, and freeing the segments that a checkpoint no longer needs.

A segment is freed when all its partitions are sealed beyond it, or gone, and a checkpoint says so:
a start without the segment must know the same ends, sealed ends and producers.
"""

from collections.abc import Callable

from shm.kernels.base.words import WORD_SPACE_END, WORD_SYNCED, WORD_TAIL
from smq.log.background import Background
from smq.log.disk import Disk
from smq.log.holders import Holders
from smq.log.producers import Producers
from smq.log.reading import ReadableLog
from smq.log.snapshot import Snapshot
from smq.log.sync import Syncs
from smq.log.wal import Segment


class Freeing:
    """The checkpoints of one log, one at a time, and what each of them frees.

    `freed()` is called after segments have been freed.
    """

    def __init__(  # noqa: PLR0913, PLR0917  (the parts of a log that it reads)
        self,
        log: ReadableLog,
        producers: Producers,
        syncs: Syncs,
        disk: Disk,
        background: Background,
        freed: Callable[[], None],
    ) -> None:
        self._log, self._producers, self._syncs = log, producers, syncs
        self._disk, self._background, self._freed = disk, background, freed
        self.holders = Holders(log.partitions, log.lookup)
        self._is_writing = self._is_wanted = False
        self._when_durable: list[Callable[[], None]] = []

    def invariants(self) -> None:
        """Raise AssertionError when somebody waits for a checkpoint that nobody will write."""
        self.holders.invariants()
        assert self._is_writing or self._is_wanted or not self._when_durable

    def snapshot(self) -> Snapshot:
        """The state to remember, as of now."""
        return Snapshot(self._log.memory, self._log.partitions, self._producers)

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
        if self._is_wanted or self.freeable():
            self.checkpoint()

    def freeable(self) -> list[Segment]:
        """The full segments whose partitions are all sealed beyond them, or gone."""
        self.holders.begin()
        segments = self._log.wal.segments[:-1]
        return [each for each in segments if each.index is not None and self._is_free(each)]

    def _is_free(self, segment: Segment) -> bool:
        assert segment.index is not None
        words = self._log.words
        is_held = self._log.wal.is_held(segment, words[WORD_SPACE_END] - words[WORD_TAIL])
        if is_held or (segment.end > words[WORD_SYNCED] and self._syncs.syncer.busy()):
            return False
        return not self.holders.need(segment)

    def _begin(self) -> None:
        self._is_writing, self._is_wanted = True, False
        waiting, self._when_durable = self._when_durable, []
        state, free = self.snapshot(), self.freeable()

        def done(failure: OSError | None) -> None:
            self._is_writing = False
            if failure is not None:  # The next checkpoint, or tend(), tries again.
                self._when_durable = waiting + self._when_durable
                self._is_wanted = True
                return
            self.holders.begin()
            self._free([segment for segment in free if self._is_free(segment)])
            for call in waiting:
                call()
            if self._is_wanted and not self._is_writing:
                self._begin()

        state.save(self._background, self._disk, self._log.directory, done)

    def _free(self, segments: list[Segment]) -> None:
        for segment in segments:
            self.holders.forget(segment)
            self._log.lookup.forget(segment)
            self._log.wal.free(segment)
        self._freed()
