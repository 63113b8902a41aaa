"""Index entries of full segments move to tables; the window makes room for new ones."""

import threading
from pathlib import Path

from smq.log.files.background import BackgroundThread, JobLane
from smq.log.files.disk import OsDisk
from smq.testing.disk import FailingDisk
from tests.log.logs import (
    append,
    batch,
    fill,
    read,
    start,
    turn,
)


def test_a_table_that_cannot_be_filed_costs_nothing_now(tmp_path: Path) -> None:
    disk = FailingDisk(OsDisk())
    log = start(tmp_path, disk=disk).log
    disk.fail("replace")
    fill(log)
    assert log.failed is None
    assert sorted(read(log, 1)) == list(range(40))
    log.wal.close()
    assert sorted(read(start(tmp_path, generation=1).log, 1)) == list(range(40))


def test_index_entries_move_to_tables_before_the_window_overflows(tmp_path: Path) -> None:
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
    background._lanes[JobLane.TABLES] = blocked._lanes[JobLane.TABLES]
    gate = threading.Event()
    background.submit(JobLane.TABLES, lambda: gate.wait(30), lambda _: None)
    fill(log, count=20)
    assert len(log.wal.segments) > 1
    gate.set()
    background.wait()
    assert len(read(log, 1)) == 20
