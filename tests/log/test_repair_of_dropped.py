"""Repairs of logs that have dropped segments from the page cache: the disk has these."""

import os
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from shm.kernels.base.words import WORD_SYNCED, WORD_WRITTEN
from smq.log.files.background import InlineBackground, JobLane
from smq.log.files.disk import OsDisk
from smq.log.log import Log
from smq.log.repair import NOTE
from smq.testing.disk import FailingDisk
from tests.log.logs import OS, SEGMENT_BYTES, append, batch, read, start, turn


@pytest.fixture
def disk() -> FailingDisk:
    return FailingDisk(OsDisk())


def failure(log: Log) -> str | None:
    return log.failed


def dropped(directory: Path, disk: FailingDisk) -> tuple[Log, list[bytes]]:
    """A log that has dropped its first segments, of which the very first came back, and what it
    holds. Its next write-back fails."""
    log, count = start(directory, disk=disk, levels={2: OS}).log, 0
    log.wal.files.footprint.bytes_max = 3 * SEGMENT_BYTES
    segments = log.wal.segments
    while len(segments) < 10 or failure(log) is None:
        if len(segments) == 10 and not segments[0].is_cached:
            log.wal.files.footprint.enter(segments[0])
            disk.fail("write_back", 1)
        append(log, 2, batch(b"%d" % count * 800))
        turn(log, syncs=False)
        count += 1
    assert failure(log) is not None
    return log, [b"%d" % i * 800 for i in range(count)]


def inodes(log: Log) -> list[int]:
    return [segment.path.stat().st_ino for segment in log.wal.segments]


def kept(log: Log, before: list[int]) -> list[bool]:
    """Of each segment, whether its file is still the same."""
    return [a == b for a, b in zip(before, inodes(log), strict=False)]


def test_a_repair_syncs_what_was_dropped_and_writes_the_rest_again(
    tmp_path: Path, disk: FailingDisk
) -> None:
    """It read and wrote all of a log again when an old segment had come back, and one sector of it
    that could not be read had the log fail for ever."""
    log, expected = dropped(tmp_path, disk)
    segments, before, made = log.wal.segments, inodes(log), disk.calls["create"]
    on_disk = [segment.is_on_disk for segment in segments]
    assert on_disk[0]
    assert segments[0].is_cached
    assert on_disk.count(True) >= 6
    disk.bad_places = [(segments[3].path.name, 100, 101)]
    log.tend()
    assert failure(log) is None
    assert kept(log, before) == on_disk[: len(before)]
    assert disk.calls["create"] - made <= on_disk.count(False) + 3  # The next one and spares, too.
    assert log.words[WORD_SYNCED] == log.words[WORD_WRITTEN]
    disk.bad_places.clear()
    turn(log, syncs=False)
    assert list(read(log, 2).values()) == expected
    assert not any(
        segment.is_on_disk and not on for segment, on in zip(segments, on_disk, strict=False)
    )
    log.invariants()


def test_a_dropped_segment_whose_sync_has_failed_is_written_again_too(
    tmp_path: Path, disk: FailingDisk
) -> None:
    log, expected = dropped(tmp_path, disk)
    before, on_disk = inodes(log), [segment.is_on_disk for segment in log.wal.segments]
    disk.fail("sync", 1)
    log.tend()
    assert failure(log) is not None
    assert log.words[WORD_SYNCED] == 0
    log.tend()
    assert failure(log) is None
    assert kept(log, before) == [False, *on_disk[1 : len(before)]]
    turn(log, syncs=False)
    assert list(read(log, 2).values()) == expected
    log.invariants()


def test_a_dropped_segment_is_written_again_if_a_sync_has_failed(
    tmp_path: Path, disk: FailingDisk
) -> None:
    """Else the repair would sync it once more, and believe that."""
    log = start(tmp_path, disk=disk, levels={2: OS}).log
    log.wal.files.footprint.bytes_max = 2 * SEGMENT_BYTES
    while len(log.wal.segments) < 4:
        append(log, 2, batch(b"v" * 800))
        turn(log, syncs=False)
    assert log.words[WORD_SYNCED] == 0
    assert log.wal.segments[0].is_on_disk
    before = inodes(log)
    disk.fail("sync", 1)
    log.want_sync()
    log.push_sync()
    assert log.repair()
    assert not any(kept(log, before))
    assert log.words[WORD_SYNCED] == log.words[WORD_WRITTEN]


class HeldEnds(InlineBackground):
    """Runs jobs, and holds what the loop would hear of those of a lane."""

    def __init__(self) -> None:
        self.held: set[JobLane] = set()
        self.ends: deque[Callable[[], None]] = deque()

    def submit(self, lane: JobLane, job: Callable[[], Any], done: Callable[[Any], None]) -> None:
        def ended(result: object) -> None:
            if lane in self.held:
                self.ends.append(partial(done, result))
            else:
                done(result)

        super().submit(lane, job, ended)

    def let_end(self) -> None:
        while self.ends:
            self.ends.popleft()()


def dropping(directory: Path, disk: FailingDisk) -> tuple[Log, HeldEnds]:
    """A log whose first segment is dropped, and the loop has not heard of it."""
    background = HeldEnds()
    log = start(directory, disk=disk, levels={2: OS}, background=background).log
    footprint = log.wal.files.footprint
    footprint.bytes_max = 2 * SEGMENT_BYTES
    background.held.add(JobLane.WRITE_BACK)
    while not footprint._is_dropping or footprint._waiting:
        if len(log.wal.segments) < 3:
            append(log, 2, batch(b"v" * 800))
            turn(log, syncs=False)
        else:
            background.ends.popleft()()
    assert log.wal.segments[0].is_cached
    return log, background


def test_a_drop_that_ends_during_a_repair_spares_no_segment_of_it(
    tmp_path: Path, disk: FailingDisk
) -> None:
    """The repair would sync it once more after its sync had failed, and believe that."""
    log, background = dropping(tmp_path, disk)
    before = inodes(log)
    disk.fail("sync", 1)
    log.want_sync()
    log.push_sync()
    background.held.add(JobLane.FILES)
    log.repair()
    background.let_end()
    log.tend()
    background.let_end()
    assert failure(log) is None
    assert not any(kept(log, before))


def test_a_drop_says_nothing_of_the_file_that_took_its_place(
    tmp_path: Path, disk: FailingDisk
) -> None:
    log, background = dropping(tmp_path, disk)
    first = log.wal.segments[0]
    disk.fail("sync", 1)
    log.want_sync()
    log.push_sync()
    assert log.repair()
    background.ends.popleft()()
    assert first.is_cached == (first in log.wal.files.footprint._cached)
    assert not first.is_on_disk
    background.let_end()
    log.invariants()


def test_a_repair_leaves_the_note_of_a_write_back_that_has_just_failed(
    tmp_path: Path, disk: FailingDisk
) -> None:
    """After a kill the next start would trust the page cache, drop it, and have nothing."""
    background = HeldEnds()
    log = start(tmp_path, disk=disk, levels={2: OS}, background=background).log
    footprint = log.wal.files.footprint
    footprint.bytes_max = 2 * SEGMENT_BYTES
    disk.fail("write_back", 1)
    background.held.add(JobLane.WRITE_BACK)
    while not (tmp_path / NOTE).exists():
        if len(log.wal.segments) < 3:
            append(log, 2, batch(b"v" * 800))
            turn(log, syncs=False)
        else:
            background.ends.popleft()()
    log.health.fail("another failure", log.words[WORD_WRITTEN])
    assert log.repair()
    assert (tmp_path / NOTE).exists()
    background.held.clear()
    background.let_end()
    assert failure(log) is not None
    log.tend()
    log.tend()
    assert failure(log) is None
    assert not (tmp_path / NOTE).exists()


def test_a_file_whose_new_name_is_not_synced_is_the_segments_from_then_on(
    tmp_path: Path, disk: FailingDisk
) -> None:
    """The old one has no name: what is written to it is gone with the process."""
    log = start(tmp_path, disk=disk, levels={2: OS}).log
    append(log, 2, batch(b"v"))
    disk.fail("write", 1)
    assert not turn(log)
    disk.fail_behind_rename = True
    assert not log.repair()
    assert failure(log) is not None
    segment = log.wal.segments[-1]
    assert os.fstat(segment.fd).st_ino == segment.path.stat().st_ino
    log.tend()
    assert failure(log) is None
    assert os.fstat(segment.fd).st_ino == segment.path.stat().st_ino
    assert turn(log)
    assert list(read(log, 2).values()) == [b"v"]
