"""A log's files in a snapshot: below the cut, without sealed ones, of some partitions only."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from shm.kernels.base.words import (
    P_COMPACTED_END,
    P_DECIDED_END,
    P_LAST_STABLE,
    P_LOG_START,
    P_SEALED_END,
)
from shm.kernels.log.append import append_marker
from smq.backup.files import is_cached
from smq.backup.wal import SEGMENT_BYTES_MAX, LogFiles, blank_others, cut_of, write_only
from smq.log.files.checkpoint import Open
from smq.log.files.disk import OsDisk
from smq.log.log import Log
from smq.model.errors import StoreError
from smq.wire.markers import Marker, write_marker
from tests.log.logs import (
    NOW_MS,
    OS,
    SEGMENT_BYTES,
    append,
    batch,
    fill,
    high_watermark,
    read,
    row,
    settings,
    start,
    turn,
)

LEVELS = {1: OS, 2: OS}
LIMIT = 8 * SEGMENT_BYTES


def opened(directory: Path, generation: int = 0) -> Log:
    return start(directory, generation=generation, levels=LEVELS, bytes_max=LIMIT).log


def seal(log: Log, number: int) -> None:
    log.sealing.advance(number, high_watermark(log, number), NOW_MS)
    log.checkpoint()
    log.set_space_end()


def test_the_cut_is_kept_while_the_log_goes_on_and_uses_its_files_again(tmp_path: Path) -> None:
    log = opened(tmp_path / "log")
    fill(log, 1)
    fill(log, 2, count=3)
    files = LogFiles(log.directory, tmp_path / "pins")
    files.pin()
    fill(log, 2, count=7)
    cut, before = cut_of(log.memory), read(log, 1) | {}
    for number in (1, 2):  # What was linked is freed now, and the files would be written again.
        seal(log, number)
    for _ in range(20):
        fill(log, 1)
        seal(log, 1)
    files.pin_new()
    files.write(tmp_path / "copy", cut, {1, 2}, only=False)
    restored = opened(tmp_path / "copy", generation=5)
    assert not restored.notices
    assert read(restored, 1) == before
    assert len(read(restored, 2)) == 10
    assert high_watermark(restored, 1) == len(before) == 40


def test_a_fully_sealed_wal_segment_is_left_out_of_the_copy(tmp_path: Path) -> None:
    log = start(tmp_path / "log", levels=LEVELS, bytes_max=LIMIT * 2, keep_bytes_max=LIMIT * 2).log
    fill(log, 1)
    fill(log, 2, count=1)
    before = len(log.wal.segments)
    seal(log, 1)
    fill(log, 2, count=1)
    for numbers, some in (([1], True), ([1, 2], True), ([2], False)):
        known = set(numbers)
        files = LogFiles(log.directory, tmp_path / f"pins{len(known)}{some}")
        files.pin()
        target = tmp_path / f"copy{len(known)}{some}"
        files.write(target, cut_of(log.memory), known, only=False)
        assert 0 < len([*target.glob("*.wal")]) < before
    restored = opened(target, generation=5)
    assert len(read(restored, 2)) == 2


def test_of_other_partitions_there_is_no_byte(tmp_path: Path) -> None:
    log = opened(tmp_path / "log")
    for i in range(30):
        append(log, 1, batch(b"wanted" + b"%d" % i))
        append(log, 2, batch(b"secret" * 60))
        assert turn(log)
    files = LogFiles(log.directory, tmp_path / "pins")
    files.pin()
    files.write(tmp_path / "copy", cut_of(log.memory), {1}, only=True)
    paths = [*(tmp_path / "copy").glob("*.wal")]
    assert len(paths) > 1
    assert not [path for path in paths if b"secret" in path.read_bytes()]
    restored = start(tmp_path / "copy", generation=5).log
    assert not restored.notices
    assert [*read(restored, 1).values()] == [b"wanted%d" % i for i in range(30)]


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("x.wal", 1), ("7.wal", 1), (f"{7:020d}.wal", 1), (f"{0:019d}\u0665.wal", 1),
        (f"{2**63:020d}.wal", 1),
        (f"{2**61:020d}.wal", 64), (f"{64:020d}.wal", 77),
        (f"{64:020d}.wal", SEGMENT_BYTES_MAX + 1), (f"{64:020d}.wal", 1 << 40),
    ],
)  # fmt: skip
def test_a_file_that_is_no_segment_is_refused(tmp_path: Path, name: str, size: int) -> None:
    """A name that is no number ended a restore with a trace; a hole of a terabyte took memory."""
    with (tmp_path / name).open("wb") as file:
        os.truncate(file.fileno(), size)
    with pytest.raises(StoreError, match="it is no segment of a log: somebody has changed it"):
        write_only(tmp_path / name, tmp_path / "copy.wal", size, set())
    assert not (tmp_path / "copy.wal").exists()


def test_a_segment_without_other_partitions_leaves_nothing_in_the_page_cache(
    tmp_path: Path,
) -> None:
    source, copied, size = tmp_path / f"{0:020d}.wal", tmp_path / "copy.wal", 1 << 20
    source.write_bytes(bytes(size))
    disk = OsDisk()
    fd = disk.open(source)
    disk.sync(fd)
    disk.drop(fd, size)
    write_only(source, copied, size, set())
    of_copy = disk.open(copied)
    assert not is_cached(fd, size)
    assert not is_cached(of_copy, size)
    disk.close(fd)
    disk.close(of_copy)


def test_a_damaged_segment_is_refused_where_frames_of_others_must_be_blanked(
    tmp_path: Path,
) -> None:
    log = opened(tmp_path / "log")
    fill(log, 1, count=3)
    data = np.fromfile(log.wal.segments[0].path, np.uint8)
    assert len(log.wal.segments) == 1
    data[300] ^= 1
    with pytest.raises(StoreError, match="take a snapshot of all topics"):
        blank_others(data, log.tail, 0, {2}, tmp_path)


def test_full_segments_of_an_unserved_log_are_linked(tmp_path: Path) -> None:
    log = opened(tmp_path / "log")
    fill(log, 1)
    log.close()
    files = LogFiles(log.directory, tmp_path / "pins")
    files.pin()
    files.write(tmp_path / "copy", None, {1}, only=False)
    linked = [path.stat().st_nlink > 2 for path in sorted((tmp_path / "copy").glob("*.wal"))]
    assert linked[0]
    assert not linked[-1]
    again = opened(tmp_path / "log", generation=6)
    fill(again, 1, count=4)
    restored = opened(tmp_path / "copy", generation=6)
    assert sorted(read(restored, 1)) == list(range(40))


@pytest.mark.parametrize("is_known", [True, False])
def test_records_deleted_before_the_cut_are_deleted_in_the_copy(
    tmp_path: Path, *, is_known: bool
) -> None:
    """Data fault 23: a snapshot missed a DeleteRecords that was answered before its cut."""
    log = opened(tmp_path / "log")
    if is_known:
        fill(log, 1, count=5)
        log.checkpoint()
    files = LogFiles(log.directory, tmp_path / "pins")
    files.pin()
    if not is_known:
        log.adopt(3, settings(OS))
    number = 1 if is_known else 3
    fill(log, number, count=5)
    log.sealing.set_log_start(number, 4)
    cut = cut_of(log.memory)
    log.sealing.set_log_start(number, 5)
    files.pin_new()
    files.write(tmp_path / "copy", cut, {1, 2, 3}, only=False)
    restored = opened(tmp_path / "copy", generation=5)
    assert not restored.notices
    assert int(row(restored, number)[P_LOG_START]) == 4
    assert high_watermark(restored, number) == high_watermark(log, number)


def test_records_compacted_before_the_cut_are_read_from_segments_in_the_copy(
    tmp_path: Path,
) -> None:
    """Data fault 22: compaction ran between the copy of the checkpoint and the cut. After a restore
    the WAL showed a deleted key."""
    log = opened(tmp_path / "log")
    fill(log, 1, count=5)
    files = LogFiles(log.directory, tmp_path / "pins")
    files.pin()
    fill(log, 1, count=5)
    log.sealing.compact(1, 7, NOW_MS)
    cut = cut_of(log.memory)
    log.sealing.compact(1, 8, NOW_MS)
    files.pin_new()
    files.write(tmp_path / "copy", cut, {1, 2}, only=False)
    restored = opened(tmp_path / "copy", generation=5)
    assert not restored.notices
    assert row(restored)[P_COMPACTED_END] == row(restored)[P_SEALED_END] == 7
    assert restored.find(1, 6, 10, 1 << 20) is None
    assert [*read(restored, 1, 7)] == [7, 8, 9]
    restored.partitions.invariants()


@pytest.mark.parametrize("is_decided", [True, False])
def test_a_segment_that_came_and_went_before_the_cut_is_noticed(
    tmp_path: Path, *, is_decided: bool
) -> None:
    """Data fault 23, its kind: records were sealed, and left the log, between the copy of the
    checkpoint and the cut. The copy had neither the markers nor the producers of what was sealed as
    it was sent, and its log ended before it."""
    log = opened(tmp_path / "log")
    fill(log, 1, count=5)
    files = LogFiles(log.directory, tmp_path / "pins")
    files.pin()
    for _ in range(20):
        fill(log, 1, count=6)
        log.sealing.advance(1, high_watermark(log, 1), NOW_MS, is_decided=is_decided)
        log.checkpoint()  # Two say it before undecided ones go.
        log.checkpoint()
        log.set_space_end()
    assert min(each.start for each in log.wal.segments) > files.last + 2 * SEGMENT_BYTES
    files.pin_at_cut()
    assert not files.pin_new(log.tail)
    files.pin()
    files.pin_at_cut()
    cut = cut_of(log.memory)
    assert files.pin_new(cut.end)
    files.write(tmp_path / "copy", cut, {1}, only=False)
    restored = opened(tmp_path / "copy", generation=5)
    assert not restored.notices
    assert high_watermark(restored, 1) == high_watermark(log, 1)
    restored.partitions.invariants()


def test_a_segment_that_is_freed_before_it_can_be_linked_is_noticed(tmp_path: Path) -> None:
    """Data fault 23, its kind: segments were linked long after the cut. Records that were acked
    before it, and in no segment of its manifest, were not in the snapshot."""
    log = opened(tmp_path / "log")
    files = LogFiles(log.directory, tmp_path / "pins")
    files.pin()
    fill(log, 1, count=5)
    files.pin_at_cut()
    fill(log, 1, count=30)
    end, now = log.tail, files.pin_new(log.tail)
    for path in files.pins.glob("*.wal"):  # As if they had not been linked in time.
        if int(path.stem) > files.last:
            path.unlink()
    seal(log, 1)
    for _ in range(20):
        fill(log, 1, count=5)
        seal(log, 1)
    assert (now, files.pin_new(end)) == (True, False)


@pytest.mark.parametrize("way", ["deleted", "compacted"])
def test_producer_state_from_before_the_cut_is_in_the_copy(tmp_path: Path, way: str) -> None:
    """Data fault 22, its kind: a start passed over the frames that were deleted between the copy of
    the checkpoint and the cut. So it did not know their sequences, and an ended transaction was
    open for ever."""
    log = opened(tmp_path / "log")
    append(log, 1, batch(b"a", producer_id=7, epoch=0, sequence=0))
    log.transactions.wrote(Open(1, 7, 0, 0, NOW_MS))
    assert turn(log)
    log.checkpoint()
    files = LogFiles(log.directory, tmp_path / "pins")
    files.pin()
    end(log, 1, Marker(7, 0, committed=False, coordinator_epoch=0))
    idempotent = batch(b"a", producer_id=8, epoch=0, sequence=0)
    assert append(log, 1, idempotent) == 2
    assert turn(log)
    change = log.sealing.set_log_start if way == "deleted" else compacting(log)
    change(1, 3)
    cut = cut_of(log.memory)
    files.pin_new()
    files.write(tmp_path / "copy", cut, {1}, only=False)
    restored = opened(tmp_path / "copy", generation=5)
    restored.partitions.invariants()
    restored.transactions.invariants()
    assert not restored.transactions.copy().open
    assert append(restored, 1, idempotent) == 2
    assert append(restored, 1, batch(b"new")) == 3


def test_the_last_stable_offset_of_a_copy_is_not_below_its_log_start(tmp_path: Path) -> None:
    """Data fault 23, its kind: the last stable offset would lie below the log start."""
    log = opened(tmp_path / "log")
    for number, producer_id, offset in ((1, 7, 3), (1, 8, 9), (2, 7, 3)):
        log.transactions.wrote(Open(number, producer_id, 0, offset, NOW_MS))
    for number in (1, 2):
        fill(log, number, count=9)
    log.checkpoint()
    files = LogFiles(log.directory, tmp_path / "pins")
    files.pin()
    log.sealing.set_log_start(1, 5)
    files.write(tmp_path / "copy", cut_of(log.memory), {1, 2}, only=False)
    restored = opened(tmp_path / "copy", generation=5)
    found = {(each.number, each.first_offset) for each in restored.transactions.copy().open}
    assert found == {(1, 3), (1, 9), (2, 3)}
    assert [int(row(restored, number)[P_LOG_START]) for number in (1, 2)] == [5, 0]
    assert [int(row(restored, number)[P_LAST_STABLE]) for number in (1, 2)] == [5, 3]


def end(log: Log, number: int, marker: Marker) -> None:
    """End a transaction, as a shard does."""
    data = np.frombuffer(bytearray(write_marker(marker, NOW_MS)), np.uint8)
    slot = log.partitions.slots[number]
    offset = int(append_marker(log.memory.memory, log.links, slot, data, NOW_MS, NOW_MS))
    log.transactions.ended(number, marker, offset, NOW_MS)


def compacting(log: Log) -> Callable[[int, int], None]:
    return lambda number, end: log.sealing.compact(number, end, NOW_MS)


def test_records_sealed_undecided_are_decided_by_the_copys_marker(tmp_path: Path) -> None:
    """Use fault 2: a marker follows what has left the log; the copy has both."""
    log = opened(tmp_path / "log")
    log.transactions.wrote(Open(1, 7, 0, 0, NOW_MS))
    fill(log, 1)
    end_before = high_watermark(log, 1)
    log.sealing.advance(1, end_before, NOW_MS, is_decided=False)
    log.checkpoint()
    files = LogFiles(log.directory, tmp_path / "pins")
    files.pin()
    end(log, 1, Marker(7, 0, committed=False, coordinator_epoch=0))
    assert turn(log)
    cut = cut_of(log.memory)
    files.pin_new()
    files.write(tmp_path / "copy", cut, {1, 2}, only=False)
    restored = opened(tmp_path / "copy", generation=5)
    restored.partitions.invariants()
    restored.transactions.invariants()
    assert (row(restored)[P_DECIDED_END], row(restored)[P_SEALED_END]) == (0, end_before)
    assert not restored.transactions.copy().open
    [aborted] = restored.transactions.aborted_in(1, 0, end_before, 9).rows
    assert (aborted.producer_id, aborted.first_offset) == (7, 0)
    assert row(restored)[P_LAST_STABLE] == end_before + 1


def test_deleted_and_compacted_ends_of_the_cut_are_entered_over_what_is_sealed_as_sent(
    tmp_path: Path,
) -> None:
    """Use fault 2: the ends of a copy stay in their order."""
    log = opened(tmp_path / "log")
    for number in (1, 2):
        log.transactions.wrote(Open(number, 7, 0, 0, NOW_MS))
        fill(log, number)
        log.sealing.advance(number, 30, NOW_MS, is_decided=False)
    log.checkpoint()
    files = LogFiles(log.directory, tmp_path / "pins")
    files.pin()
    log.sealing.set_log_start(1, 20)
    log.sealing.compact(2, 10, NOW_MS)
    files.write(tmp_path / "copy", cut_of(log.memory), {1, 2}, only=False)
    restored = opened(tmp_path / "copy", generation=5)
    restored.invariants()
    columns = (P_LOG_START, P_COMPACTED_END, P_DECIDED_END, P_SEALED_END)
    assert [[int(row(restored, n)[each]) for each in columns] for n in (1, 2)] == [
        [20, 0, 20, 30],
        [0, 10, 10, 30],
    ]
