"""A disk that fails once, for a while, for ever: acked records stay."""

import errno
import threading
from pathlib import Path

import pytest

from shm.kernels.base.words import WORD_SYNCED, WORD_WRITTEN
from smq.log.files.background import BackgroundThread, JobLane
from smq.log.files.disk import OsDisk
from smq.log.log import Log
from smq.log.repair import NOTE, sync_has_failed
from smq.testing.disk import FailingDisk
from tests.log.files.wals import HeldWriteBacks
from tests.log.logs import (
    BOOT,
    DISK,
    MEMORY,
    OS,
    SEGMENT_BYTES,
    Refused,
    append,
    batch,
    high_watermark,
    read,
    settings,
    start,
    turn,
)

LEVELS = {1: MEMORY, 2: OS, 3: DISK}
KAFKA_STORAGE_ERROR = 56
DEADLINE_S = 20


@pytest.fixture
def disk() -> FailingDisk:
    return FailingDisk(OsDisk())


@pytest.fixture
def log(tmp_path: Path, disk: FailingDisk) -> Log:
    log = start(tmp_path, disk=disk, levels=LEVELS).log
    for i in range(20):
        append_all(log, i)
        assert turn(log)
    return log


def failure(log: Log) -> str | None:
    return log.failed


def append_all(log: Log, i: int) -> None:
    for number in LEVELS:
        append(log, number, batch(b"%d" % i * 100))


def values(log: Log) -> dict[int, list[bytes]]:
    return {number: list(read(log, number).values()) for number in LEVELS}


def expected(count: int) -> dict[int, list[bytes]]:
    return {number: [b"%d" % i * 100 for i in range(count)] for number in LEVELS}


def test_a_failed_write_is_written_again_to_a_fresh_file(
    tmp_path: Path, disk: FailingDisk, log: Log
) -> None:
    segment = log.wal.segments[-1]
    inode = segment.path.stat().st_ino
    append_all(log, 20)
    disk.fail("write", 1)
    assert not turn(log)
    assert failure(log) is not None
    assert high_watermark(log, 2) == 20
    with pytest.raises(Refused, match=str(KAFKA_STORAGE_ERROR)):
        append(log, 2, batch(b"refused"))
    assert log.repair()
    assert segment.path.stat().st_ino != inode
    assert turn(log)
    assert values(log) == expected(21)
    log.close()
    assert values(start(tmp_path, generation=1, levels=LEVELS).log) == expected(21)


def test_a_failed_sync_is_written_again_from_the_ring_and_synced(
    tmp_path: Path, disk: FailingDisk, log: Log
) -> None:
    append_all(log, 20)
    disk.fail("sync", 1)
    assert turn(log)
    assert high_watermark(log, 3) == 20
    log.push_sync()
    assert failure(log) == "fdatasync of the WAL failed"
    assert log.repair()
    assert log.words[WORD_SYNCED] == log.words[WORD_WRITTEN]
    assert turn(log)
    assert values(log) == expected(21)
    assert [notice.split("; ")[-1] for notice in log.notices[-2:]] == [
        "the log is read-only until it is repaired",
        f"{tmp_path}: the WAL is written again",
    ]


def test_a_disk_that_syncs_no_more_leaves_a_log_that_can_be_read(
    disk: FailingDisk, log: Log
) -> None:
    append_all(log, 20)
    disk.fail("sync")
    turn(log)
    log.push_sync()
    for _ in range(3):
        assert not log.repair()
        log.tend()
    assert disk.calls["sync"] < 60
    assert failure(log) == f"the WAL cannot be written: [Errno {errno.EIO}] Input/output error"
    assert list(read(log, 3).values()) == expected(20)[3]
    disk.heal()
    log.tend()
    assert failure(log) is None
    assert turn(log)
    assert values(log) == expected(21)


def test_between_two_rounds_one_attempt_is_made(disk: FailingDisk, log: Log) -> None:
    append_all(log, 20)
    disk.fail("write")
    assert not turn(log)
    assert not log.repair()
    calls = dict(disk.calls)
    for _ in range(10):
        assert not log.repair()
        assert not turn(log)
    assert disk.calls == calls


def test_a_sync_that_was_wanted_meanwhile_goes_on_after_a_repair(log: Log) -> None:
    """Where nothing is in doubt a repair ends at once, perhaps when no turn of the loop follows."""
    append_all(log, 20)
    assert log.write()
    log.health.fail("beginning a segment failed", log.words[WORD_WRITTEN])
    log.want_sync()
    assert log.words[WORD_SYNCED] < log.words[WORD_WRITTEN]
    log.tend()
    assert failure(log) is None
    assert log.words[WORD_SYNCED] == log.words[WORD_WRITTEN]


def test_a_full_disk_is_waited_out(tmp_path: Path, disk: FailingDisk) -> None:
    log = start(tmp_path, disk=disk, levels=LEVELS).log
    disk.fail("create", error=errno.ENOSPC)
    count = 0
    while log.failed is None:
        append_all(log, count)
        count += 1
        turn(log)
    assert log.failed.count("Errno") == 1
    assert log.failed.startswith("beginning a segment: [Errno 28] No space left on device")
    assert log.failed.endswith("(free some space)")
    assert not log.repair()
    disk.heal()
    log.tend()
    assert turn(log)
    assert values(log) == expected(count)
    append_all(log, count)
    assert turn(log)
    log.close()
    assert values(start(tmp_path, generation=1, levels=LEVELS).log) == expected(count + 1)


def test_a_new_partition_of_a_failed_log_is_read_only_until_it_is_healthy(
    disk: FailingDisk, log: Log
) -> None:
    append_all(log, 20)
    disk.fail("write", 2)
    turn(log)
    log.adopt(4, settings(OS))
    with pytest.raises(Refused):
        append(log, 4, batch(b"v"))
    log.tend()
    log.tend()
    assert append(log, 4, batch(b"v")) == 0


def test_a_sync_that_fails_while_a_write_is_in_doubt_is_not_forgotten(
    disk: FailingDisk, log: Log
) -> None:
    append_all(log, 20)
    disk.fail("sync", 1)
    turn(log)
    append_all(log, 21)
    disk.fail("write", 1)
    assert not turn(log)
    assert log.repair()
    assert log.words[WORD_SYNCED] == log.words[WORD_WRITTEN]
    assert turn(log)
    assert values(log) == expected(22)


@pytest.mark.parametrize("method", ["write", "sync", "replace"])
def test_closing_on_a_broken_disk_says_so_and_keeps_what_was_acked(
    tmp_path: Path, disk: FailingDisk, log: Log, method: str
) -> None:
    append_all(log, 20)
    disk.fail(method)
    log.close()
    assert any(str(tmp_path) in notice for notice in log.notices)
    again = start(tmp_path, generation=1, levels=LEVELS).log
    found = values(again)
    assert all(found[number][:20] == expected(20)[number] for number in LEVELS)


class HeldDisk(FailingDisk):
    """A disk whose new files are not made before the test says so."""

    def __init__(self) -> None:
        super().__init__(OsDisk())
        self.goes = threading.Event()
        self.goes.set()

    def create(self, path: Path, size: int) -> int:
        assert self.goes.wait(DEADLINE_S)
        return super().create(path, size)


def test_a_repair_runs_in_the_background_and_readers_do_not_wait(tmp_path: Path) -> None:
    disk = HeldDisk()
    background = BackgroundThread(lambda: None)
    log = start(tmp_path, disk=disk, levels=LEVELS, background=background).log
    for i in range(20):
        append_all(log, i)
        turn(log)
    background.wait()
    oldest = log.wal.segments[0]
    log.sealing.advance(2, 20, 0)
    append_all(log, 20)
    disk.fail("write", 1)
    disk.goes.clear()
    assert not turn(log)
    assert not log.repair()
    assert log.health.may_recover
    assert values(log)[3] == expected(20)[3]
    with pytest.raises(Refused):
        append(log, 2, batch(b"refused"))
    made = disk.calls["create"]
    log.tend()
    disk.goes.set()
    background.wait()
    assert disk.calls["create"] == made + 1  # No second repair was begun beside the first.
    assert failure(log) is None
    assert turn(log)
    assert values(log)[3] == expected(21)[3]
    assert all(segment.pins == 0 for segment in log.wal.segments)
    assert oldest.pins == 0


def test_a_repair_that_fails_in_the_middle_uses_the_files_it_made(
    tmp_path: Path, disk: FailingDisk, log: Log
) -> None:
    disk.fail("sync", 1)
    count = 20
    since = log.words[WORD_SYNCED]
    while log.wal.segments[-1].start <= since:
        append_all(log, count)
        turn(log, syncs=False)
        count += 1
    log.want_sync()
    log.push_sync()
    disk.fail("rename", 1)
    log.repair()
    made = disk.calls["rename"]
    disk.fail("create", 1)
    log.tend()
    disk.heal()
    log.tend()
    assert log.failed is None
    assert disk.calls["rename"] > made
    append_all(log, count)
    assert turn(log)
    log.close()
    assert values(start(tmp_path, generation=1, levels=LEVELS).log) == expected(count + 1)


def test_a_failure_that_every_repair_is_followed_by_is_met_once_a_second_only(
    disk: FailingDisk, log: Log
) -> None:
    count = 20
    disk.fail("open")  # Of a spare: there is nothing to write again, and no next segment.
    disk.fail("create")
    while failure(log) is None:
        append_all(log, count)
        count += 1
        turn(log)
    tried = disk.calls["create"], disk.calls["open"]
    for _ in range(10):
        assert not log.write()
        log.repair()
    assert (disk.calls["create"] - tried[0]) + (disk.calls["open"] - tried[1]) <= 2
    assert failure(log) is not None
    disk.heal()
    log.tend()
    assert turn(log)
    assert values(log)[2] == expected(count)[2]


def dropping(directory: Path, disk: FailingDisk, background: HeldWriteBacks) -> Log:
    """A log that is about to drop its first segment."""
    log = start(directory, disk=disk, levels={2: OS}, background=background).log
    log.wal.files.footprint.bytes_max = 2 * SEGMENT_BYTES
    while len(log.wal.segments) < 3:
        append(log, 2, batch(b"x" * 400))
        assert turn(log, syncs=False)
    return log


def test_a_write_back_that_fails_while_a_write_is_in_doubt_is_not_forgotten(
    tmp_path: Path, disk: FailingDisk
) -> None:
    background = HeldWriteBacks()
    log = dropping(tmp_path, disk, background)
    inodes = [segment.path.stat().st_ino for segment in log.wal.segments]
    append(log, 2, batch(b"y"))
    disk.fail("write", 1)
    assert not turn(log)
    disk.fail("write_back", 1)
    background.wait()
    assert (tmp_path / NOTE).exists()
    assert log.repair()
    assert all(
        segment.path.stat().st_ino != inode
        for segment, inode in zip(log.wal.segments, inodes, strict=True)
    )
    assert not (tmp_path / NOTE).exists()
    log.tend()
    background.wait()
    assert not log.wal.segments[0].is_cached
    log.invariants()


def test_a_write_back_that_fails_while_a_repair_runs_has_the_next_one_do_more(
    tmp_path: Path, disk: FailingDisk
) -> None:
    background = HeldWriteBacks()
    log = dropping(tmp_path, disk, background)
    inode = log.wal.segments[0].path.stat().st_ino
    append(log, 2, batch(b"y"))
    disk.fail("write", 1)
    assert not turn(log)
    background.held.add(JobLane.FILES)
    assert not log.repair()
    disk.fail("write_back", 1)
    background.wait()
    assert failure(log) is not None
    background.held.clear()
    log.tend()
    assert failure(log) is None
    assert log.wal.segments[0].path.stat().st_ino != inode
    log.invariants()


def test_a_shard_that_dies_as_a_write_back_has_failed_leaves_the_note(
    tmp_path: Path, disk: FailingDisk
) -> None:
    """The system tells of it once: later write-backs of the same file succeed."""
    background = HeldWriteBacks()
    log = dropping(tmp_path, disk, background)
    log.wal.files.footprint.failed = lambda _: None  # Its loop does not come to hear of it.
    disk.fail("write_back", 1)
    background.wait()
    assert (tmp_path / NOTE).exists()
    inode = log.wal.segments[0].path.stat().st_ino
    log.wal.close()
    again = start(tmp_path, generation=1, levels={2: OS}).log
    assert again.wal.segments[0].path.stat().st_ino != inode
    assert not (tmp_path / NOTE).exists()


def test_a_stop_waits_for_one_write_back_at_most(tmp_path: Path, disk: FailingDisk) -> None:
    background = HeldWriteBacks()
    log = dropping(tmp_path, disk, background)
    while len(log.wal.segments) < 9:
        append(log, 2, batch(b"x" * 400))
        assert turn(log, syncs=False)
    log.close()
    assert disk.calls["write_back"] == 1


def test_a_note_that_cannot_be_read_may_be_of_this_boot(tmp_path: Path) -> None:
    assert not sync_has_failed(tmp_path, BOOT)
    (tmp_path / NOTE).mkdir()
    assert sync_has_failed(tmp_path, BOOT)
