"""Sealed segments stay readable in the WAL until their space is needed."""

import errno
from pathlib import Path

import numpy as np
import pytest

from smq.log import freeing, holders
from smq.log.files import kept
from smq.log.files.disk import OsDisk
from smq.log.log import RESERVE_SHARE, Log
from smq.log.reading import DamagedFrame
from smq.testing.disk import FailingDisk
from tests.log.logs import (
    NOW_MS,
    OS,
    SEGMENT_BYTES,
    append,
    batch,
    fill,
    high_watermark,
    read,
    read_batch,
    start,
    turn,
)

LIMIT = 16 * SEGMENT_BYTES
ALL = 1 << 30


def keeping(directory: Path, **given: object) -> Log:
    values = {"bytes_max": LIMIT, "keep_bytes_max": LIMIT, **given}
    return start(directory, **values).log  # type: ignore[arg-type]


def seal(log: Log, number: int = 1) -> None:
    log.sealing.advance(number, high_watermark(log, number), NOW_MS)
    log.checkpoint()
    log.set_space_end()
    log.invariants()


def files_bytes(directory: Path) -> int:
    files = (*directory.glob("*.wal"), *directory.glob("*.spare"))
    return sum(path.stat().st_size for path in files)


def test_sealed_segments_are_read_from_the_wal_and_count_as_free(tmp_path: Path) -> None:
    log = keeping(tmp_path)
    free_before = log.space_left
    fill(log)
    count = len(log.wal.segments)
    seal(log)
    assert len(log.wal.segments) == count > 3
    assert sorted(read(log, 1)) == list(range(40))
    assert free_before - log.space_left <= SEGMENT_BYTES


@pytest.mark.slow
def test_the_oldest_goes_first_when_space_is_wanted_and_files_never_exceed_the_limit(
    tmp_path: Path,
) -> None:
    log = keeping(tmp_path)
    for _ in range(20):
        fill(log, count=30)
        seal(log)
        assert files_bytes(tmp_path) <= LIMIT
    assert len(log.wal.files.kept.segments) > 8
    found = sorted(read(log, 1, log.wal.segments[0].index.first_offsets[1]))  # type: ignore[union-attr]
    assert found == list(range(found[0], 600))
    assert log.find(1, 0, 600, ALL) is None


def test_a_write_of_many_segments_frees_as_it_goes(tmp_path: Path) -> None:
    log = keeping(tmp_path)
    fill(log, count=60)
    seal(log)
    for i in range(30):
        append(log, 1, batch(b"%d" % i * 500))
    assert turn(log)
    log.invariants()
    assert files_bytes(tmp_path) <= LIMIT


def test_sealed_segments_take_no_more_than_their_share(tmp_path: Path) -> None:
    log = keeping(tmp_path, keep_bytes_max=2 * SEGMENT_BYTES)
    fill(log)
    seal(log)
    assert [segment.is_kept for segment in log.wal.segments] == [True, True, False]


def test_tables_of_kept_segments_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "ROWS_MAX", 6)
    log = keeping(tmp_path, levels={1: OS, 2: OS})
    for i in range(40):
        append(log, 1 + i % 2, batch(b"v" * 200))
        turn(log)
    seal(log, 1)
    seal(log, 2)
    assert len(log.wal.files.kept.segments) == 3


def test_a_lent_segment_stays_while_others_can_be_recycled(tmp_path: Path) -> None:
    log = keeping(tmp_path)
    fill(log)
    seal(log)
    lent = log.wal.segments[0]
    lent.loans = 1
    for _ in range(10):
        fill(log, count=30)
        seal(log)
    assert log.wal.segments[0] is lent
    lent.loans = 0
    fill(log, count=30)
    assert log.wal.segments[0] is not lent


def test_lent_segments_are_recycled_when_no_others_are_left(tmp_path: Path) -> None:
    log = keeping(tmp_path)
    fill(log, count=60)
    seal(log)
    for segment in log.wal.segments[:-1]:
        segment.loans = 1
    fill(log, count=100)
    log.invariants()
    assert files_bytes(tmp_path) <= LIMIT
    assert log.failed is None


def test_segments_without_readable_records_are_freed(tmp_path: Path) -> None:
    log = keeping(tmp_path, levels={1: OS, 2: OS})
    fill(log, 1, count=30)
    fill(log, 2, count=30)
    seal(log, 1)
    seal(log, 2)
    log.sealing.set_log_start(1, high_watermark(log, 1))
    log.tend()
    kept_now = log.wal.files.kept.segments
    assert kept_now
    assert all(2 in segment.index.ends for segment in kept_now if segment.index is not None)
    log.drop_partitions([2])
    log.tend()
    assert not log.wal.files.kept.segments
    log.invariants()


def test_after_a_start_it_is_kept_again(tmp_path: Path) -> None:
    log = keeping(tmp_path)
    fill(log)
    seal(log)
    log.close()
    again = keeping(tmp_path, generation=1)
    assert sorted(read(again, 1)) == list(range(39))  # Of the last segment nothing sealed is read.
    assert again.find(1, 39, 40, ALL) is None
    assert len(again.wal.files.kept.segments) > 3
    again.invariants()


def test_damage_of_what_is_kept_loses_nothing(tmp_path: Path) -> None:
    log = keeping(tmp_path)
    fill(log, count=60)
    found = log.find(1, 0, 1, ALL)
    assert found is not None
    seal(log)
    position, length = found.spans[0].tolist()
    with log.wal.segments[0].path.open("r+b") as file:
        file.seek(position + 70)
        file.write(b"!!!")
    with pytest.raises(DamagedFrame, match="sealed"):
        read_batch(log, position, length)
    assert log.find(1, 0, 60, ALL) is None  # Sealed segments have it.
    assert log.lookup.behind_damage(1, 0) == 0
    assert len(log.notices) == 1
    log.invariants()


def test_a_full_disk_takes_what_is_kept_for_what_is_new(tmp_path: Path) -> None:
    disk = FailingDisk(OsDisk())
    log = keeping(tmp_path, disk=disk)
    fill(log, count=60)
    seal(log)
    disk.fail("create", 1000, errno.ENOSPC)
    fill(log, count=30)
    assert log.failed is None
    assert high_watermark(log, 1) == 90
    log.invariants()


class SmallDisk(OsDisk):
    """It has so much free."""

    free_bytes = 1 << 40

    def space(self, path: Path) -> tuple[int, int]:
        return self.free_bytes, RESERVE_SHARE * 8 * SEGMENT_BYTES


def test_files_go_while_others_want_the_disk_and_come_back(tmp_path: Path) -> None:
    disk = SmallDisk()
    log = keeping(tmp_path, disk=disk)
    fill(log)
    seal(log)
    before = files_bytes(tmp_path)
    disk.free_bytes = 4 * SEGMENT_BYTES
    log.fit_disk()
    assert before - files_bytes(tmp_path) >= 4 * SEGMENT_BYTES
    assert sorted(read(log, 1, high_watermark(log, 1) - 1)) == [39]
    disk.free_bytes = 0
    log.fit_disk()
    log.fit_disk()
    log.invariants()
    assert log.space_left < SEGMENT_BYTES
    assert not log.wal.files.kept.segments
    disk.free_bytes = 1 << 40
    log.fit_disk()
    assert log.space_left > LIMIT // 2
    assert np.all([segment.pins == 0 for segment in log.wal.segments])


def test_a_start_keeps_it_at_once_however_many_partitions_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (holders, freeing):
        monkeypatch.setattr(module, "LOOKS_MAX", 3)
    levels = dict.fromkeys(range(1, 6), OS)
    log = keeping(tmp_path, levels=levels)
    for i in range(60):
        append(log, 1 + i % 5, batch(b"v" * 300))
        turn(log)
    for number in levels:
        seal(log, number)
    log.close()
    again = keeping(tmp_path, generation=1, levels=levels)
    assert all(segment.is_kept for segment in again.wal.segments[:-1])
    assert again.space_left >= LIMIT - 3 * SEGMENT_BYTES
    again.invariants()
