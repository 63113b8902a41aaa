"""A log: one frame ring, its index, one write-ahead log, and the partitions that live in it.

    append (kernels)  ->  ring, index                       position TAIL
    write()           ->  WAL file, by pwrite               position WRITTEN
    sync              ->  disk, by the syncer's thread      position SYNCED
    publish(level)    ->  high watermarks, when the level's position has passed the frames

The shard that serves a log is its only writer. A partition's high watermark alone decides what a
reader may see. The ring holds the newest frames, the WAL those that are not sealed yet.

The log itself moves the positions. Its parts do the rest:

    health    failure and repair                            smq.log.repair
    syncs     which positions are synced, one by one        smq.log.sync
    filing    the index's window, tables of full segments   smq.log.filing
    freeing   checkpoints, and the segments they free       smq.log.freeing
    sealing   how far partitions are sealed                 smq.log.sealed_ends
    transactions  which are open, which were aborted        smq.log.transactions
    losses    which starts may have lost records            smq.log.losses
    adoptions  what may come to be led here                 smq.log.adoption
"""

from collections.abc import Callable, Collection
from functools import partial

import numpy as np

from shm.kernels.base.words import (
    DURABILITY_DISK,
    DURABILITY_MEMORY,
    DURABILITY_OS,
    P_LED_FROM,
    WORD_GENERATION,
    WORD_INDEX_TAIL,
    WORD_LOG,
    WORD_SPACE_END,
    WORD_SPACE_LIMIT,
    WORD_SYNCED,
    WORD_TAIL,
    WORD_WRITTEN,
)
from shm.kernels.log.visible import publish
from shm.segment import LogMemory
from smq.log.adoption import Adoptions, StateExport
from smq.log.ahead import RingAhead
from smq.log.files.background import Background, JobLane
from smq.log.files.disk import Disk, told
from smq.log.files.segment import NoSegment
from smq.log.files.wal import Wal
from smq.log.filing import Filing
from smq.log.freeing import Freeing
from smq.log.losses import BOOT_FILE, Losses
from smq.log.partitions import PartitionSettings
from smq.log.producers import Producers
from smq.log.reading import ReadableLog
from smq.log.repair import Health, note_failed_sync
from smq.log.sealed_ends import SealedEnds
from smq.log.sync import Syncer, Syncs
from smq.log.transactions import LogTransactions

TOUCHED_MAX = 4096
RESERVE_SHARE = 20  # One part in this many of the disk is left to others: the sealer writes too.
RESERVE_BYTES_MAX = 4 * 1024**3
_REACHED = {
    DURABILITY_MEMORY: WORD_TAIL,
    DURABILITY_OS: WORD_WRITTEN,
    DURABILITY_DISK: WORD_SYNCED,
}


class Log(ReadableLog):
    """One log of a shard. smq.log.recovery.open_log makes it and restores its state.

    Invariants: SYNCED <= WRITTEN <= TAIL; the ring holds what the WAL does not have; the window
    holds the index entries that are not filed or not published.
    """

    def __init__(  # noqa: PLR0913, PLR0917  (a log's ports)
        self,
        memory: LogMemory,
        wal: Wal,
        disk: Disk,
        syncer: Syncer,
        background: Background,
        boot_id: bytes,
        producers_key: bytes,
    ) -> None:
        super().__init__(memory, wal)
        self.number = int(memory.words[WORD_LOG])
        self.disk, self.background, self.boot_id = disk, background, boot_id
        self.losses = Losses(wal.files.directory, boot_id)
        self.producers = Producers(producers_key)
        self.transactions = LogTransactions(self.partitions, self.producers)
        self.syncs = Syncs(memory, wal, syncer)
        self.health = Health(self, self.syncs, background, boot_id)
        self.filing = Filing(self, disk, background, boot_id, self.checkpoint)
        self.adoptions = Adoptions(memory, self.partitions, self.producers, self.transactions)
        kept = self.producers, self.transactions, self.adoptions
        self.freeing = Freeing(self, kept, disk, background, self._freed)
        self.sealing = SealedEnds(self, self.transactions)
        self.cursors = self.filing.cursors
        wal.files.must_stay, wal.files.syncer_may_use = self.syncs.end_in, self.syncs.may_use
        wal.files.footprint.failed = self._fail_write_back
        wal.files.footprint.heard = partial(note_failed_sync, wal.files.directory, boot_id)
        wal.files.footprint.may_drop = lambda: self.health.failed is None
        self._ahead = RingAhead(memory, background)
        self._touched = np.zeros(TOUCHED_MAX, np.int64)

    def invariants(self) -> None:
        """Raise AssertionError when the log or one of its parts breaks an invariant."""
        words = self.words
        assert words[WORD_SYNCED] <= words[WORD_WRITTEN] <= words[WORD_TAIL]
        assert words[WORD_TAIL] - words[WORD_WRITTEN] <= self.memory.layout.ring_bytes
        # What a level's cursor has passed is not looked at again: it would never become visible.
        assert max(self.cursors) <= words[WORD_INDEX_TAIL]
        self.partitions.invariants()
        self.producers.invariants()
        self.transactions.invariants()
        self.adoptions.invariants()
        self.lookup.invariants()
        self.wal.invariants()
        self.syncs.invariants()
        self.health.invariants()
        self.filing.invariants()
        self.freeing.invariants()

    # --- partitions ------------------------------------------------------------------------------

    def adopt(self, number: int, settings: PartitionSettings) -> int:
        """Lead a partition that has never moved, or apply changed settings; returns its slot."""
        slot = self.configure(number, settings)
        if number not in self.partitions.led:
            self.lead(number)
        return slot

    def configure(self, number: int, settings: PartitionSettings) -> int:
        """Apply a topic's settings to a partition; returns its slot. It leads nothing."""
        slot = self.partitions.configure(number, settings)
        self.filing.has_disk_frames |= settings.durability == DURABILITY_DISK
        self.health.adopt(number, settings.durability)
        return slot

    def lead(self, number: int, epoch: int = 0, start: int = 0) -> None:
        """Lead a partition in a leadership of this log that has begun in `epoch` at offset `start`,
        from now on, or again: it takes appends.

        A pending adoption of this epoch is applied. The epoch of what is appended is the newest
        that is known, and not below the generation.
        """
        self._know(number, epoch, start)
        newest = max(epoch, self.partitions.newest_epoch(number))
        self.partitions.lead(number, max(newest, int(self.words[WORD_GENERATION])))

    def close_partition(self, number: int, epoch: int = 0, start: int = 0) -> None:
        """Take no appends to a partition, for it moves; `epoch` and `start` as for lead(). At a
        start it takes no epoch: clients know the newest one."""
        self._know(number, epoch, start)
        self.partitions.close(number, epoch)

    def become_tail(self, number: int, end: int) -> None:
        """Another log leads a partition from offset `end` on, and knows of it what this one has
        known: its history, producers and transactions."""
        self.partitions.slot_of(number)
        self.partitions.become_tail(number, end)
        self.producers.drop_partitions({number})
        self.transactions.drop(number)
        self.transactions.decided(number)

    def state_of(self, number: int) -> StateExport:
        """What another log is to adopt of a partition that is closed here."""
        return StateExport(self.words, self.partitions, self.producers, self.transactions, number)

    def _know(self, number: int, epoch: int, start: int) -> None:
        pending = self.adoptions.pending(number)
        if pending is not None and pending.epoch == epoch:
            self.adoptions.apply(number)
        self.partitions.raise_end(number, start)
        row = self.partitions.table[self.partitions.slots[number]]
        row[P_LED_FROM] = max(int(row[P_LED_FROM]), start)

    def raise_level(self, before: int, level: int) -> None:
        """A partition's durability rises: note what it may have lost before, and sync the rest."""
        self.losses.raised(before, level)
        if self.failed is None:
            self.save_losses()
            self.want_sync()

    def save_losses(self) -> None:
        """Write what is known of losses; tend() tries again what fails. The log must have written
        the fence of its life: a start takes a torn end before it for damage otherwise."""
        try:
            self.losses.save(self.disk)
        except OSError as error:
            self.notices.append(f"{self.directory / BOOT_FILE} cannot be written: {told(error)}")

    def drop_partitions(self, numbers: Collection[int]) -> None:
        """Forget partitions whose topics are deleted: their frames no longer hold WAL space."""
        for number in numbers:
            self.partitions.drop(number)
            self.lookup.drop(number)
            self.transactions.drop(number)
            self.adoptions.drop(number)
        self.producers.drop_partitions(set(numbers))

    # --- space -----------------------------------------------------------------------------------

    @property
    def tail(self) -> int:
        """The position after the last appended frame."""
        return self.words[WORD_TAIL]

    @property
    def space_left(self) -> int:
        """How many bytes can be appended before wal.bytes.max is reached."""
        return self.words[WORD_SPACE_END] - self.tail

    def set_space_end(self) -> None:
        """Refuse appends from the position where the segments' files would exceed wal.bytes.max.

        Three cases exceed it by one segment: a start of a full log, which needs one to fence off
        the former life, a repair, which writes a fresh file beside the one it replaces, and a kept
        segment that is being written back.
        """
        self.words[WORD_SPACE_END] = self.wal.files.space_end(self.words[WORD_WRITTEN])
        self.words[WORD_SPACE_LIMIT] = self.wal.files.limit

    def fit_disk(self) -> None:
        """Leave a reserve of the disk to others, and give space back if the reserve is short."""
        try:
            free_bytes, total_bytes = self.disk.space(self.directory)
        except OSError:
            return  # Then the limit stays as it is.
        self.wal.files.fit(free_bytes, min(RESERVE_BYTES_MAX, total_bytes // RESERVE_SHARE))
        self.set_space_end()

    def _freed(self) -> None:
        self.filing.free_entries()
        self.set_space_end()

    # --- writing, syncing, publishing ------------------------------------------------------------

    @property
    def failed(self) -> str | None:
        """Why the log refuses appends; None: it accepts them."""
        return self.health.failed

    def is_written(self) -> bool:
        """Whether the WAL has everything that was appended."""
        return self.words[WORD_WRITTEN] == self.words[WORD_TAIL]

    def write(self) -> bool:
        """Write to the WAL what was appended since the last write; False: the log has failed."""
        if self.health.failed is not None:
            return False
        start, end = self.words[WORD_WRITTEN], self.words[WORD_TAIL]
        if start == end:
            return True
        try:
            self.wal.write(self.memory.ring_view, start, end)
        except NoSegment as error:
            segments = self.wal.segments
            self.health.fail(str(error), segments[-1].end if segments else start)
            return False
        except OSError as error:
            self.health.fail(f"writing the WAL failed: {told(error)}", start)
            return False
        self.words[WORD_WRITTEN] = end
        self.note_written()
        return True

    def note_written(self) -> None:
        """Do what follows a write by write() or by a kernel."""
        self.health.has_written = True
        if self.wal.segments[-1].first_entry < 0:
            self.filing.enter_segments()
        self._ahead.look(self.words[WORD_WRITTEN])

    def want_sync(self) -> None:
        """Sync everything written so far. While a sync runs, later writes wait for the next."""
        self.syncs.want()
        self.push_sync()

    def push_sync(self) -> None:
        """Post the wanted sync if the syncer is free; fail if a sync has failed."""
        if self.health.failed is None and not self.syncs.push():
            self.health.fail_sync()

    def _fail_write_back(self, error: OSError) -> None:
        self.health.fail_sync(f"a write-back of the WAL failed: {told(error)}")

    def publish(self, level: int) -> list[int]:
        """Raise the high watermarks of a level's partitions to the position that has reached that
        level.

        Returns the slots whose high watermark moved.
        """
        word = _REACHED[level]
        count: int = publish(
            self.memory.memory, self.links, self.cursors, level, self.words[word], self._touched
        )
        slots: list[int] = self._touched[:count].tolist()
        return slots

    # --- upkeep ----------------------------------------------------------------------------------

    def repair(self) -> bool:
        """Begin the repair of a failed log; whether the log is healthy and written.

        A failure allows one attempt, and each tend() one more.
        """
        if self.health.failed is None:
            return True
        if not (self.health.begin_repair() and self.write()):
            return False
        self.push_sync()  # What was wanted meanwhile.
        return True

    def tend(self) -> None:
        """Call about once a second: retry what failed, free what slow readers have released."""
        self.health.allow_repair()
        if self.repair() and not self.losses.is_saved:
            self.save_losses()
        self._ahead.look(self.tail)
        self.wal.files.prepare_next()
        self.wal.files.footprint.trim()
        self.wal.past_cache.look()
        self.own_tries.tend()
        self.producers.sweep()
        self.freeing.tend()

    def checkpoint(self, durable: Callable[[], None] | None = None) -> None:
        """Write a checkpoint in the background; call `durable` when it is durable."""
        self.freeing.checkpoint(durable)

    def close(self) -> None:
        """Write everything and a checkpoint, then close: a clean stop.

        If the disk refuses, report it; the next start recovers what was written.
        """
        # A stop must not wait for a chain of jobs: on busy cores each takes long.
        self.wal.files.footprint.may_drop = lambda: False
        self._ahead.stop()
        self.own_tries.stop()
        for lane in (JobLane.READS, JobLane.SEARCHES):  # Nobody is there to get their answers.
            self.background.abandon(lane)
        self.background.wait()
        try:
            if self.write() and self.filing.has_disk_frames:
                self.wal.sync_from(self.words[WORD_SYNCED])
                self.words[WORD_SYNCED] = self.words[WORD_WRITTEN]
            self.freeing.snapshot().save_now(self.disk, self.directory)
        except OSError as error:
            self.notices.append(f"{self.directory}: closing: {told(error)}")
            note_failed_sync(self.directory, self.boot_id)
        self.syncs.syncer.stop()
        self.wal.close()
