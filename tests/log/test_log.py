"""What a log does at run time: frees, checkpoints, windows, levels; failures are in test_repair."""

import threading
import time
from pathlib import Path

import numpy as np
import pytest

from shm.kernels.base.words import (
    P_LOG_END,
    P_LOG_START,
    P_SEALED_END,
    P_UNSEALED_BYTES,
    P_UNSEALED_SINCE_MS,
    WORD_SPACE_END,
    WORD_SYNCED,
    WORD_WRITTEN,
)
from smq.log.background import BackgroundThread, Lane
from smq.log.disk import OsDisk
from smq.log.log import Log
from smq.log.wal import SPARES_READY
from smq.testing.disk import FailingDisk
from tests.log.logs import (
    DISK,
    MEMORY,
    NOW_MS,
    OS,
    SEGMENT_BYTES,
    append,
    batch,
    high_watermark,
    memory_of,
    read,
    settings,
    start,
    turn,
)


def fill(log: Log, number: int = 1, count: int = 40) -> None:
    for i in range(count):
        append(log, number, batch(b"%d" % i * 200))
        assert turn(log)


def row(log: Log, number: int = 1) -> np.ndarray:
    table: np.ndarray = log.partitions.table
    found: np.ndarray = table[log.partitions.slots[number]]
    return found


# --- freeing -------------------------------------------------------------------------------------


def test_a_segment_is_freed_when_all_in_it_is_sealed_and_the_checkpoint_says_so(
    tmp_path: Path,
) -> None:
    log = start(tmp_path, levels={1: OS, 2: OS}).log
    append(log, 2, batch(b"idle"))
    fill(log)
    count = len(log.wal.segments)
    log.sealed(1, 40, NOW_MS)
    assert len(log.wal.segments) == count
    log.checkpoint()
    assert [s.start for s in log.wal.segments] == [0, (count - 1) * SEGMENT_BYTES]
    log.sealed(2, 1, NOW_MS)
    log.tend()
    assert len(log.wal.segments) == 1


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


def test_retention_may_drop_what_was_never_sealed(tmp_path: Path) -> None:
    log = start(tmp_path).log
    fill(log)
    log.set_log_start(1, 30)
    log.checkpoint()
    assert int(row(log)[P_LOG_START]) == int(row(log)[P_SEALED_END]) == 30
    assert log.find(1, 0, 40, 1) is None
    assert sorted(read(log, 1, 30)) == list(range(30, 40))
    assert log.wal.segments[0].start > 0
    log.wal.close()
    log = start(tmp_path, generation=1).log
    assert int(row(log)[P_LOG_START]) == 30


def test_a_pinned_segment_is_freed_after_the_pin_is_gone(tmp_path: Path) -> None:
    log = start(tmp_path).log
    fill(log)
    log.wal.segments[0].pins = 1
    log.sealed(1, 40, NOW_MS)
    log.checkpoint()
    assert [s.pins for s in log.wal.segments] == [1, 0]
    log.tend()
    assert len(log.wal.segments) == 2
    log.wal.segments[0].pins = 0
    log.tend()
    assert len(log.wal.segments) == 1


def test_a_lent_segment_is_freed_when_the_log_wants_its_space(tmp_path: Path) -> None:
    log = start(tmp_path).log
    fill(log)
    log.wal.segments[0].loans = 1
    log.sealed(1, 40, NOW_MS)
    log.checkpoint()
    log.tend()
    assert [s.loans for s in log.wal.segments] == [1, 0]
    log.wal.bytes_max = log.wal.allocated_bytes
    log.words[WORD_SPACE_END] = log.tail
    log.tend()
    assert [s.loans for s in log.wal.segments] == [0]
    log.invariants()


def test_files_stay_as_many_as_the_wal_once_had_and_are_used_again(tmp_path: Path) -> None:
    log, most = start(tmp_path).log, 0
    for _ in range(10):
        fill(log, count=30)
        files = len(list(tmp_path.glob("*.wal")) + list(tmp_path.glob("*.spare")))
        most = max(most, len(log.wal.segments))
        assert files <= most + 1 + max(SPARES_READY, most)
        log.sealed(1, high_watermark(log, 1), NOW_MS)
        log.checkpoint()


def test_what_stays_unsealed_is_as_old_as_the_seal(tmp_path: Path) -> None:
    log = start(tmp_path).log
    fill(log, count=10)
    size = sum(len(batch(b"%d" % i * 200)) for i in range(10))
    assert (row(log)[P_UNSEALED_BYTES], row(log)[P_UNSEALED_SINCE_MS]) == (size, NOW_MS)
    log.sealed(1, 9, NOW_MS + 5)
    assert row(log)[P_UNSEALED_BYTES] == len(batch(b"9" * 200))
    assert row(log)[P_UNSEALED_SINCE_MS] == NOW_MS + 5
    log.sealed(1, 10, NOW_MS + 6)
    assert (row(log)[P_UNSEALED_BYTES], row(log)[P_UNSEALED_SINCE_MS]) == (0, 0)


def test_sealed_segments_that_reach_further_than_the_log_are_believed(tmp_path: Path) -> None:
    log = start(tmp_path).log
    fill(log, count=3)
    log.sealed(1, 8, NOW_MS)
    log.invariants()
    assert int(row(log)[P_LOG_END]) == 8
    assert append(log, 1, batch(b"next")) == 8


# --- checkpoints ---------------------------------------------------------------------------------


def test_who_waits_for_a_checkpoint_is_told_when_one_of_now_is_durable(tmp_path: Path) -> None:
    disk, told = FailingDisk(OsDisk()), list[int]()
    log = start(tmp_path, disk=disk).log
    fill(log, count=3)
    disk.fail("replace", 1)
    log.checkpoint(lambda: told.append(1))
    assert told == []
    log.tend()
    assert told == [1]
    log.checkpoint(lambda: told.append(2))
    assert told == [1, 2]


def test_a_checkpoint_asked_for_while_one_is_written_is_written_after_it(tmp_path: Path) -> None:
    background, told = BackgroundThread(lambda: None), list[str]()
    log = start(tmp_path, background=background).log
    background.wait()
    log.checkpoint(lambda: told.append("first"))
    fill(log, count=20)
    log.checkpoint(lambda: told.append("second"))
    background.wait()
    assert told == ["first", "second"]
    log.close()
    again, recovered = start(tmp_path, generation=1)
    assert recovered.scanned_bytes <= SEGMENT_BYTES
    assert len(read(again, 1)) == 20


def test_a_table_that_cannot_be_filed_costs_nothing_now(tmp_path: Path) -> None:
    disk = FailingDisk(OsDisk())
    log = start(tmp_path, disk=disk).log
    disk.fail("replace")
    fill(log)
    assert log.failed is None
    assert sorted(read(log, 1)) == list(range(40))
    log.wal.close()
    assert sorted(read(start(tmp_path, generation=1).log, 1)) == list(range(40))


def test_a_thousand_partitions_cost_the_loop_little(tmp_path: Path) -> None:
    memory = memory_of(1 << 20, 1 << 18, 2000)
    levels = dict.fromkeys(range(1, 1001), OS)
    log = start(tmp_path, memory=memory, segment_bytes=1 << 18, levels=levels).log
    for i in range(4000):
        append(log, 1 + i % 1000, batch(b"v" * 50))
        if i % 100 == 0:
            turn(log)
    turn(log)
    began = time.perf_counter()
    for number in levels:
        log.sealed(number, 3, NOW_MS)
    sealing_s = (time.perf_counter() - began) / len(levels)
    began = time.perf_counter()
    log.snapshot()
    snapshot_s = time.perf_counter() - began
    # Wide, for a busy machine: they must catch work for each frame instead of each partition.
    assert sealing_s < 0.1
    assert snapshot_s < 2


# --- the window and the loop ---------------------------------------------------------------------


def test_the_window_gives_way_to_tables_whatever_the_background_does(tmp_path: Path) -> None:
    log = start(tmp_path, background=BackgroundThread(lambda: None)).log
    for i in range(500):
        append(log, 1, batch(b"%d" % i))
    turn(log)
    log.background.wait()
    assert read(log, 1) == {i: b"%d" % i for i in range(500)}
    log.invariants()


def test_a_segment_begins_without_waiting_for_tables(tmp_path: Path) -> None:
    """The lane of tables is blocked for good; what needs no room in the window goes on."""
    background = BackgroundThread(lambda: None)
    log = start(tmp_path, background=background).log
    background.wait()
    blocked = BackgroundThread(lambda: None)
    background._lanes[Lane.TABLES] = blocked._lanes[Lane.TABLES]
    gate = threading.Event()
    background.submit(Lane.TABLES, lambda: gate.wait(30), lambda _: None)
    fill(log, count=20)
    assert len(log.wal.segments) > 1
    gate.set()
    background.wait()
    assert len(read(log, 1)) == 20


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
