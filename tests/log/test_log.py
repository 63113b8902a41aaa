"""Writing, syncing and publishing; partitions that come and go. test_repair has the failures."""

from pathlib import Path

import pytest

from shm.kernels.base.words import (
    WORD_SYNCED,
    WORD_WRITTEN,
)
from tests.log.logs import (
    DISK,
    MEMORY,
    OS,
    append,
    batch,
    fill,
    high_watermark,
    settings,
    start,
    turn,
)


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
