"""A log: one frame ring, its index, one write-ahead log, and the partitions that live in it.

    append (kernels)  ->  ring, index                       position TAIL
    write()           ->  WAL file, by pwrite               position WRITTEN
    sync              ->  disk, by the syncer's thread      position SYNCED
    publish(level)    ->  high watermarks, when the level's position has passed the frames

The shard that serves a log is its only writer. What a reader may see is decided by the partition's
high watermark alone; the ring holds what is newest, the WAL what is not sealed yet.

After a failed write or sync the log refuses to append until repair() has written what is in doubt
again, from the ring, to a fresh file.
"""

import os
from collections.abc import Callable, Collection
from itertools import pairwise

import numpy as np

from shm.kernels.base.words import (
    DURABILITY_DISK,
    DURABILITY_MEMORY,
    DURABILITY_OS,
    FLAG_READ_ONLY,
    P_FLAGS,
    P_LOG_END,
    P_LOG_START,
    P_SEALED_END,
    P_UNSEALED_SINCE_MS,
    WORD_GENERATION,
    WORD_INDEX_KEEP,
    WORD_INDEX_TAIL,
    WORD_LOG,
    WORD_SPACE_END,
    WORD_SYNCED,
    WORD_TAIL,
    WORD_WRITTEN,
)
from shm.kernels.log.visible import publish
from shm.segment import LogMemory
from smq.log.ahead import RingAhead
from smq.log.background import Background, Lane
from smq.log.disk import Disk, told
from smq.log.filed_index import FiledIndex
from smq.log.holders import Holders
from smq.log.partitions import PartitionSettings
from smq.log.producers import Producers
from smq.log.reading import ReadableLog
from smq.log.repair import (
    Part,
    Rewritten,
    forget_failed_sync,
    hide_unsynced,
    note_failed_sync,
    parts_from,
    rewrite,
    ring_holds,
)
from smq.log.snapshot import Snapshot
from smq.log.sync import Syncer
from smq.log.wal import NoSegment, Segment, Wal

TOUCHED_MAX = 4096
_REACHED = {
    DURABILITY_MEMORY: WORD_TAIL,
    DURABILITY_OS: WORD_WRITTEN,
    DURABILITY_DISK: WORD_SYNCED,
}


class Log(ReadableLog):
    """One log of a shard. Made by smq.log.recovery.open_log, which restores what it was.

    Invariants: SYNCED <= WRITTEN <= TAIL; what the WAL does not have is in the ring; index entries
    that are neither filed nor published are in the window.
    """

    def __init__(  # noqa: PLR0913, PLR0917  (a log's ports)
        self,
        memory: LogMemory,
        wal: Wal,
        disk: Disk,
        syncer: Syncer,
        background: Background,
        boot_id: bytes,
    ) -> None:
        super().__init__(memory, wal)
        self.number = int(memory.words[WORD_LOG])
        self.disk, self.syncer, self.background = disk, syncer, background
        self.boot_id = boot_id
        self.holders = Holders(self.partitions, self.lookup)
        self.producers = Producers(os.urandom(16))
        self.cursors = np.zeros(3, np.int64)
        self._ahead = RingAhead(memory, background)
        self.has_disk_frames = False
        self.failed: str | None = None
        self.is_repairing = False
        self._in_doubt_from = 0
        self._may_repair = self._is_beyond_repair = False
        self._has_written = True  # Since the last repair.
        self._unshown: set[int] = set()  # Partitions of a start whose sync has failed.
        self._touched = np.zeros(TOUCHED_MAX, np.int64)
        self.sync_wanted = 0
        self._is_checkpointing = self._checkpoint_wanted = False
        self._when_durable: list[Callable[[], None]] = []

    def invariants(self) -> None:
        """Raise AssertionError when the log is not as its rooms say."""
        words = self.words
        assert words[WORD_SYNCED] <= words[WORD_WRITTEN] <= words[WORD_TAIL]
        assert words[WORD_TAIL] - words[WORD_WRITTEN] <= self.memory.layout.ring_bytes
        kept = words[WORD_INDEX_TAIL] - words[WORD_INDEX_KEEP]
        assert 0 <= kept <= self.memory.layout.index_capacity
        self.partitions.invariants()
        self.producers.invariants()
        self.holders.invariants()
        self.lookup.invariants()
        self.wal.invariants()

    def adopt(self, number: int, settings: PartitionSettings) -> int:
        """Lead a partition, or take over changed settings; returns its slot."""
        is_new = number not in self.partitions.slots
        slot = self.partitions.configure(number, settings)
        self.has_disk_frames |= settings.durability == DURABILITY_DISK
        if is_new:
            self.partitions.lead(number, self.words[WORD_GENERATION])
        if self.failed is not None:
            self.partitions.table[slot, P_FLAGS] |= FLAG_READ_ONLY
        if number in self._unshown:
            self._unshown.remove(number)
            if settings.durability == DURABILITY_DISK:
                hide_unsynced(self, number)
        return slot

    # --- writing ---------------------------------------------------------------------------------

    @property
    def tail(self) -> int:
        """The position after the last appended frame."""
        return self.words[WORD_TAIL]

    @property
    def space_left(self) -> int:
        """How much more can be appended before wal.bytes.max is reached."""
        return self.words[WORD_SPACE_END] - self.tail

    def set_space_end(self) -> None:
        """Have appends refused from where the segments' files would take more than they may.

        That much is never exceeded but by the one segment that a start of a full log needs to fence
        off the life before, and while a repair writes a fresh file beside the one it replaces.
        """
        self.words[WORD_SPACE_END] = self.wal.space_end(self.words[WORD_WRITTEN])

    def is_written(self) -> bool:
        """Whether the WAL has everything that was appended."""
        return self.words[WORD_WRITTEN] == self.words[WORD_TAIL]

    def write(self) -> bool:
        """Give the WAL what was appended since the last write; False: the log has failed."""
        if self.failed is not None:
            return False
        start, end = self.words[WORD_WRITTEN], self.tail
        if start == end:
            return True
        try:
            self.wal.write(self.memory.ring_view, start, end)
        except NoSegment as error:
            segments = self.wal.segments
            self.fail(str(error), segments[-1].end if segments else start)
            return False
        except OSError as error:
            self.fail(f"writing the WAL failed: {told(error)}", start)
            return False
        self.words[WORD_WRITTEN] = end
        self.note_written()
        return True

    def note_written(self) -> None:
        """What follows a write, also one that a kernel has done."""
        self._has_written = True
        if self.wal.segments[-1].first_entry < 0:
            self._enter_segments()
        self._ahead.look(self.words[WORD_WRITTEN])

    def _enter_segments(self) -> None:
        """Note where the entries of new segments begin; file the tables of those that are full."""
        segments = self.wal.segments
        first = len(segments)
        while first and segments[first - 1].first_entry < 0:
            first -= 1
            segments[first].first_entry = self.lookup.entry_at(segments[first].start)
        for full, following in pairwise(segments[max(0, first - 1) :]):
            if full.index is None:
                self._file_index(full, following.first_entry)

    def want_sync(self) -> None:
        """Have all that was written synced; what comes while a sync runs goes with the next."""
        self.sync_wanted = self.words[WORD_WRITTEN]
        self.push_sync()

    def push_sync(self) -> None:
        """Post the wanted sync if the syncer is free. A segment is synced before the next one."""
        if self.failed is not None:
            return
        synced = self.words[WORD_SYNCED]
        if self.syncer.failed():
            self.fail("fdatasync of the WAL failed", synced)
            note_failed_sync(self.directory, self.boot_id)
            return
        if self.syncer.busy() or self.sync_wanted <= synced:
            return
        for segment in self.wal.segments:
            if segment.end <= synced or segment.start >= self.sync_wanted:
                continue
            if not self.syncer.post(segment.fd, min(segment.end, self.sync_wanted)):
                return  # Nor may a later one pass it: the rest goes with the next push.

    def _file_index(self, segment: Segment, end_entry: int) -> None:
        """Make a full segment's table, whose entries stay in the window until then; file it."""
        first, has_disk_frames = segment.first_entry, self.has_disk_frames

        def build() -> FiledIndex:
            entries = self.lookup.entries(first, end_entry)
            return FiledIndex.sorted(entries, has_disk_frames=has_disk_frames)

        def save(index: FiledIndex) -> FiledIndex:
            index.save(self.disk, segment.index_path, segment.start, self.boot_id)
            filed = FiledIndex.load(segment.index_path, segment.start)
            return index if filed is None else filed[0]

        def built(index: FiledIndex | OSError) -> None:
            assert not isinstance(index, OSError)  # It is made of memory.
            self.register(segment, index)
            self.background.submit(Lane.TABLES, lambda: save(index), saved)
            self.checkpoint()

        def saved(index: FiledIndex | OSError) -> None:
            # A table that cannot be filed costs the next start a scan of the segment, nothing more.
            if isinstance(index, FiledIndex) and segment.index is not None:
                segment.index = index

        self.background.submit(Lane.TABLES, build, built)

    def register(self, segment: Segment, index: FiledIndex) -> None:
        """Make a full segment's table part of look-ups; the window need not have its entries."""
        self.lookup.register(segment, index)
        self._keep_entries()

    def _keep_entries(self) -> None:
        """Index entries may be overwritten once they are filed and published."""
        unfiled = (s.first_entry for s in self.wal.segments if s.index is None)
        keep = [first for first in unfiled if first >= 0]
        keep += [self.words[WORD_INDEX_TAIL], int(self.cursors.min())]
        self.words[WORD_INDEX_KEEP] = min(keep)

    def publish(self, level: int) -> list[int]:
        """Move the HWM of partitions of a level up to what has reached it; the slots that moved."""
        word = _REACHED[level]
        count: int = publish(
            self.memory.memory, self.links, self.cursors, level, self.words[word], self._touched
        )
        slots: list[int] = self._touched[:count].tolist()
        return slots

    def make_room_in_index(self, levels: set[int]) -> None:
        """Let entries be overwritten that are filed and published; waits for tables if it must.

        `levels` are the durabilities of the log's partitions.
        """
        for level in {DURABILITY_MEMORY, DURABILITY_OS, DURABILITY_DISK} - levels:
            self.cursors[level] = self.words[WORD_INDEX_TAIL]  # There is nothing to publish for it.
        self._keep_entries()
        if not self._has_room_in_index():
            self.background.wait_a_job(Lane.TABLES)
            self._keep_entries()

    def _has_room_in_index(self) -> bool:
        entries = self.words[WORD_INDEX_TAIL] + 1 - self.words[WORD_INDEX_KEEP]
        return entries <= self.memory.layout.index_capacity

    # --- failure ---------------------------------------------------------------------------------

    def fail(self, why: str, in_doubt_from: int) -> None:
        """Refuse to append: every partition of the log answers KAFKA_STORAGE_ERROR."""
        self.failed, self._in_doubt_from = why, in_doubt_from
        self._may_repair = self._has_written
        self.notices.append(f"{self.directory}: {why}; the log is read-only until it is repaired")
        for slot in self.partitions.slots.values():
            self.partitions.table[slot, P_FLAGS] |= FLAG_READ_ONLY

    def fail_start(self, why: str) -> None:
        """What earlier lives have written cannot be made durable: read-only until a restart."""
        self.fail(why, self.words[WORD_SYNCED])
        self._is_beyond_repair = True
        note_failed_sync(self.directory, self.boot_id)
        self._unshown = set(self.partitions.slots)

    @property
    def may_recover(self) -> bool:
        """Whether an attempt at repair runs, or waits only for a sync to end."""
        return self.failed is not None and (self.is_repairing or self._may_repair)

    def repair(self) -> bool:
        """Have the log written again after a failure; whether it is healthy.

        What the disk may not have is written from the ring to fresh files, in the background. It
        is tried once; then tend() tries again, also where a repair was followed by a failure.
        """
        if self.failed is None or self.is_repairing or self._is_syncing() or not self._may_repair:
            return self.failed is None
        self._may_repair = self._has_written = False
        if self._is_beyond_repair:
            return False
        since, words = self._in_doubt_from, self.words
        if self.syncer.failed():
            since = min(since, words[WORD_SYNCED])
        if not ring_holds(self, since):
            self.failed = "the ring no longer holds what must be written to the WAL again"
            return False
        self.is_repairing = True
        parts = parts_from(self, since)
        for part in parts:
            part.segment.pins += 1
        self.background.submit(
            Lane.FILES, lambda: rewrite(self, parts), lambda r: self._rewritten(since, parts, r)
        )
        return self.write()

    def _rewritten(self, since: int, parts: list[Part], result: Rewritten | OSError) -> None:
        assert isinstance(result, Rewritten)
        self.is_repairing = False
        for part in parts:
            part.segment.pins -= 1
        for part, fd in zip(parts, result.fds, strict=False):
            self.wal.swap(part.segment, fd)
        if result.failure is not None:
            self.failed = f"the WAL cannot be written: {told(result.failure)}"
            return
        words, written = self.words, max([since, *(part.end for part in parts)])
        words[WORD_WRITTEN] = max(words[WORD_WRITTEN], written)
        if since <= words[WORD_SYNCED] < written:
            words[WORD_SYNCED] = written
        self._recover()

    def _is_syncing(self) -> bool:
        return self.syncer.busy() and not self.syncer.failed()

    def _recover(self) -> None:
        if self.syncer.failed():
            self.syncer.reset()
            forget_failed_sync(self.directory)
        self.failed = None
        self.notices.append(f"{self.directory}: the WAL is written again")
        for slot in self.partitions.slots.values():
            self.partitions.table[slot, P_FLAGS] &= ~FLAG_READ_ONLY

    def tend(self) -> None:
        """Once a second or so: try again what failed, free what slow readers have let go."""
        self._may_repair = True
        self.repair()
        self._ahead.look(self.tail)
        self.wal.prepare_next()
        self.producers.sweep()
        if self._checkpoint_wanted or self.freeable():
            self.checkpoint()

    # --- sealing and freeing ---------------------------------------------------------------------

    def sealed(self, number: int, end: int, now_ms: int) -> None:
        """Sealed segments hold everything of a partition below `end`."""
        row = self.partitions.table[self.partitions.slots[number]]
        if end > int(row[P_LOG_END]):  # A power loss took what had been sealed: it is not lost.
            self.partitions.extend(number, end, self.words[WORD_GENERATION])
        row[P_SEALED_END] = max(int(row[P_SEALED_END]), end)
        self.count_unsealed(number, now_ms)

    def count_unsealed(self, number: int, since_ms: int) -> None:
        """Set what of a partition is not sealed, and since when."""
        slot = self.partitions.slots[number]
        row, total = self.partitions.table[slot], 0
        if int(row[P_SEALED_END]) < int(row[P_LOG_END]):
            total = max(1, self.lookup.bytes_from(number, slot, int(row[P_SEALED_END])))
        self.partitions.set_unsealed(number, total, since_ms)

    def set_log_start(self, number: int, offset: int) -> None:
        """Retention has dropped everything below `offset`, sealed or not."""
        self.partitions.start_at(number, offset)
        row = self.partitions.table[self.partitions.slots[number]]
        row[P_SEALED_END] = max(int(row[P_SEALED_END]), int(row[P_LOG_START]))
        self.count_unsealed(number, int(row[P_UNSEALED_SINCE_MS]))

    def drop_partitions(self, numbers: Collection[int]) -> None:
        """Their topics are gone: their frames hold no WAL space any more."""
        for number in numbers:
            self.partitions.drop(number)
            self.lookup.drop(number)
        self.producers.drop_partitions(set(numbers))

    def freeable(self) -> list[Segment]:
        """The full segments that nobody needs: all their partitions sealed beyond them, or gone."""
        self.holders.begin()
        return [s for s in self.wal.segments[:-1] if s.index is not None and self._is_free(s)]

    def _is_free(self, segment: Segment) -> bool:
        assert segment.index is not None
        is_held = self.wal.is_held(segment, self.space_left)
        if is_held or (segment.end > self.words[WORD_SYNCED] and self.syncer.busy()):
            return False
        return not self.holders.need(segment)

    # --- checkpoints -----------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """The state to remember, as of now."""
        return Snapshot(self.memory, self.partitions, self.producers)

    def checkpoint(self, durable: Callable[[], None] | None = None) -> None:
        """Write a checkpoint in the background; then free what it allows to free.

        `durable()` is called when a checkpoint of at least the present state has been written.
        """
        if durable is not None:
            self._when_durable.append(durable)
        self._checkpoint_wanted = True
        if not self._is_checkpointing:
            self._begin_checkpoint()

    def _begin_checkpoint(self) -> None:
        self._is_checkpointing, self._checkpoint_wanted = True, False
        waiting, self._when_durable = self._when_durable, []
        state, free = self.snapshot(), self.freeable()

        def done(failure: OSError | None) -> None:
            self._is_checkpointing = False
            if failure is not None:  # The next checkpoint, or tend(), tries again.
                self._when_durable = waiting + self._when_durable
                self._checkpoint_wanted = True
                return
            self.holders.begin()
            self._free([segment for segment in free if self._is_free(segment)])
            for call in waiting:
                call()
            if self._checkpoint_wanted and not self._is_checkpointing:
                self._begin_checkpoint()

        state.save(self.background, self.disk, self.directory, done)

    def _free(self, segments: list[Segment]) -> None:
        for segment in segments:
            self.holders.forget(segment)
            self.lookup.forget(segment)
            self.wal.free(segment)
        self._keep_entries()
        self.set_space_end()

    def close(self) -> None:
        """Write and remember everything, then close: a clean stop.

        What a broken disk does not take any more is said; the next start has what was written.
        """
        self.background.wait()
        try:
            if self.write() and self.has_disk_frames:
                self.wal.sync_from(self.words[WORD_SYNCED])
                self.words[WORD_SYNCED] = self.words[WORD_WRITTEN]
            self.snapshot().save_now(self.disk, self.directory)
        except OSError as error:
            self.notices.append(f"{self.directory}: closing: {told(error)}")
            note_failed_sync(self.directory, self.boot_id)
        self.syncer.stop()
        self.wal.close()
