"""Repairs of what the ring has no more: the page cache has it."""

import errno
import os
from pathlib import Path

import pytest

from shm.kernels.base.words import WORD_SYNCED, WORD_WRITTEN
from smq.log.files.disk import OsDisk
from smq.log.log import Log
from smq.log.repair import NOTE
from smq.testing.disk import FailingDisk
from tests.log.logs import DISK, OS, RING_BYTES, SEGMENT_BYTES, append, batch, read, start, turn


@pytest.fixture
def disk() -> FailingDisk:
    return FailingDisk(OsDisk())


def failure(log: Log) -> str | None:
    return log.failed


def test_a_failed_sync_of_what_the_ring_has_no_more_is_made_up_for(
    tmp_path: Path, disk: FailingDisk
) -> None:
    """The log was read-only until a restart, which made up for it in the same way."""
    levels = {2: OS, 3: DISK}
    log = start(tmp_path, disk=disk, levels=levels).log
    append(log, 3, batch(b"v"))
    assert turn(log)
    synced, count = log.words[WORD_SYNCED], 0
    while log.words[WORD_WRITTEN] - synced <= RING_BYTES:
        append(log, 2, batch(b"%d" % count * 700))
        assert turn(log, syncs=False)
        count += 1
    append(log, 3, batch(b"w"))
    disk.fail("sync", 1)
    assert turn(log)
    log.push_sync()
    assert failure(log) == "fdatasync of the WAL failed"
    assert list(read(log, 3).values()) == [b"v"]
    before = [segment.path.stat().st_ino for segment in log.wal.segments]
    assert log.repair()
    assert log.words[WORD_SYNCED] == log.words[WORD_WRITTEN]
    assert not (tmp_path / NOTE).exists()
    after = [segment.path.stat().st_ino for segment in log.wal.segments]
    assert all(a != b for a, b in zip(before, after, strict=True))
    assert turn(log)
    expected = [b"%d" % i * 700 for i in range(count)]
    assert list(read(log, 2).values()) == expected
    assert list(read(log, 3).values()) == [b"v", b"w"]
    log.close()
    again = start(tmp_path, generation=1, levels=levels).log
    assert list(read(again, 2).values()) == expected


def test_a_failed_write_back_of_what_the_ring_has_no_more_is_made_up_for(
    tmp_path: Path, disk: FailingDisk
) -> None:
    """By default the page cache keeps twice what the rings hold, and nothing syncs `os` topics."""
    log, count = start(tmp_path, disk=disk, levels={2: OS}).log, 0
    log.wal.files.footprint.bytes_max = 2 * RING_BYTES

    def fill(segments: int) -> None:
        nonlocal count
        while len(log.wal.segments) < segments and failure(log) is None:
            append(log, 2, batch(b"%d" % count * 800))
            turn(log, syncs=False)
            count += 1

    fill(10)
    assert [segment.is_cached for segment in log.wal.segments] == [False] * 2 + [True] * 8
    disk.fail("write_back", 1)
    fill(12)
    assert failure(log) is not None
    assert log.words[WORD_SYNCED] == 0
    log.tend()
    assert failure(log) is None
    assert not (tmp_path / NOTE).exists()
    turn(log, syncs=False)
    fill(14)
    log.invariants()
    expected = [b"%d" % i * 800 for i in range(count)]
    assert list(read(log, 2).values()) == expected
    log.close()
    again = start(tmp_path, generation=1, levels={2: OS}).log
    assert list(read(again, 2).values()) == expected


class SmallDisk(OsDisk):
    """A disk with room for so many more files, and for one more for each that goes if it gives
    back what they took."""

    def __init__(self, *, gives_back: bool) -> None:
        self.files_left, self.made, self._gives_back = 1000, 0, gives_back
        self.fails_sync = False  # The next one.

    def create(self, path: Path, size: int) -> int:
        if self.files_left == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.files_left -= 1
        self.made += 1
        return super().create(path, size)

    def close(self, fd: int) -> None:
        super().close(fd)
        self.files_left += self._gives_back

    def sync(self, fd: int) -> None:
        if self.fails_sync:
            self.fails_sync = False
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync(fd)


def in_doubt(directory: Path, disk: SmallDisk, *, of_a_sync: bool = False) -> Log:
    """A log of twelve segments, none of which was synced, and whose write-back or first sync has
    failed."""
    log = start(directory, disk=disk, levels={2: OS}).log
    log.wal.files.footprint.bytes_max = 20 * SEGMENT_BYTES
    while len(log.wal.segments) < 12:
        append(log, 2, batch(b"x" * 800))
        assert turn(log, syncs=False)
    assert log.words[WORD_SYNCED] == 0
    if of_a_sync:
        disk.fails_sync = True
        log.want_sync()
        log.push_sync()
    else:
        log.health.fail_sync("a write-back failed")
    assert failure(log) is not None
    return log


def test_a_repair_needs_space_for_one_file_however_many_it_writes_again(tmp_path: Path) -> None:
    disk = SmallDisk(gives_back=True)
    log = in_doubt(tmp_path, disk)
    disk.files_left, made = 1, disk.made
    log.tend()
    assert failure(log) is None
    assert disk.made >= made + 12
    assert all(segment.pins == 0 for segment in log.wal.segments)


@pytest.mark.parametrize("of_a_sync", [False, True])
def test_a_repair_that_failed_in_the_middle_is_gone_on_with(
    tmp_path: Path, *, of_a_sync: bool
) -> None:
    disk = SmallDisk(gives_back=False)
    log = in_doubt(tmp_path, disk, of_a_sync=of_a_sync)
    before, rounds = list(read(log, 2).values()), 0
    while failure(log) is not None:
        disk.files_left = 4
        rounds += 1
        assert rounds <= 4, "it begins again and again"
        log.tend()
    assert list(read(log, 2).values()) == before
    assert turn(log)
    log.invariants()
