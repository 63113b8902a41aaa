"""Opening a log: what a start finds in checkpoint, WAL and, after a shard's death, in the ring.

    1  checkpoint        starts, sealed ends, epochs, producers
    2  full segments     their filed tables are believed (smq.log.filed_index) or they are scanned
    3  the rest          scanned frame by frame: header check, batch CRC, position, generation
    4  the ring          frames that the WAL does not have yet, when the supervisor kept the memory

A frame that is not good is the torn end of the log or damage. It is damage, is put aside under
quarantine/ and skipped, when it lies below the highest position any good frame or the checkpoint
knows to be synced; also when the machine has not been booted since it was written and a good frame
of the same life follows, for then the page cache has lost nothing and only the very last write can
be torn. Otherwise the log ends there. A generation below its predecessor's is a frame of an earlier
life that fits in every other way: the log ends before it.
"""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from shm.kernels.append import pad_to
from shm.kernels.producers import R_SLOT, producer_row
from shm.kernels.recover import (
    REPLAY_PRODUCERS_FULL,
    S_BASE_OFFSET,
    S_EPOCH,
    S_KIND,
    S_LEVEL,
    S_PARTITION,
    S_SYNCED,
    SCAN_COLUMNS,
    find_frame,
    replay_frames,
    scan_frames,
)
from shm.kernels.words import (
    DURABILITY_DISK,
    FRAME_ALIGNMENT_BYTES,
    FRAME_KIND_BATCH,
    P_LOG_END,
    P_SEALED_END,
    WORD_GENERATION,
    WORD_INDEX_KEEP,
    WORD_INDEX_TAIL,
    WORD_RING_START,
    WORD_SEGMENT_BYTES,
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
from smq.log.log import Log
from smq.log.sync import Syncer
from smq.log.wal import Segment

SCAN_ROWS = 65536
QUARANTINE = "quarantine"


@dataclass(slots=True)
class Recovered:
    """What a start found, to be said in one line."""

    records_end: int = 0
    scanned_bytes: int = 0
    damaged: list[str] = field(default_factory=list)
    from_ring_bytes: int = 0


def open_log(
    memory: LogMemory,
    directory: Path,
    disk: Disk,
    syncer: Syncer,
    background: Background,
    *,
    segment_bytes: int,
    generation: int,
    boot_id: bytes,
    now_ms: int,
) -> tuple[Log, Recovered]:
    """Restore a log and make it ready to append in a new generation. Raises OSError."""
    log = Log(memory, directory, disk, syncer, background, segment_bytes)
    log.boot_id = boot_id
    recovered = _Recovery(log, boot_id, now_ms).run(generation)
    return log, recovered


class _Recovery:
    def __init__(self, log: Log, boot_id: bytes, now_ms: int) -> None:
        self._log, self._words = log, log.words
        self._boot_id, self._now_ms = boot_id, now_ms
        self._rows = np.zeros((SCAN_ROWS, SCAN_COLUMNS), np.int64)
        self._generation = 0
        self._synced = 0
        self._producers_from = 0
        self._disk_frames = False
        self._recovered = Recovered()

    def run(self, generation: int) -> Recovered:
        """The whole of it."""
        ring_end = self._take_ring_end()
        log, words = self._log, self._words
        checkpoint = Checkpoint.load(log.directory)
        self._restore(checkpoint)
        log.wal.open_existing()
        tail = self._read_segments(checkpoint)
        words[WORD_TAIL] = words[WORD_WRITTEN] = tail
        words[WORD_SYNCED] = min(tail, self._synced)
        log.wal.forget_from(tail)
        if ring_end > tail:
            self._read_ring(tail, ring_end)
        else:
            words[WORD_RING_START] = tail
        self._clip_producers()
        self._begin_life(generation)
        return self._recovered

    def _take_ring_end(self) -> int:
        """The tail a dead shard left in this memory, 0 if it is fresh; the tables are then emptied."""
        words = self._words
        ring_end = words[WORD_TAIL] if words[WORD_GENERATION] else 0
        self._log.partitions.clear()
        words[WORD_INDEX_TAIL] = words[WORD_INDEX_KEEP] = 0
        return ring_end

    def _restore(self, checkpoint: Checkpoint | None) -> None:
        if checkpoint is None:
            return
        log = self._log
        for state in checkpoint.partitions:
            log.partitions.restore(state)
        self._synced = checkpoint.synced
        self._producers_from = checkpoint.position
        while 2 * (len(checkpoint.producers) + 1) > len(log.producers):
            log.producers = np.zeros((2 * len(log.producers), log.producers.shape[1]), np.int64)
        for row in checkpoint.producers:
            slot = log.partitions.slots[int(row[R_SLOT])]
            place = producer_row(log.producers, slot, int(row[1]))
            log.producers[place] = row
            log.producers[place, R_SLOT] = slot + 1
            log.producers[0, 0] += 1

    # --- segments --------------------------------------------------------------------------------

    def _read_segments(self, checkpoint: Checkpoint | None) -> int:
        """Enter what the segments hold; returns where the log ends."""
        log = self._log
        known_to = 0 if checkpoint is None else checkpoint.position
        segments = list(log.wal.segments)
        end = max(known_to, 0) if not segments else segments[0].start
        for i, segment in enumerate(segments):
            if segment.start != end and not self._synced > segment.start:
                break
            segment.first_entry = self._words[WORD_INDEX_TAIL]
            if i < len(segments) - 1 and segment.end <= known_to and self._trust(segment):
                end = segment.end
                continue
            end = self._scan_segment(segment)
            if end < segment.end:
                break
            if i < len(segments) - 1:
                self._file(segment)
        return end

    def _trust(self, segment: Segment) -> bool:
        loaded = FiledIndex.load(segment.index_path, segment.start)
        if loaded is None:
            return False
        index, boot_id = loaded
        if boot_id != self._boot_id and segment.end > self._synced:
            return False
        log = self._log
        for number, end in index.ends.items():
            slot = log.partitions.slots.get(number)
            if slot is not None:
                row = log.partitions.table[slot]
                row[P_LOG_END] = max(int(row[P_LOG_END]), end)
        log.register(segment, index)
        return True

    def _file(self, segment: Segment) -> None:
        log = self._log
        index = FiledIndex.from_memory(
            log.memory, segment.first_entry, self._words[WORD_INDEX_TAIL], has_disk_frames=True
        )
        index.save(log.disk, segment.index_path, segment.start, self._boot_id)
        log.register(segment, index)
        self._words[WORD_INDEX_KEEP] = self._words[WORD_INDEX_TAIL]

    def _scan_segment(self, segment: Segment) -> int:
        """Enter a segment's frames; returns the position where the good ones end."""
        length = segment.end - segment.start
        data = self._log.disk.read(segment.fd, length, 0)
        at = 0
        while True:
            at = self._scan(data, at, segment.start)
            if at >= len(data):
                return segment.end
            following = self._after_damage(data, at, segment)
            if following < 0:
                return segment.start + at
            self._quarantine(data[at:following], segment, at)
            at = following

    def _scan(self, data: np.ndarray, at: int, first_position: int) -> int:
        """Enter good frames from data[at] on; returns where they end."""
        while at < len(data):
            count, stopped, self._generation = scan_frames(
                data, at, len(data), first_position, self._generation, self._rows
            )
            self._enter(data, int(count), first_position)
            self._recovered.scanned_bytes += int(stopped) - at
            at = int(stopped)
            if count < len(self._rows):
                break
        return at

    def _enter(self, data: np.ndarray, count: int, first_position: int) -> None:
        if count == 0:
            return
        log, rows = self._log, self._rows[:count]
        self._synced = max(self._synced, int(rows[:, S_SYNCED].max()))
        batches = rows[rows[:, S_KIND] == FRAME_KIND_BATCH]
        self._disk_frames |= bool((batches[:, S_LEVEL] == DURABILITY_DISK).any())
        numbers = [int(number) for number in np.unique(batches[:, S_PARTITION])]
        slots = np.full(max(numbers, default=0) + 1, -1, np.int64)
        for number in numbers:
            slots[number] = log.partitions.slot_of(number)
            self._note_epochs(number, batches[batches[:, S_PARTITION] == number])
        place = np.array([0, count, first_position, self._producers_from, self._now_ms], np.int64)
        while (
            replay_frames(
                log.memory.memory, log.links, log.producers, data, self._rows, slots, place
            )
            == REPLAY_PRODUCERS_FULL
        ):
            log.grow_producers(0)

    def _note_epochs(self, number: int, batches: np.ndarray) -> None:
        epochs = batches[:, S_EPOCH]
        changes = np.flatnonzero(np.diff(epochs, prepend=epochs[0] - 1))
        history = self._log.partitions.epochs[number]
        for i in changes:
            if not history or int(epochs[i]) > history[-1][0]:
                history.append([int(epochs[i]), int(batches[i, S_BASE_OFFSET])])

    def _after_damage(self, data: np.ndarray, at: int, segment: Segment) -> int:
        """Where a good frame follows the bad one at data[at], if that one is damage; else -1."""
        following = int(find_frame(data, at, len(data), segment.start, self._generation))
        position = segment.start + at
        if position < self._synced:
            return following if following >= 0 else len(data)
        same_boot = self._boot_id == self._last_boot_id()
        return following if same_boot else -1

    def _last_boot_id(self) -> bytes:
        path = self._log.directory / "boot"
        return path.read_bytes() if path.exists() else b""

    def _quarantine(self, data: np.ndarray, segment: Segment, at: int) -> None:
        position = segment.start + at
        directory = self._log.directory / QUARANTINE
        directory.mkdir(exist_ok=True)
        path = directory / f"{position:020d}.frame"
        path.write_bytes(data.tobytes())
        self._recovered.damaged.append(
            f"{len(data)} damaged bytes at position {position} of {segment.path} are set aside in "
            f"{path}: the records in them are lost, the others are served"
        )

    # --- the ring --------------------------------------------------------------------------------

    def _read_ring(self, start: int, end: int) -> None:
        """Enter and write the frames that a dead shard had appended and not written."""
        log, ring_bytes = self._log, self._log.memory.layout.ring_bytes
        position = start
        while position < end:
            place = position % ring_bytes
            stop = min(end, position - place + ring_bytes)
            data = log.memory.ring[place : place + stop - position]
            at = self._scan(data, 0, position)
            position += at
            if position < stop:
                break  # The shard died while it wrote this frame: nobody was told of it.
        self._words[WORD_TAIL] = position
        log.wal.write(log.memory.ring_view, start, position)
        self._words[WORD_WRITTEN] = position
        self._recovered.from_ring_bytes = position - start

    # --- a new life ------------------------------------------------------------------------------

    def _clip_producers(self) -> None:
        """Forget batches the checkpoint knew and the log has not: their retry must be appended."""
        log = self._log
        ends = log.partitions.table[:, P_LOG_END]
        for row in log.producers[1:][log.producers[1:, R_SLOT] > 0]:
            end = int(ends[row[R_SLOT] - 1])
            batches = row[6:26].reshape(5, 4)
            if (batches[: int(row[3]), 2] >= end).any():
                kept = batches[: int(row[3])][batches[: int(row[3]), 2] < end]
                kept = kept[np.argsort(kept[:, 2])]
                place = producer_row(log.producers, int(row[R_SLOT]) - 1, int(row[1]))
                log.producers[place, 6:26] = 0
                log.producers[place, 6 : 6 + kept.size] = kept.ravel()
                log.producers[place, 3] = len(kept)
                log.producers[place, 4] = (len(kept) - 1) % 5

    def _begin_life(self, generation: int) -> None:
        log, words = self._log, self._words
        (log.directory / "boot").write_bytes(self._boot_id)
        words[WORD_GENERATION] = generation
        words[WORD_SEGMENT_BYTES] = log.wal.segment_bytes
        last = log.wal.segments[-1] if log.wal.segments else None
        words[WORD_SEGMENT_END] = last.end if last is not None else words[WORD_TAIL]
        tail = words[WORD_TAIL]
        assert tail % FRAME_ALIGNMENT_BYTES == 0
        if last is not None and last.end - last.start != log.wal.segment_bytes and tail < last.end:
            self._fill(last)
        if self._disk_frames and log.wal.segments:
            for segment in log.wal.segments:
                if segment.end > words[WORD_SYNCED]:
                    log.disk.sync(segment.fd)
            words[WORD_SYNCED] = words[WORD_TAIL]
        for number, slot in log.partitions.slots.items():
            row = log.partitions.table[slot]
            row[P_LOG_END] = max(int(row[P_LOG_END]), int(row[P_SEALED_END]))
            log.partitions.lead(number, generation)
        log.partitions.show_all()
        log.cursors[:] = words[WORD_INDEX_TAIL]
        words[WORD_INDEX_KEEP] = words[WORD_INDEX_TAIL]
        log.wal.prepare_next()
        self._recovered.records_end = words[WORD_TAIL]

    def _fill(self, last: Segment) -> None:
        """Segments have another size from now on: this one ends here, with padding to its end."""
        log, words = self._log, self._words
        ring_bytes = log.memory.layout.ring_bytes
        while words[WORD_TAIL] < last.end:
            tail = words[WORD_TAIL]
            pad_to(log.memory.memory, min(last.end, tail - tail % ring_bytes + ring_bytes))
            # Only the padding's header needs to be written.
            place = tail % ring_bytes
            header = log.memory.ring_view[place : place + FRAME_ALIGNMENT_BYTES]
            log.disk.write(last.fd, header, tail - last.start)
            words[WORD_WRITTEN] = words[WORD_TAIL]
        words[WORD_RING_START] = words[WORD_TAIL]
        words[WORD_SEGMENT_END] = words[WORD_TAIL]
