"""Syncs: in place, and in a thread."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shm.kernels.base.words import WORD_SYNCED
from smq.app.process.clock import monotonic_ns
from smq.client.wait import wait_readable
from smq.log.files.disk import OsDisk
from smq.log.sync import InlineSyncer, SyncThread
from smq.testing.disk import FailingDisk
from tests.log.logs import append, batch, memory_of, start, turn

DEADLINE_S = 10


def test_a_sync_in_place_publishes_and_a_failure_stays_until_reset(tmp_path: Path) -> None:
    memory, disk = memory_of(), FailingDisk(OsDisk())
    syncer = InlineSyncer(memory, disk)
    fd = disk.create(tmp_path / "file", 64)
    assert syncer.post(fd, 64)
    assert memory.words[WORD_SYNCED] == 64
    disk.fail("sync", 1)
    syncer.post(fd, 128)
    syncer.post(fd, 128)
    assert syncer.failed()
    assert memory.words[WORD_SYNCED] == 64
    syncer.reset()
    syncer.post(fd, 128)
    assert memory.words[WORD_SYNCED] == 128
    assert not syncer.busy()
    syncer.stop()


@pytest.fixture
def event_fd() -> Iterator[int]:
    fd = os.eventfd(0, os.EFD_NONBLOCK)
    yield fd
    os.close(fd)


def wait(event_fd: int) -> None:
    assert wait_readable([event_fd], DEADLINE_S)
    os.eventfd_read(event_fd)


def test_the_thread_syncs_in_order_and_tells(tmp_path: Path, event_fd: int) -> None:
    memory = memory_of()
    syncer = SyncThread(memory, event_fd)
    fds = [OsDisk().create(tmp_path / name, 64) for name in "abc"]
    for i, fd in enumerate(fds):
        assert syncer.post(fd, 64 * (i + 1))
    while syncer.busy():
        wait(event_fd)
    assert memory.words[WORD_SYNCED] == 192
    syncer.stop()


def test_the_thread_stops_at_a_failure_until_reset(tmp_path: Path, event_fd: int) -> None:
    memory = memory_of()
    syncer = SyncThread(memory, event_fd)
    closed = OsDisk().create(tmp_path / "a", 64)
    os.close(closed)
    syncer.post(closed, 64)
    wait(event_fd)
    assert syncer.failed()
    assert memory.words[WORD_SYNCED] == 0
    syncer.reset()
    syncer.post(OsDisk().create(tmp_path / "b", 64), 64)
    while memory.words[WORD_SYNCED] == 0:
        wait(event_fd)
    assert not syncer.failed()
    syncer.stop()


def test_the_thread_syncs_while_python_computes(tmp_path: Path, event_fd: int) -> None:
    """A Python thread would wait for the interpreter's lock, which nobody offers it here."""
    memory = memory_of()
    syncer = SyncThread(memory, event_fd)
    fd = OsDisk().create(tmp_path / "file", 64)
    syncer.post(fd, 64)
    wait(event_fd)  # It is up and waits on its futex.
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(2 * DEADLINE_S)
    try:
        syncer.post(fd, 128)
        until_ns = monotonic_ns() + DEADLINE_S * 10**9
        while memory.words[WORD_SYNCED] < 128:
            assert monotonic_ns() < until_ns, "the sync waits for the interpreter"
    finally:
        sys.setswitchinterval(before_s)
    syncer.stop()


class FullSyncer(InlineSyncer):
    """Takes few requests at a time, and has room again whenever it has refused one."""

    posted: list[int]
    room = 2

    def post(self, fd: int, upto: int) -> bool:
        if not self.room:
            self.room = 2
            return False
        self.room -= 1
        self.posted.append(upto)
        return super().post(fd, upto)


def test_no_segment_is_synced_before_an_earlier_one_also_when_there_are_very_many(
    tmp_path: Path,
) -> None:
    memory = memory_of()
    syncer = FullSyncer(memory, OsDisk())
    syncer.posted = []
    log = start(tmp_path, memory=memory, syncer=syncer).log
    for _ in range(40):
        append(log, 1, batch(b"x" * 700))
        turn(log, syncs=False)
    ends = [segment.end for segment in log.wal.segments]
    assert len(ends) > 5
    log.want_sync()
    for _ in ends:
        log.push_sync()
    assert syncer.posted == [*ends[:-1], log.tail]
    assert log.words[WORD_SYNCED] == log.tail
