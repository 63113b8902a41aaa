"""The findings of a start. test_crashes.py crashes at every step; these are named cases."""

import shutil
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from shm.kernels.base.words import (
    FRAME_ALIGNMENT_BYTES,
    P_LOG_END,
    P_SEALED_END,
    P_UNSEALED_BYTES,
    WORD_RING_START,
    WORD_WRITTEN,
)
from shm.kernels.log.producers import PRODUCER_COLUMNS, R_BATCH_COUNT, R_PARTITION
from smq.log.files.checkpoint import FILE_NAME, FILE_NAME_BEFORE, Checkpoint
from smq.log.files.disk import OsDisk
from smq.log.files.segment_files import QUARANTINE
from smq.log.log import Log
from smq.testing.disk import FailingDisk
from tests.log.files.test_checkpoint import craft, parts_of
from tests.log.logs import (
    BOOT,
    DISK,
    MEMORY,
    OS,
    OTHER_BOOT,
    RING_BYTES,
    SEGMENT_BYTES,
    append,
    batch,
    high_watermark,
    memory_of,
    read,
    start,
    turn,
)

LEVELS = {1: MEMORY, 2: OS, 3: DISK}


def fill(log: Log, count: int, tag: bytes = b"v", *, syncs: bool = True) -> None:
    for i in range(count):
        for number in LEVELS:
            append(log, number, batch(tag + b"%d" % i * 60))
        assert turn(log, syncs=syncs)


def contents(log: Log) -> dict[int, dict[int, bytes]]:
    return {number: read(log, number) for number in LEVELS}


def filled(directory: Path, count: int = 30, *, syncs: bool = True) -> dict[int, dict[int, bytes]]:
    """A log that was killed: its directory, and what was in it."""
    log = start(directory, levels=LEVELS).log
    fill(log, count, syncs=syncs)
    before = contents(log)
    log.wal.close()
    return before


def end(log: Log, number: int, column: int = P_LOG_END) -> int:
    return int(log.partitions.table[log.partitions.slots[number], column])


# --- the ring ------------------------------------------------------------------------------------


@pytest.mark.parametrize("generation", [0, 3])
@pytest.mark.parametrize("unwritten", [1, 12])
def test_frames_that_only_the_ring_has_are_written_after_a_shards_death(
    tmp_path: Path, generation: int, unwritten: int
) -> None:
    log = start(tmp_path, generation=generation, levels=LEVELS).log
    fill(log, 5)
    for i in range(unwritten):
        append(log, 1, batch(b"late %d" % i * 100))
    log.publish(MEMORY)
    before = read(log, 1)
    again, recovered = start(tmp_path, generation=generation + 1, memory=log.memory, levels=LEVELS)
    assert recovered.from_ring_bytes > 0
    assert read(again, 1) == before
    assert again.is_written()
    fill(again, 20)
    again.sealing.advance(1, high_watermark(again, 1), 1)
    after = contents(again)
    again.wal.close()
    third = start(tmp_path, generation=generation + 2, levels=LEVELS).log
    assert {n: contents(third)[n] for n in (2, 3)} == {n: after[n] for n in (2, 3)}


class Killed(BaseException):
    """The shard dies in the middle of its start."""


class DeadlyDisk(OsDisk):
    """The first sync is the end of the process."""

    def sync(self, fd: int) -> None:
        raise Killed


def test_a_start_that_dies_leaves_no_ring_for_the_next(tmp_path: Path) -> None:
    """The next one believed that the fresh ring had all that the WAL has: it served zeros."""
    before, memory = filled(tmp_path), memory_of()
    with pytest.raises(Killed):
        start(tmp_path, disk=DeadlyDisk(), generation=1, memory=memory, levels=LEVELS)
    again, recovered = start(tmp_path, generation=2, memory=memory, levels=LEVELS)
    assert recovered.from_ring_bytes == 0
    assert contents(again) == before
    again.wal.close()


def test_a_start_that_dies_does_not_hide_what_the_first_life_lost(tmp_path: Path) -> None:
    """It dies while it copies a file that a snapshot shares: fresh memory says generation 0."""
    filled(tmp_path)
    for path in tmp_path.glob("*.wal"):
        path.with_suffix(".linked").hardlink_to(path)
    memory = memory_of()
    with pytest.raises(Killed):
        start(tmp_path, disk=DeadlyDisk(), generation=1, memory=memory, levels=LEVELS)
    again = start(tmp_path, generation=2, memory=memory, levels=LEVELS).log
    assert again.losses.since(MEMORY, 0)
    again.wal.close()


def test_frames_that_only_the_ring_has_survive_a_start_that_dies(tmp_path: Path) -> None:
    log = start(tmp_path, levels=LEVELS).log
    fill(log, 5)
    append(log, 1, batch(b"late" * 100))
    log.publish(MEMORY)
    before = contents(log)
    with pytest.raises(Killed):
        start(tmp_path, disk=DeadlyDisk(), generation=1, memory=log.memory, levels=LEVELS)
    again, recovered = start(tmp_path, generation=2, memory=log.memory, levels=LEVELS)
    assert recovered.from_ring_bytes > 0
    assert contents(again) == before
    again.wal.close()


def test_a_frame_that_a_dying_shard_had_not_finished_is_not_taken(tmp_path: Path) -> None:
    log = start(tmp_path, levels=LEVELS).log
    fill(log, 2)
    tail = log.tail
    append(log, 1, batch(b"x" * 300))
    log.memory.ring[(tail + 200) % RING_BYTES] ^= 1
    again, recovered = start(tmp_path, generation=1, memory=log.memory, levels=LEVELS)
    assert recovered.from_ring_bytes == 0
    assert end(again, 1) == 2


def life_without_segments(directory: Path, *methods: str) -> Log:
    """A log whose first life could begin no segment, for these calls failed."""
    disk = FailingDisk(OsDisk())
    for method in ("create", *methods):
        disk.fail(method)
    log = start(directory, disk=disk, levels=LEVELS).log
    assert log.failed is not None
    assert not log.wal.segments
    assert log.tail > log.words[WORD_WRITTEN]
    return log


def test_a_first_segment_that_begins_below_what_the_ring_has_holds_whole_frames(
    tmp_path: Path,
) -> None:
    log = life_without_segments(tmp_path, "replace")
    again = start(tmp_path, generation=1, memory=log.memory, levels=LEVELS).log
    fill(again, 60)
    assert len(again.wal.segments) > 1
    before = contents(again)
    again.wal.close()
    assert contents(start(tmp_path, generation=2, levels=LEVELS).log) == before


def test_a_checkpoint_without_segments_does_not_hide_what_only_the_ring_has(
    tmp_path: Path,
) -> None:
    log = life_without_segments(tmp_path)
    checkpoint, _ = Checkpoint.load(tmp_path)
    assert checkpoint is not None
    assert checkpoint.position > log.words[WORD_WRITTEN]
    again = start(tmp_path, generation=1, memory=log.memory, levels=LEVELS).log
    assert again.wal.segments[0].start == log.words[WORD_RING_START] == 0


# --- sizes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ring_bytes", "segment_bytes"), [(4096, 2048), (65536, 16384), (16384, 1024), (8192, 4096)]
)
def test_ring_and_segment_sizes_may_change(
    tmp_path: Path, ring_bytes: int, segment_bytes: int
) -> None:
    before = filled(tmp_path)
    log = start(
        tmp_path,
        generation=1,
        memory=memory_of(ring_bytes, segment_bytes),
        segment_bytes=segment_bytes,
        levels=LEVELS,
    ).log
    assert contents(log) == before
    fill(log, 10, b"w")
    after = contents(log)
    log.wal.close()
    assert contents(start(tmp_path, generation=2, levels=LEVELS).log) == after


def test_a_longer_table_than_the_new_window_is_filed_at_once(tmp_path: Path) -> None:
    log = start(tmp_path, segment_bytes=65536, memory=memory_of(65536, 65536)).log
    for i in range(300):
        append(log, 1, batch(b"%d" % i))
        turn(log)
    log.wal.close()
    log = start(tmp_path, generation=1).log
    assert log.memory.layout.index_capacity < 300
    assert log.wal.segments[0].index is not None
    for i in range(300, 600):
        append(log, 1, batch(b"%d" % i))
        turn(log)
    assert read(log, 1) == {i: b"%d" % i for i in range(600)}


# --- checkpoint and tables -----------------------------------------------------------------------


@pytest.mark.parametrize("lost", [0, 1])
def test_a_table_that_is_believed_behind_a_segment_without_one_hides_nothing(
    tmp_path: Path, lost: int
) -> None:
    """Partition 1 is not in the last segment: what it has last is in a filed table only."""
    log = start(tmp_path, levels=LEVELS).log
    fill(log, 14)
    for i in range(20):
        append(log, 2, batch(b"%d" % i * 60))
        assert turn(log)
    segments, before = log.wal.segments, contents(log)
    assert len(segments) > lost + 2
    assert log.lookup.filed_of(1)[-1][1] is not segments[lost]
    log.checkpoint()
    log.wal.close()
    segments[lost].index_path.unlink()
    log = start(tmp_path, generation=1, levels=LEVELS).log
    assert contents(log) == before
    fill(log, 10, b"w")
    assert all(contents(log)[each].items() >= before[each].items() for each in LEVELS)


def test_a_checkpoint_behind_the_wal_costs_a_scan_and_nothing_else(tmp_path: Path) -> None:
    log = start(tmp_path, levels=LEVELS).log
    fill(log, 3)
    log.checkpoint()
    old = (tmp_path / FILE_NAME).read_bytes()
    fill(log, 30, b"w")
    before = contents(log)
    log.wal.close()
    (tmp_path / FILE_NAME).write_bytes(old)
    log, recovered = start(tmp_path, generation=1, levels=LEVELS)
    assert contents(log) == before
    assert recovered.scanned_bytes > 10 * SEGMENT_BYTES / 4
    log.wal.close()
    log, recovered = start(tmp_path, generation=2, levels=LEVELS)
    assert recovered.scanned_bytes <= SEGMENT_BYTES


@pytest.mark.parametrize("lost", ["checkpoint", "both", "damaged", "tables", "boot"])
def test_the_frames_are_served_when_other_files_are_lost(tmp_path: Path, lost: str) -> None:
    before = filled(tmp_path)
    if lost in {"checkpoint", "both"}:
        (tmp_path / FILE_NAME).unlink()
    if lost == "both":
        (tmp_path / FILE_NAME_BEFORE).unlink()
    if lost == "damaged":
        (tmp_path / FILE_NAME).write_bytes(b"\0" * 100)
    if lost == "tables":
        for path in tmp_path.glob("*.index"):
            path.write_bytes(path.read_bytes()[:-1])
    if lost == "boot":
        (tmp_path / "boot").unlink()
    log = start(tmp_path, generation=1, levels=LEVELS).log
    assert contents(log) == before
    assert [end(log, n) for n in LEVELS] == [30, 30, 30]


def test_a_checkpoint_that_no_log_writes_is_passed_over(tmp_path: Path) -> None:
    """Of a restored snapshot: a producer of 2^40 batches killed the shard at each start."""
    before = filled(tmp_path)
    for name in (FILE_NAME, FILE_NAME_BEFORE):
        text, _ = parts_of(tmp_path / name)
        producer = np.zeros(PRODUCER_COLUMNS, np.int64)
        producer[[R_PARTITION, R_BATCH_COUNT]] = 1, 2**40
        counted = text.replace(b'"producer_count":0', b'"producer_count":1')
        assert counted != text
        craft(tmp_path / name, counted, producer)
    log = start(tmp_path, generation=1, levels=LEVELS).log
    assert contents(log) == before
    assert "is damaged: using the previous one" in log.notices[0]


def test_with_a_lost_checkpoint_nothing_is_read_below_the_oldest_frame(tmp_path: Path) -> None:
    log = start(tmp_path, levels=LEVELS).log
    fill(log, 30)
    for number in LEVELS:
        log.sealing.advance(number, 20, 1)
    log.checkpoint()
    log.wal.close()
    for name in (FILE_NAME, FILE_NAME_BEFORE):
        (tmp_path / name).unlink()
    log = start(tmp_path, generation=1, levels=LEVELS).log
    oldest = end(log, 2, P_SEALED_END)
    assert 0 < oldest <= 20
    assert log.find(2, 0, 30, 1 << 20) is None
    assert sorted(read(log, 2, oldest)) == list(range(oldest, 30))


def test_unsealed_bytes_survive_however_the_segments_are_read(tmp_path: Path) -> None:
    filled(tmp_path)
    for generation, boot in [(1, BOOT), (2, OTHER_BOOT)]:
        log = start(tmp_path, generation=generation, boot=boot, levels=LEVELS).log
        size = sum(len(batch(b"v" + b"%d" % i * 60)) for i in range(30))
        assert end(log, 2, P_UNSEALED_BYTES) == size
        log.wal.close()


def test_a_dropped_partitions_frames_do_not_come_back(tmp_path: Path) -> None:
    log = start(tmp_path, levels=LEVELS).log
    fill(log, 10)
    log.drop_partitions([2])
    log.checkpoint()
    log.wal.close()
    log = start(tmp_path, generation=1, boot=OTHER_BOOT, levels={1: MEMORY, 3: DISK}).log
    assert sorted(log.partitions.slots) == [1, 3]
    log.sealing.advance(1, 10, 1)
    log.sealing.advance(3, 10, 1)
    log.checkpoint()
    assert len(log.wal.segments) == 1


# --- power ---------------------------------------------------------------------------------------


def cut(directory: Path, position: int) -> None:
    """Lose everything of the WAL from a position on."""
    for path in directory.glob("*.wal"):
        first, data = int(path.stem), path.read_bytes()
        good = min(max(0, position - first), len(data))
        path.write_bytes(data[:good] + bytes(len(data) - good))


def test_after_a_power_loss_at_level_os_the_cut_has_a_name(tmp_path: Path) -> None:
    log = start(tmp_path, levels={2: OS}).log
    for i in range(10):
        append(log, 2, batch(b"%d" % i, producer_id=9, epoch=0, sequence=i))
        turn(log, syncs=False)
    position = log.tail
    for i in range(10, 20):
        append(log, 2, batch(b"%d" % i, producer_id=9, epoch=0, sequence=i))
        turn(log, syncs=False)
    log.checkpoint()  # It knows of what will be lost.
    log.wal.close()
    cut(tmp_path, position)
    log = start(tmp_path, generation=4, boot=OTHER_BOOT, levels={2: OS}).log
    assert end(log, 2) == 10
    assert log.partitions.end_of_epoch(2, 0) == (0, 10)
    retried = batch(b"again", producer_id=9, epoch=0, sequence=10)
    assert append(log, 2, retried) == 10
    assert log.partitions.epochs[2] == [(0, 0), (4, 10)]
    turn(log)
    log.wal.close()
    log = start(tmp_path, generation=5, boot=OTHER_BOOT, levels={2: OS}).log
    assert read(log, 2) == {**{i: b"%d" % i for i in range(10)}, 10: b"again"}
    assert append(log, 2, retried) == 10


def test_a_stale_tail_of_an_earlier_life_is_refused_on_every_later_start(tmp_path: Path) -> None:
    """The torn frame ended the log; on the next start of the same boot it is no damage either."""
    log = start(tmp_path, levels={2: OS}).log
    for i in range(3):
        append(log, 2, batch(b"%d" % i * 200))
        turn(log, syncs=False)
    torn_at = log.tail
    for i in range(3, 6):
        append(log, 2, batch(b"%d" % i * 200))
        turn(log, syncs=False)
    log.wal.close()
    path = log.wal.segments[0].path
    data = bytearray(path.read_bytes())
    data[torn_at : torn_at + FRAME_ALIGNMENT_BYTES] = bytes(FRAME_ALIGNMENT_BYTES)
    path.write_bytes(data)
    for generation in (1, 2, 3):
        log, recovered = start(tmp_path, generation=generation, boot=OTHER_BOOT, levels={2: OS})
        assert recovered.damaged == []
        assert sorted(read(log, 2)) == [0, 1, 2]
        log.wal.close()


# --- damage --------------------------------------------------------------------------------------


def damaged_start(source: Path, target: Path, at: int, boot: bytes) -> tuple[Log, list[str]]:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    path = target / f"{at - at % SEGMENT_BYTES:020d}.wal"
    data = bytearray(path.read_bytes())
    data[at % SEGMENT_BYTES] ^= 1 << at % 8
    path.write_bytes(data)
    for index in target.glob("*.index"):
        index.unlink()
    log, recovered = start(target, generation=1, boot=boot, levels=LEVELS)
    log.wal.close()
    return log, recovered.damaged


@pytest.mark.slow
@pytest.mark.parametrize("boot", [BOOT, OTHER_BOOT])
def test_every_flipped_byte_of_a_frame_is_found_and_costs_that_batch_only(
    tmp_path: Path, boot: bytes
) -> None:
    source, target = tmp_path / "a", tmp_path / "b"
    log = start(source, levels=LEVELS).log
    fill(log, 20)
    before = contents(log)
    found = log.find(2, 4, 5, 1)
    assert found is not None
    position, length = found.spans[0].tolist()
    log.wal.close()
    for at in range(position - 48, position + length, 3):
        log, damaged = damaged_start(source, target, at, boot)
        assert len(damaged) == 1, f"byte {at - position} of the batch"
        assert str(position - 48) in damaged[0]
        kept = list((target / QUARANTINE).iterdir())
        assert [path.name for path in kept] == [f"{position - 48:020d}.frame"]
        assert [end(log, n) for n in LEVELS] == [20, 20, 20]
    again = start(target, generation=2, boot=boot, levels=LEVELS).log
    assert contents(again) == {**before, 2: {k: v for k, v in before[2].items() if k != 4}}
    assert sorted(read(again, 2, 4)) == list(range(5, 20))


def test_the_offsets_of_a_damaged_last_batch_are_not_used_again(tmp_path: Path) -> None:
    log = start(tmp_path / "a", levels=LEVELS).log
    fill(log, 5)
    found = log.find(3, 4, 5, 1)
    assert found is not None
    position, length = found.spans[0].tolist()
    append(log, 1, batch(b"what follows tells damage from a torn end"))
    turn(log)
    log.wal.close()
    log, damaged = damaged_start(tmp_path / "a", tmp_path / "b", position + length - 1, BOOT)
    assert len(damaged) == 1
    assert end(log, 3) == 5
    again = start(tmp_path / "b", generation=2, levels=LEVELS).log
    assert append(again, 3, batch(b"new")) == 5


def test_a_batch_that_was_acked_at_level_disk_is_damage_even_at_the_end_of_a_segment(
    tmp_path: Path,
) -> None:
    """What proves it lies in the next segment, and the machine was booted since."""
    log = start(tmp_path / "a", levels={3: DISK}).log
    while len(log.wal.segments) < 3:
        append(log, 3, batch(b"x" * 500))
        turn(log)
    index = log.wal.segments[0].index
    assert index is not None
    last = int(index.entries["position"][-1])
    before = read(log, 3)
    log.wal.close()
    (tmp_path / "a" / FILE_NAME).unlink()
    (tmp_path / "a" / FILE_NAME_BEFORE).unlink()
    log, damaged = damaged_start(tmp_path / "a", tmp_path / "b", last + 300, OTHER_BOOT)
    assert len(damaged) == 1
    again = start(tmp_path / "b", generation=2, boot=OTHER_BOOT, levels={3: DISK}).log
    lost = len(index.entries) - 1
    assert read(again, 3) == {k: v for k, v in before.items() if k != lost}


def test_a_start_takes_no_memory_for_numbers_that_no_partition_has(tmp_path: Path) -> None:
    """Door fault 2, its kind: a frame that names partition 2**32 - 1 took 34 GB."""
    levels = {1: OS, 2**32 - 1: OS}
    log = start(tmp_path, levels=levels).log
    for number in levels:
        append(log, number, batch(b"v"))
    turn(log)
    log.wal.close()
    for path in (tmp_path / FILE_NAME, tmp_path / FILE_NAME_BEFORE):
        path.unlink(missing_ok=True)
    tracemalloc.start()
    again = start(tmp_path, generation=1, levels=levels).log
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [high_watermark(again, each) for each in levels] == [1, 1]
    assert peak < 50_000_000
