"""A log: one frame ring, its index, one write-ahead log, and the partitions that live in it.

    append (kernels)  ->  ring, index                       position TAIL
    write()           ->  WAL file, by pwrite               position WRITTEN
    sync              ->  disk, by the syncer's thread      position SYNCED
    publish(level)    ->  high watermarks, when the level's position has passed the frames

The shard that serves a log is its only writer. What a reader may see is decided by the partition's
high watermark alone; the ring holds what is newest, the WAL what is not sealed yet.

After a failed write or sync nothing is known of what the disk has since SYNCED (the kernel may have
marked the pages clean): the log refuses to append until repair() has written all of it again, from
the ring, to a fresh file.
"""

from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from shm.kernels.fetch import NOT_IN_WINDOW, choose_batches, gather, gather_checked
from shm.kernels.frames import batch_crc_is_good, frame_is_good
from shm.kernels.producers import (
    PRODUCER_COLUMNS,
    R_SLOT,
    producers_are_full,
    rehash_producers,
)
from shm.kernels.visible import publish
from shm.kernels.words import (
    DURABILITY_DISK,
    DURABILITY_MEMORY,
    DURABILITY_OS,
    FLAG_READ_ONLY,
    FRAME_ALIGNMENT_BYTES,
    FRAME_HEADER_BYTES,
    P_FLAGS,
    P_LOG_END,
    P_LOG_START,
    P_SEALED_END,
    P_UNSEALED_BYTES,
    P_UNSEALED_SINCE_MS,
    WORD_GENERATION,
    WORD_INDEX_KEEP,
    WORD_INDEX_TAIL,
    WORD_LOG,
    WORD_RING_START,
    WORD_SEGMENT_END,
    WORD_SYNCED,
    WORD_TAIL,
    WORD_WRITTEN,
)
from shm.segment import LogMemory
from smq.log.background import Background
from smq.log.checkpoint import Checkpoint
from smq.log.disk import Disk
from smq.log.filed_index import FiledIndex
from smq.log.partitions import Partitions, PartitionSettings
from smq.log.sync import Syncer
from smq.log.wal import Segment, Wal

PRODUCERS_FIRST = 1024  # Rows of a new log's table of producers; it doubles when half full.
SPANS_MAX = 16384  # Batches one fetch of one partition can take.
TOUCHED_MAX = 4096
LINK_ROWS = 5
_REACHED = {
    DURABILITY_MEMORY: WORD_TAIL,
    DURABILITY_OS: WORD_WRITTEN,
    DURABILITY_DISK: WORD_SYNCED,
}
READ_GAP_BYTES_MAX = 64 * 1024  # Of other partitions' frames, read over in one read of the WAL.


class Found(NamedTuple):
    """What a fetch of one partition gets: places of whole batches, and their bytes.

    spans   int64 [n, 2]: (position of the batch, bytes)
    """

    spans: np.ndarray
    total_bytes: int


class DamagedFrame(Exception):
    """Bytes of the WAL are not what was written there. Names file and position."""


class Log:
    """One log of a shard. Made by smq.log.recovery.open_log, which restores what it was."""

    def __init__(
        self,
        memory: LogMemory,
        directory: Path,
        disk: Disk,
        syncer: Syncer,
        background: Background,
        segment_bytes: int,
    ) -> None:
        self.memory, self.words = memory, memory.words
        self.number = int(memory.words[WORD_LOG])
        self.directory, self.disk = directory, disk
        self.syncer, self.background = syncer, background
        self.wal = Wal(directory, disk, background, segment_bytes)
        self.partitions = Partitions(memory)
        self.links = np.full((LINK_ROWS, memory.layout.index_capacity), -1, np.int64)
        self.producers = np.zeros((PRODUCERS_FIRST, PRODUCER_COLUMNS), np.int64)
        self.cursors = np.zeros(3, np.int64)
        self.boot_id = b"\0" * 16
        self.failed: str | None = None
        self._spans = np.zeros((SPANS_MAX, 2), np.int64)
        self._touched = np.zeros(TOUCHED_MAX, np.int64)
        self._filed: dict[int, list[tuple[int, Segment]]] = {}
        self._checkpointing = False
        self._when_durable: list[Callable[[], None]] = []
        self._sync_wanted = 0

    def invariants(self) -> None:
        """Raise AssertionError when the log is not as its rooms say."""
        words = self.words
        assert words[WORD_SYNCED] <= words[WORD_WRITTEN] <= words[WORD_TAIL]
        assert words[WORD_TAIL] - words[WORD_WRITTEN] <= self.memory.layout.ring_bytes
        self.partitions.invariants()
        self.wal.invariants()

    def adopt(self, number: int, settings: PartitionSettings) -> int:
        """Lead a partition, or take over changed settings; returns its slot."""
        is_new = number not in self.partitions.slots
        slot = self.partitions.configure(number, settings)
        if is_new:
            self.partitions.lead(number, self.words[WORD_GENERATION])
        if self.failed is not None:
            self.partitions.table[slot, P_FLAGS] |= FLAG_READ_ONLY
        return slot

    # --- writing ---------------------------------------------------------------------------------

    @property
    def tail(self) -> int:
        """The position after the last appended frame."""
        return self.words[WORD_TAIL]

    def room_in_segment(self) -> float:
        """The part of the segment at the tail that is free, 0 to 1."""
        left = self.words[WORD_SEGMENT_END] - self.tail
        return left / self.wal.segment_bytes

    def is_written(self) -> bool:
        """Whether the WAL has everything that was appended."""
        return self.words[WORD_WRITTEN] == self.words[WORD_TAIL]

    def write(self) -> bool:
        """Give the WAL what was appended since the last write; False: the log has failed."""
        start, end = self.words[WORD_WRITTEN], self.tail
        if self.failed is not None:
            return False
        if start == end:
            return True
        last = self.wal.segments[-1] if self.wal.segments else None
        try:
            begun = self.wal.write(self.memory.ring_view, start, end)
        except OSError as error:
            self.fail(f"writing the WAL failed: {error}")
            return False
        self.words[WORD_WRITTEN] = end
        for segment in begun:
            if last is not None:
                self._file_index(last, self._entry_at(segment.start))
            segment.first_entry = self._entry_at(segment.start)
            last = segment
        return True

    def want_sync(self) -> None:
        """Have everything written so far synced; what comes while a sync runs goes with the next."""
        self._sync_wanted = self.words[WORD_WRITTEN]
        self.push_sync()

    def push_sync(self) -> None:
        """Post the wanted sync if the syncer is free. A segment is synced before the next one."""
        if self.syncer.failed():
            self.fail("fdatasync of the WAL failed")
            return
        if self.syncer.busy() or self._sync_wanted <= self.words[WORD_SYNCED]:
            return
        synced = self.words[WORD_SYNCED]
        for segment in self.wal.segments:
            if segment.end > synced and segment.start < self._sync_wanted:
                self.syncer.post(segment.fd, min(segment.end, self._sync_wanted))

    def _entry_at(self, position: int) -> int:
        """The first index entry at or after a position; the window must hold it."""
        positions = self.memory.column("position")
        capacity = self.memory.layout.index_capacity
        high = self.words[WORD_INDEX_TAIL]
        low = max(0, high - capacity)
        while low < high:
            middle = (low + high) // 2
            if positions[middle % capacity] < position:
                low = middle + 1
            else:
                high = middle
        return low

    def _file_index(self, segment: Segment, end_entry: int) -> None:
        """Write a full segment's table; until that is done its entries stay in the window."""
        first = segment.first_entry

        def job() -> FiledIndex:
            index = FiledIndex.from_memory(
                self.memory, first, end_entry, has_disk_frames=bool(self.words[WORD_SYNCED])
            )
            index.save(self.disk, segment.index_path, segment.start, self.boot_id)
            return index

        def done(result: FiledIndex | OSError) -> None:
            if isinstance(result, OSError):
                self.fail(f"filing an index failed: {result}")
                return
            self.register(segment, result)
            self.checkpoint()

        self.background.submit(job, done)

    def register(self, segment: Segment, index: FiledIndex) -> None:
        """Make a full segment's table part of look-ups."""
        segment.index, segment.numbers_ends = index, index.ends
        for number, offset in index.first_offsets.items():
            self._filed.setdefault(number, []).append((offset, segment))
        self._keep_entries()

    def _keep_entries(self) -> None:
        """Index entries may be overwritten once they are filed and published."""
        unfiled = [s.first_entry for s in self.wal.segments if s.index is None]
        keep = min([*unfiled, self.words[WORD_INDEX_TAIL], int(self.cursors.min())])
        self.words[WORD_INDEX_KEEP] = keep

    def publish(self, level: int) -> list[int]:
        """Move the HWM of partitions of a level up to what has reached it; the slots that moved."""
        word = _REACHED[level]
        count: int = publish(
            self.memory.memory, self.links, self.cursors, level, self.words[word], self._touched
        )
        return self._touched[:count].tolist()

    def make_room_in_index(self, levels: set[int]) -> bool:
        """Let entries be overwritten that are filed and published; False: too few are filed yet.

        `levels` are the durabilities of the log's partitions.
        """
        for level in {DURABILITY_MEMORY, DURABILITY_OS, DURABILITY_DISK} - levels:
            self.cursors[level] = self.words[WORD_INDEX_TAIL]  # There is nothing to publish for it.
        self._keep_entries()
        entries = self.words[WORD_INDEX_TAIL] + 1 - self.words[WORD_INDEX_KEEP]
        return entries <= self.memory.layout.index_capacity

    def grow_producers(self, oldest_ms: int) -> None:
        """Double the table of producers if it is full of live ones; drop those not seen since."""
        kept = np.zeros(len(self.partitions.table), np.bool_)
        kept[list(self.partitions.slots.values())] = True
        size = len(self.producers)
        while True:
            table = np.zeros((size, PRODUCER_COLUMNS), np.int64)
            rehash_producers(self.producers, table, oldest_ms, kept)
            if not producers_are_full(table):
                break
            size *= 2
        self.producers = table

    # --- failure ---------------------------------------------------------------------------------

    def fail(self, why: str) -> None:
        """Refuse to append: every partition of the log answers KAFKA_STORAGE_ERROR."""
        self.failed = why
        for slot in self.partitions.slots.values():
            self.partitions.table[slot, P_FLAGS] |= FLAG_READ_ONLY

    def repair(self) -> bool:
        """Write everything since SYNCED again, from the ring, to fresh files; True: it is healthy.

        Not possible when the ring no longer has it: the log then stays read-only.
        """
        synced, tail = self.words[WORD_SYNCED], self.tail
        oldest = max(self.words[WORD_RING_START], tail - self.memory.layout.ring_bytes)
        if synced < oldest:
            self.failed = f"{self.failed}; the ring no longer holds what must be written again"
            return False
        try:
            for segment in [s for s in self.wal.segments if s.end > synced]:
                self._rebuild(segment, synced, tail)
            self.words[WORD_WRITTEN] = max(synced, min(tail, self.wal.segments[-1].end))
            self.words[WORD_SYNCED] = self.words[WORD_WRITTEN]
        except OSError as error:
            self.failed = f"the WAL cannot be written: {error}"
            return False
        self.syncer.reset()
        self.failed = None
        for slot in self.partitions.slots.values():
            self.partitions.table[slot, P_FLAGS] &= ~FLAG_READ_ONLY
        return True

    def _rebuild(self, segment: Segment, synced: int, tail: int) -> None:
        def build(fd: int) -> None:
            good = min(max(0, synced - segment.start), segment.end - segment.start)
            if good:
                kept = self.disk.read(segment.fd, good, 0)
                self.disk.write(fd, memoryview(kept), 0)
            start, end = segment.start + good, min(tail, segment.end)
            ring = self.memory.ring_view
            while start < end:
                place = start % len(ring)
                stop = min(end, start - place + len(ring))
                self.disk.write(fd, ring[place : place + stop - start], start - segment.start)
                start = stop

        self.wal.replace(segment, build)

    # --- reading ---------------------------------------------------------------------------------

    def find(self, number: int, offset: int, limit: int, bytes_max: int) -> Found | None:
        """The whole batches of a partition from `offset` on and below offset `limit`.

        None: what holds the offset has left the WAL; the sealed segments have it.
        """
        slot = self.partitions.slots[number]
        count, total = choose_batches(
            self.memory.memory, self.links, slot, offset, limit, bytes_max, self._spans
        )
        if count == NOT_IN_WINDOW:
            count, total = self._find_filed(number, offset, limit, bytes_max)
        if count > 0 and not self.holds(int(self._spans[0, 0])):
            return None
        return None if count < 0 else Found(self._spans[:count].copy(), int(total))

    def _find_filed(self, number: int, offset: int, limit: int, bytes_max: int) -> tuple[int, int]:
        segments = self._filed.get(number, [])
        i = bisect_right(segments, offset, key=lambda pair: pair[0]) - 1
        if i < 0:
            return NOT_IN_WINDOW, 0
        for _, segment in segments[i:]:
            assert segment.index is not None
            count, total = segment.index.choose(number, offset, limit, bytes_max, self._spans)
            if count:
                return count, total
        return 0, 0

    def filed_indexes(self, number: int) -> list[FiledIndex]:
        """The filed tables that have the partition, oldest first."""
        return [s.index for _, s in self._filed.get(number, []) if s.index is not None]

    def holds(self, position: int) -> bool:
        """Whether ring or WAL still have the bytes at a position."""
        return self.in_ring(position) or self.wal.find(position) is not None

    def in_ring(self, position: int) -> bool:
        """Whether the ring still has the bytes at a position."""
        oldest = max(self.words[WORD_RING_START], self.tail - self.memory.layout.ring_bytes)
        return position >= oldest

    def view(self, position: int, length: int) -> memoryview | None:
        """Bytes in the ring, lent until the next append; None when the ring has moved on."""
        if not self.in_ring(position):
            return None
        place = position % self.memory.layout.ring_bytes
        return self.memory.ring_view[place : place + length]

    def read_batch(self, position: int, length: int) -> memoryview:
        """A batch from ring or WAL. Raises DamagedFrame when the WAL's bytes are not a good frame."""
        view = self.view(position, length)
        if view is not None:
            return view
        size = FRAME_HEADER_BYTES + length + FRAME_ALIGNMENT_BYTES - 1
        frame = self.wal.read(position - FRAME_HEADER_BYTES, size)
        if (
            len(frame) < FRAME_HEADER_BYTES + length
            or not frame_is_good(frame, 0, len(frame), position - FRAME_HEADER_BYTES)
            or not batch_crc_is_good(frame, FRAME_HEADER_BYTES, length)
        ):
            raise DamagedFrame(f"{self.directory}: damaged frame at position {position}")
        return memoryview(frame)[FRAME_HEADER_BYTES : FRAME_HEADER_BYTES + length]

    def gather(self, spans: np.ndarray, out: np.ndarray) -> int:
        """Copy batches one after another into `out` (uint8); returns their bytes.

        Raises DamagedFrame.
        """
        if self.in_ring(int(spans[0, 0])):
            return int(gather(self.memory.ring, spans, len(spans), out))
        at = 0
        for first, stop in self._runs(spans):
            at = self._gather_run(spans[first:stop], out, at)
        return at

    def _runs(self, spans: np.ndarray) -> list[tuple[int, int]]:
        """Cut spans where one read of the WAL would bring more foreign bytes than wanted ones."""
        gaps = spans[1:, 0] - (spans[:-1, 0] + spans[:-1, 1])
        cuts = np.flatnonzero((gaps > READ_GAP_BYTES_MAX) | self._crosses(spans)) + 1
        edges = [0, *cuts.tolist(), len(spans)]
        return list(zip(edges, edges[1:], strict=False))

    def _crosses(self, spans: np.ndarray) -> np.ndarray:
        starts = np.array([segment.start for segment in self.wal.segments])
        segments = np.searchsorted(starts, spans[:, 0], "right")
        return segments[1:] != segments[:-1]

    def _gather_run(self, spans: np.ndarray, out: np.ndarray, at: int) -> int:
        start = int(spans[0, 0]) - FRAME_HEADER_BYTES
        length = int(spans[-1, 0] + spans[-1, 1]) - start + FRAME_ALIGNMENT_BYTES
        data = self.wal.read(start, length)
        end = int(gather_checked(data, start, spans, out, at))
        if end < 0:
            position = int(spans[-end - 1, 0])
            raise DamagedFrame(f"{self.directory}: damaged frame at position {position}")
        return end

    # --- sealing and freeing ---------------------------------------------------------------------

    def sealed(self, number: int, end: int) -> None:
        """Sealed segments hold everything of a partition below `end`."""
        row = self.partitions.table[self.partitions.slots[number]]
        row[P_SEALED_END] = max(int(row[P_SEALED_END]), end)
        self._count_unsealed(number)

    def _count_unsealed(self, number: int) -> None:
        row = self.partitions.table[self.partitions.slots[number]]
        sealed_end, since_ms = int(row[P_SEALED_END]), int(row[P_UNSEALED_SINCE_MS])
        total = 0
        if sealed_end < int(row[P_LOG_END]):
            for _, segment in self._filed.get(number, []):
                assert segment.index is not None
                mine = segment.index.of_partition(number)
                total += int(mine["bytes"][mine["base_offset"] >= sealed_end].sum())
            total += self._unfiled_bytes(number, sealed_end)
            total = max(1, total)
        self.partitions.set_unsealed(number, total, since_ms if total else 0)

    def _unfiled_bytes(self, number: int, offset: int) -> int:
        unfiled = [s.first_entry for s in self.wal.segments if s.index is None]
        tail = self.words[WORD_INDEX_TAIL]
        slots = np.arange(min([*unfiled, tail]), tail) % self.memory.layout.index_capacity
        mine = self.memory.column("partition")[slots] == number
        mine &= self.memory.column("base_offset")[slots] >= offset
        return int(self.memory.column("bytes")[slots][mine].sum())

    def set_log_start(self, number: int, offset: int) -> None:
        """Retention has dropped everything below `offset`."""
        row = self.partitions.table[self.partitions.slots[number]]
        row[P_LOG_START] = max(int(row[P_LOG_START]), offset)
        row[P_SEALED_END] = max(int(row[P_SEALED_END]), int(row[P_LOG_START]))
        self._count_unsealed(number)

    def drop_partition(self, number: int) -> None:
        """The topic is gone: its frames hold no WAL space any more."""
        slot = self.partitions.slots[number]
        self.partitions.drop(number)
        self._filed.pop(number, None)
        producers = self.producers[1:]
        if (producers[:, R_SLOT] == slot + 1).any():
            self.grow_producers(0)

    def freeable(self) -> list[Segment]:
        """The full segments all of whose partitions are sealed beyond them, or gone."""
        return [s for s in self.wal.segments[:-1] if s.index is not None and self._is_free(s)]

    def _is_free(self, segment: Segment) -> bool:
        for number, end in segment.numbers_ends.items():
            slot = self.partitions.slots.get(number)
            if slot is not None and int(self.partitions.table[slot, P_SEALED_END]) < end:
                return False
        return segment.pins == 0

    def free(self, segments: list[Segment]) -> None:
        """Recycle segments. The checkpoint that says their partitions are sealed must be durable."""
        for segment in segments:
            for number in segment.numbers_ends:
                mine = self._filed.get(number, [])
                self._filed[number] = [pair for pair in mine if pair[1] is not segment]
            self.wal.free(segment)

    # --- checkpoints -----------------------------------------------------------------------------

    def snapshot(self) -> Checkpoint:
        """The state to remember, as of now."""
        numbers = np.full(len(self.partitions.table) + 1, -1, np.int64)
        for number, slot in self.partitions.slots.items():
            numbers[slot + 1] = number
        used = self.producers[1:][self.producers[1:, R_SLOT] > 0].copy()
        used[:, R_SLOT] = numbers[used[:, R_SLOT]]
        return Checkpoint(
            self.tail,
            self.words[WORD_SYNCED],
            self.words[WORD_GENERATION],
            [self.partitions.state(number) for number in sorted(self.partitions.slots)],
            used[used[:, R_SLOT] >= 0],
        )

    def checkpoint(self, durable: Callable[[], None] | None = None) -> None:
        """Write a checkpoint in the background; then free what it allows to free.

        `durable()` is called when a checkpoint of at least the present state has been written.
        """
        if durable is not None:
            self._when_durable.append(durable)
        if self._checkpointing:
            return
        self._checkpointing = True
        waiting, self._when_durable = self._when_durable, []
        state, free = self.snapshot(), self.freeable()

        def done(result: OSError | None) -> None:
            self._checkpointing = False
            if result is not None:
                self._when_durable = waiting + self._when_durable
                return
            self.free([s for s in free if s in self.wal.segments and self._is_free(s)])
            self._keep_entries()
            for call in waiting:
                call()
            if self._when_durable:
                self.checkpoint()

        self.background.submit(lambda: state.save(self.disk, self.directory), done)

    def close(self) -> None:
        """Write, sync and remember everything, then close: a clean stop."""
        self.background.wait()
        if self.failed is None and self.write():
            for segment in self.wal.segments:
                if segment.end > self.words[WORD_SYNCED]:
                    self.disk.sync(segment.fd)
            self.words[WORD_SYNCED] = self.words[WORD_WRITTEN]
        self.snapshot().save(self.disk, self.directory)
        self.syncer.stop()
        self.wal.close()
