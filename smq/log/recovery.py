"""Opens a log: restores its state from checkpoint, WAL and, after a shard's death, the ring.

    1  checkpoint        starts, sealed ends, epochs, producers
    2  full segments     filed tables (smq.log.files.filed_index) are believed, others scanned
    3  the rest          scanned frame by frame: header check, batch CRC, position, generation
    4  the ring          frames that the WAL does not have yet, when the supervisor kept the memory
    5  a fence           a padding frame of the new generation: every later start takes the bytes
                         behind it for an earlier life's

A frame that is not good is the torn end of the log or damage (smq.log.torn tells them apart).
Damage is put aside under quarantine/ and skipped; damaged markers are restored (smq.log.damage). A
frame with a lower generation than its predecessor belongs to an earlier life, though all else fits:
the log ends before it. Segments missing between others were freed. A frame of an unknown kind stays
where it is (smq.log.files.newer). What must be scanned and cannot be read is neither torn nor
damaged: the start fails (smq.log.files.start_reads).

A checkpoint is valid for what lies below its position unless a later life wrote there: a power loss
may cut the log below that position, and a later life then writes there before its first checkpoint
is durable.
"""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from shm.kernels.base.crc_sums import new_sums
from shm.kernels.base.words import (
    BATCH_HEADER_BYTES,
    FRAME_ALIGNMENT_BYTES,
    FRAME_HEADER_BYTES,
    P_LAST_ENTRY,
    P_LOG_END,
    P_UNSEALED_SINCE_MS,
    SPACE_UNLIMITED,
    WORD_GENERATION,
    WORD_INDEX_KEEP,
    WORD_INDEX_TAIL,
    WORD_RING_START,
    WORD_SEGMENT_BYTES,
    WORD_SEGMENT_END,
    WORD_SPACE_END,
    WORD_SYNCED,
    WORD_TAIL,
    WORD_WRITTEN,
)
from shm.kernels.log.append import pad_to
from shm.kernels.log.recover import (
    S_AT,
    S_GENERATION,
    S_SYNCED,
    SCAN_COLUMNS,
    header_generation,
    scan_frames,
)
from shm.segment import LogMemory
from smq.log.damage import known_of, restore_marker
from smq.log.files.background import Background
from smq.log.files.checkpoint import FILE_NAME, Checkpoint, PartitionCheckpoint
from smq.log.files.disk import Disk, told
from smq.log.files.filed_index import ENTRY, FiledIndex
from smq.log.files.newer import UnknownFrames, check_generation
from smq.log.files.segment import WalSegment
from smq.log.files.segment_files import SegmentFiles, WalLimits
from smq.log.files.start_reads import Pause, StartReads
from smq.log.files.wal import Wal
from smq.log.given_up import set_aside
from smq.log.log import Log
from smq.log.repair import make_durable
from smq.log.replay import Replay
from smq.log.start_rows import Existing, StartRows
from smq.log.sync import Syncer
from smq.log.torn import Evidence
from smq.model.errors import StoreError

SCAN_ROWS = 65536
NO_LIFE = -1  # Instead of a generation: the memory is fresh.


@dataclass(slots=True)
class Recovered:
    """What a start has found, reported in one line."""

    scanned_bytes: int = 0
    damaged: list[str] = field(default_factory=list)
    from_ring_bytes: int = 0


def open_log(  # noqa: PLR0913  (a log's ports, and what a start is told)
    memory: LogMemory,
    directory: Path,
    disk: Disk,
    syncer: Syncer,
    background: Background,
    *,
    limits: WalLimits,
    generation: int,
    boot_id: bytes,
    producers_key: bytes,
    now_ms: int,
    pause: Pause | None = None,
    existing: Existing | None = None,
) -> tuple[Log, Recovered]:
    """Restore a log and make it ready to append in a new generation.

    `producers_key`: 16 bytes that no client can guess; they seed the hash of the producer table.
    `pause`: between tries of what cannot be read; None: it is tried once.
    `existing`: asked if there are too few rows for all partitions that are met.
    Raises OSError, MadeByNewer, and StoreError for a log that is not of this data directory's
    moment: then no frame was cut.
    """
    wal = Wal(SegmentFiles(directory, disk, background, limits), limits.blocks)
    log = Log(memory, wal, disk, syncer, background, boot_id, producers_key)
    try:
        return log, _Recovery(StartRows(log, existing), now_ms, pause).run(generation)
    except (OSError, StoreError):
        wal.close()
        raise


class _Recovery:
    def __init__(self, start_rows: StartRows, now_ms: int, pause: Pause | None) -> None:
        log = start_rows.log
        self._start_rows = start_rows
        self._log, self._words, self._now_ms = log, log.words, now_ms
        capacity = log.memory.layout.index_capacity
        self._rows = np.zeros((min(SCAN_ROWS, capacity), SCAN_COLUMNS), np.int64)
        self._generation = 0
        written = log.words[WORD_WRITTEN] if log.words[WORD_TAIL] else None
        self._reads = StartReads(log.disk, pause, written)
        self._evidence = Evidence(log, self._reads, is_same_boot=log.losses.is_same_boot)
        self._known_to = 0  # The checkpoint knows what lies below this position …
        self._known_generation = 0  # … and has no later generation than this one.
        self._only_ring_from: int | None = None  # Only the ring has later frames.
        self._replay = Replay(start_rows, self._rows, now_ms)
        self._recovered = Recovered()
        self._unknown = UnknownFrames(log.directory)
        self._later: list[PartitionCheckpoint] = []  # With bounds of a later moment.

    def run(self, generation: int) -> Recovered:
        """Run the whole recovery."""
        log, words = self._log, self._words
        ring_end = words[WORD_TAIL]  # Zero in fresh memory.
        self._only_ring_from = words[WORD_WRITTEN] if ring_end else None
        before = words[WORD_GENERATION] if ring_end else NO_LIFE
        words[WORD_GENERATION] = before  # Until this life begins: soon the memory looks used.
        log.partitions.clear()
        words[WORD_INDEX_TAIL] = words[WORD_INDEX_KEEP] = 0
        path = log.directory / FILE_NAME
        checkpoint, is_newest = self._reads.insist(path, lambda: Checkpoint.load(log.directory))
        if checkpoint is not None:
            self._restore(checkpoint)
        if not is_newest and path.exists():
            log.notices.append(f"{path} is damaged: using the previous one")
        self._recovered.damaged += log.wal.files.open_existing()
        tail = self._read_segments()
        check_generation(log.directory, self._generation, generation)
        self._end_known(tail)
        # A start that dies behind this leaves to the next one what it has found in the ring.
        if ring_end < tail:
            words[WORD_RING_START] = tail
        words[WORD_TAIL], words[WORD_WRITTEN] = max(tail, ring_end), tail
        # Frames name what was synced before them. Memory that was kept knows of the last ones too.
        words[WORD_SYNCED] = min(tail, max(words[WORD_SYNCED], self._evidence.synced))
        try:
            log.wal.files.forget_from(tail)
        except OSError as error:
            log.notices.append(f"{log.directory}: files behind the log's end remain: {error}")
        log.wal.own_last(tail)
        self._set_ends(checkpoint, is_newest=is_newest)
        lived = before if before != NO_LIFE else None
        log.losses.begin(generation, lived, is_damaged=bool(self._recovered.damaged))
        self._begin_life(generation, ring_end)
        log.notices += self._unknown.notices()
        return self._recovered

    def _restore(self, checkpoint: Checkpoint) -> None:
        log = self._log
        checkpoint.know_no_later_than(self._now_ms)
        for state in checkpoint.partitions:
            if self._start_rows.give(state.number):
                log.partitions.restore(state.at_position())
        self._later = [each for each in checkpoint.partitions if each.at_position() is not each]
        self._evidence.learn(checkpoint.synced)
        self._known_to = checkpoint.position
        self._known_generation = checkpoint.generation
        log.producers.restore(checkpoint.producers)
        log.transactions.restore(checkpoint.transactions)
        log.adoptions.restore(checkpoint.adoptions)

    # --- segments --------------------------------------------------------------------------------

    def _read_segments(self) -> int:
        """Enter what the segments hold; returns where the log ends."""
        segments = list(self._log.wal.segments)
        end = segments[0].start if segments else self._begin_without_segments()
        for i, segment in enumerate(segments):
            segment.first_entry = self._words[WORD_INDEX_TAIL]
            is_last = i == len(segments) - 1
            if not is_last and self._knows(segments, i) and self._trust(segment):
                end = segment.end
                continue
            stopped = self._scan_segment(segment)
            self._forget_table(segment)
            if stopped > segment.start:
                end = stopped
            if stopped < segment.end:
                break
            if not is_last or not self._fits(segment):
                self._file(segment)
        return end

    def _begin_without_segments(self) -> int:
        """Where a log without segments begins: the checkpoint may cover ring-only frames."""
        if self._only_ring_from is None:
            return self._known_to
        return min(self._known_to, self._only_ring_from)

    def _fits(self, segment: WalSegment) -> bool:
        """Whether a segment has the size for which the index's window is made."""
        return segment.end - segment.start == self._log.wal.files.segment_bytes

    def _knows(self, segments: list[WalSegment], i: int) -> bool:
        """Whether the checkpoint covers all of a full segment: generations never go down, so the
        frame after the segment proves that no later life has written it. If that cannot be read,
        the first one of a last segment does; the very last may not be begun."""
        following, last = i + 1, len(segments) - 1
        if segments[i].end > self._known_to:
            return False
        for j in sorted({following, max(following, last - 1), last}):
            start = segments[j].start
            header = self._reads.head_now(segments[j], FRAME_HEADER_BYTES + BATCH_HEADER_BYTES)
            generation = -1 if header is None else int(header_generation(header, start))
            if generation >= 0 or (j == following and header is not None):
                return 0 <= generation <= self._known_generation
        return False

    def _forget_table(self, segment: WalSegment) -> None:
        """Delete a table that is not believed: it may describe lost frames, and a later start might
        believe it once the segment is known to be synced."""
        try:
            self._log.disk.remove(segment.index_path)
        except OSError as error:
            self._log.notices.append(f"{segment.index_path} cannot be removed: {error}")

    def _trust(self, segment: WalSegment) -> bool:
        loaded = FiledIndex.load(segment.index_path, segment.start)
        if loaded is None:
            return False
        index, boot_id = loaded
        if boot_id != self._log.boot_id and segment.end > self._evidence.synced:
            return False
        log = self._log
        for number, end in index.ends.items():
            slot = log.partitions.slots.get(number)
            if slot is not None:
                row = log.partitions.table[slot]
                row[P_LOG_END] = max(int(row[P_LOG_END]), end)
                row[P_LAST_ENTRY] = -1  # Entries of earlier segments would be taken for the newest.
                self._replay.first_offsets.setdefault(number, index.first_offsets[number])
        log.filing.has_disk_frames |= index.has_disk_frames and segment.end > self._evidence.synced
        log.filing.register(segment, index)
        return True

    def _file(self, segment: WalSegment) -> None:
        log = self._log
        entries = np.concatenate([np.zeros(0, ENTRY), *self._replay.entries])
        index = FiledIndex.sorted(entries, has_disk_frames=True)
        try:
            index.save(log.disk, segment.index_path, segment.start, log.boot_id)
        except OSError as error:
            log.notices.append(f"{segment.index_path} cannot be written: {error}")
        log.filing.register(segment, index)
        self._words[WORD_INDEX_KEEP] = self._words[WORD_INDEX_TAIL]

    def _scan_segment(self, segment: WalSegment) -> int:
        """Enter a segment's frames; returns the position where the good ones end. Raises
        UnreadableFile."""
        data = self._reads.segment(segment)
        self._replay.entries = []
        at, sums = 0, new_sums(len(data))
        while True:
            at = self._scan(data, at, segment.start, sums)
            if at >= len(data):
                return segment.end
            following = self._evidence.after_damage(data, at, segment, self._generation, sums)
            if following < 0:
                return segment.start + at
            whole = restore_marker(self._log.disk, segment, data, at)
            if whole is None:
                self._quarantine(data[at:following], segment, at)
                at = following
            else:
                data = whole  # It has the same sums behind the marker, which is short.
                self._log.notices.append(
                    f"the marker of a transaction at position {segment.start + at} of "
                    f"{segment.path} was damaged: its checksum has restored it"
                )

    def _scan(self, data: np.ndarray, at: int, first_position: int, sums: np.ndarray) -> int:
        """Enter good frames from data[at] on; returns where they end."""
        while at < len(data):
            count, stopped, self._generation = scan_frames(
                data, at, len(data), first_position, self._generation, self._rows, sums
            )
            # The log may be cut where the scan stops: before its last good frame, that is lost.
            assert count == 0 or self._rows[count - 1, S_AT] < stopped <= len(data)
            self._enter_lives(data, int(count), first_position)
            self._recovered.scanned_bytes += int(stopped) - at
            at = int(stopped)
            if count < len(self._rows):
                break
        return at

    def _enter_lives(self, data: np.ndarray, count: int, first_position: int) -> None:
        """Enter scanned frames; the checkpoint knows nothing about lives later than its own."""
        rows, first = self._rows[:count], count
        if count and first_position + int(rows[0, S_AT]) < self._known_to:
            generations = rows[:, S_GENERATION]
            first = int(np.searchsorted(generations, self._known_generation, "right"))
        self._enter(data, 0, first, first_position)
        if first < count:
            self._end_known(first_position + int(rows[first, S_AT]))
            self._enter(data, first, count, first_position)

    def _end_known(self, position: int) -> None:
        """The frames of the checkpoint's life end here: anything it knew beyond is lost."""
        if position < self._known_to:
            self._known_to = position
            ends = self._log.partitions.copy().ends()
            self._log.producers.clip(*ends)
            self._log.transactions.clip(*ends)

    def _enter(self, data: np.ndarray, first: int, end: int, first_position: int) -> None:
        if first == end:
            return
        rows = self._rows[first:end]
        self._unknown.meet(rows, first_position)
        self._evidence.learn(int(rows[:, S_SYNCED].max()))
        self._replay.enter(data, (first, end), first_position, self._known_to)

    def _quarantine(self, data: np.ndarray, segment: WalSegment, at: int) -> None:
        position = segment.start + at
        self._recovered.damaged.append(
            f"{set_aside(self._log.directory, segment, position, data)}: the records in these "
            f"{len(data)} bytes are lost, the others are served"
        )
        known, slots = known_of(data, position), self._log.partitions.slots
        if known is None or (known.number not in slots and position < self._known_to):
            return
        if not self._start_rows.give(known.number):
            return
        # Its offsets are known, and are not assigned again.
        row = self._log.partitions.table[slots[known.number]]
        row[P_LOG_END] = max(int(row[P_LOG_END]), known.end_offset)

    # --- partitions ------------------------------------------------------------------------------

    def _set_ends(self, checkpoint: Checkpoint | None, *, is_newest: bool) -> None:
        """Set ends from the frames; the checkpoint's count where the log reaches its position."""
        log, table = self._log, self._log.partitions.table
        slots = log.partitions.slots  # Not of all that were met: see StartRows.
        if checkpoint is not None and self._known_to == checkpoint.position:
            for state in checkpoint.partitions:
                if (slot := slots.get(state.number)) is not None:
                    row = table[slot]
                    row[P_LOG_END] = max(int(row[P_LOG_END]), state.log_end)
        if not is_newest:
            for number, offset in self._replay.first_offsets.items():
                if number in slots:
                    log.sealing.assume(number, offset)

    # --- a new life ------------------------------------------------------------------------------

    def _begin_life(self, generation: int, ring_end: int) -> None:
        log, words = self._log, self._words
        words[WORD_GENERATION], words[WORD_SPACE_END] = generation, SPACE_UNLIMITED
        words[WORD_SEGMENT_BYTES] = log.wal.files.segment_bytes
        self._show()
        if ring_end >= words[WORD_WRITTEN]:
            self._read_ring(words[WORD_WRITTEN], ring_end)
        self._fence()
        if log.write():
            log.save_losses()
            self._show()
        for state in self._later:
            if state.number not in log.partitions.slots:
                continue
            log.sealing.raise_bounds(state, self._now_ms)
        for number, slot in log.partitions.slots.items():
            log.partitions.cut_history(number)
            row = log.partitions.table[slot]
            log.sealing.count_unsealed(number, int(row[P_UNSEALED_SINCE_MS]) or self._now_ms)
        log.freeing.keep_sealed()
        log.set_space_end()
        log.wal.files.prepare_next()
        log.wal.files.adopt()
        log.checkpoint()

    def _show(self) -> None:
        """Make entered records visible: they are in the WAL; `disk` frames are synced first."""
        log, words = self._log, self._words
        if log.failed is None:
            try:
                has_disk_frames = log.filing.has_disk_frames
                make_durable(log, log.boot_id, has_disk_frames=has_disk_frames)
            except OSError as error:
                log.health.fail_start(f"data written before this start cannot be synced: {error}")
        log.partitions.show_all()
        log.cursors[:] = words[WORD_INDEX_TAIL]

    def _read_ring(self, start: int, end: int) -> None:
        """Enter the frames that a dead shard had appended and not written."""
        log, ring_bytes = self._log, self._log.memory.layout.ring_bytes
        position = start
        while position < end:
            place = position % ring_bytes
            stop = min(end, position - place + ring_bytes)
            data = log.memory.ring[place : place + stop - position]
            position += self._scan(data, 0, position, new_sums(len(data)))
            if position < stop:
                break  # The shard died while it wrote this frame: it was never acknowledged.
        self._words[WORD_TAIL] = position
        self._recovered.from_ring_bytes = position - start

    def _fence(self) -> None:
        """End the former life with padding: to the segment's end if its size is not ours."""
        log, words = self._log, self._words
        ring_bytes, tail = log.memory.layout.ring_bytes, words[WORD_TAIL]
        assert tail % FRAME_ALIGNMENT_BYTES == 0
        # Without segments the first one begins where writing continues, below what the ring has.
        end = log.wal.segments[-1].end if log.wal.segments else words[WORD_WRITTEN]
        while end <= tail:  # The ring's frames may need segments that are not begun yet.
            end += log.wal.files.segment_bytes
        words[WORD_SEGMENT_END] = end
        covering = log.wal.find(tail)
        if covering is None or self._fits(covering):
            pad_to(log.memory.memory, tail + FRAME_ALIGNMENT_BYTES)
            return
        self._file(covering)
        while words[WORD_TAIL] < covering.end:
            tail = words[WORD_TAIL]
            pad_to(log.memory.memory, min(covering.end, tail - tail % ring_bytes + ring_bytes))
            # Only the padding's header needs to be written.
            place = tail % ring_bytes
            header = log.memory.ring_view[place : place + FRAME_ALIGNMENT_BYTES]
            if log.failed is not None:
                continue
            try:
                log.disk.write(covering.fd, header, tail - covering.start)
                words[WORD_WRITTEN] = words[WORD_TAIL]
            except OSError as error:
                log.health.fail(f"writing the WAL failed: {told(error)}", tail)
        words[WORD_RING_START] = words[WORD_TAIL]
