"""Writing, syncing and publishing; partitions that come and go. test_repair has the failures."""

import threading
from pathlib import Path

import numpy as np
import pytest

from shm.kernels.base.words import (
    WORD_SYNCED,
    WORD_WRITTEN,
)
from smq.log.files.background import BackgroundThread
from smq.log.files.disk import OsDisk
from smq.testing.disk import FailingDisk
from tests.log.logs import (
    DISK,
    MEMORY,
    OS,
    append,
    batch,
    fill,
    high_watermark,
    replace_background,
    settings,
    start,
    turn,
)

DEADLINE_S = 60


def test_a_deleted_partition_holds_nothing(tmp_path: Path) -> None:
    log = start(tmp_path, levels={1: OS, 2: OS}).log
    append(log, 2, batch(b"idle", producer_id=5, epoch=0, sequence=0))
    fill(log)
    assert len(log.producers) == 1
    log.drop_partitions([1, 2])
    log.checkpoint()
    assert len(log.wal.segments) == 1
    assert len(log.producers) == 0
    log.invariants()


@pytest.mark.parametrize("level", [MEMORY, OS, DISK])
def test_a_level_is_published_alone(tmp_path: Path, level: int) -> None:
    log = start(tmp_path, levels={1: MEMORY, 2: OS, 3: DISK}).log
    for number in (1, 2, 3):
        append(log, number, batch(b"v"))
    log.write()
    log.want_sync()
    moved = log.publish(level)
    assert moved == [log.partitions.slots[level + 1]]
    assert [high_watermark(log, n) for n in (1, 2, 3)] == [int(n == level + 1) for n in (1, 2, 3)]


def test_a_row_given_to_a_new_partition_is_not_moved_by_the_old_ones_frames(
    tmp_path: Path,
) -> None:
    log = start(tmp_path, levels={1: DISK}).log
    fill(log, count=5)
    append(log, 1, batch(b"unpublished"))
    log.write()
    log.drop_partitions([1])
    log.adopt(2, settings(DISK))
    turn(log)
    assert high_watermark(log, 2) == 0
    assert append(log, 2, batch(b"first")) == 0


def test_a_sync_reaches_over_segments(tmp_path: Path) -> None:
    log = start(tmp_path, levels={1: DISK}).log
    for _ in range(30):
        append(log, 1, batch(b"x" * 500))
        turn(log, syncs=False)
    assert high_watermark(log, 1) == 0
    assert len(log.wal.segments) > 2
    turn(log)
    assert log.words[WORD_SYNCED] == log.words[WORD_WRITTEN] == log.tail
    assert high_watermark(log, 1) == 30


class StopWaits(BackgroundThread):
    """Says when the log waits for what is under way."""

    def __init__(self) -> None:
        super().__init__(lambda: None)
        self.is_waiting = threading.Event()

    def wait(self) -> None:
        self.is_waiting.set()
        super().wait()


class SlowReads(FailingDisk):
    """No read ends before the log has stopped."""

    def __init__(self, until: threading.Event) -> None:
        super().__init__(OsDisk())
        self.until, self.has_begun = until, threading.Event()

    def read(self, fd: int, length: int, at: int) -> np.ndarray:
        self.has_begun.set()
        assert self.until.wait(DEADLINE_S)
        return super().read(fd, length, at)


def test_a_stop_waits_for_the_read_under_way_and_for_no_other(tmp_path: Path) -> None:
    """Of fifty readers that waited for a failing disk each had its read: perhaps seconds each."""
    background = StopWaits()
    disk = SlowReads(background.is_waiting)
    log = start(tmp_path, disk=disk).log
    fill(log, count=60)
    replace_background(log, background)
    places, got = [segment.start for segment in log.wal.segments], list[np.ndarray]()
    for place in places:
        log.wal.load(place, 100, got.append)
    assert disk.has_begun.wait(DEADLINE_S)
    before = disk.calls.get("read", 0)
    log.close()
    assert len(places) > 5
    assert disk.calls["read"] <= before + 1
    assert len(got) == 1


@pytest.mark.slow
def test_producers_are_known_in_the_next_life(tmp_path: Path) -> None:
    log = start(tmp_path).log
    for i in range(2000):
        append(log, 1, batch(b"v", producer_id=i, epoch=0, sequence=0))
        turn(log)
    assert len(log.producers) == 2000
    assert append(log, 1, batch(b"v", producer_id=7, epoch=0, sequence=0)) == 7
    log.close()
    again = start(tmp_path, generation=1).log
    assert append(again, 1, batch(b"v", producer_id=1999, epoch=0, sequence=0)) == 1999
    assert append(again, 1, batch(b"v", producer_id=1999, epoch=0, sequence=1)) == 2000
