"""Checkpoints are written one after another, and free unneeded segments."""

import errno
import os
from pathlib import Path

import pytest

from shm.kernels.base.words import (
    P_DECIDED_END,
    P_SEALED_END,
    WORD_SPACE_END,
    WORD_SYNCED,
    WORD_WRITTEN,
)
from smq.log.files.background import BackgroundThread
from smq.log.files.checkpoint import FILE_NAME, Open
from smq.log.files.disk import OsDisk
from smq.log.files.segment_files import SPARES_READY
from smq.log.log import Log
from smq.log.reading import DamagedFrame
from smq.testing.disk import FailingDisk
from smq.testing.simulation.threads import SteppedSyncer
from tests.log import logs
from tests.log.files.wals import HeldWriteBacks
from tests.log.logs import (
    NOW_MS,
    OS,
    SEGMENT_BYTES,
    append,
    batch,
    fill,
    high_watermark,
    memory_of,
    read,
    row,
    start,
    turn,
)
from tests.log.test_reading import collected, flip, spans


def test_a_segment_is_freed_when_all_in_it_is_sealed_and_the_checkpoint_says_so(
    tmp_path: Path,
) -> None:
    log = start(tmp_path, levels={1: OS, 2: OS}).log
    append(log, 2, batch(b"idle"))
    fill(log)
    count = len(log.wal.segments)
    log.sealing.advance(1, 40, NOW_MS)
    assert len(log.wal.segments) == count
    log.checkpoint()
    assert [s.start for s in log.wal.segments] == [0, (count - 1) * SEGMENT_BYTES]
    log.sealing.advance(2, 1, NOW_MS)
    log.tend()
    assert len(log.wal.segments) == 1


def test_a_pinned_segment_is_freed_after_the_pin_is_gone(tmp_path: Path) -> None:
    log = start(tmp_path).log
    fill(log)
    log.wal.segments[0].pins = 1
    log.sealing.advance(1, 40, NOW_MS)
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
    log.sealing.advance(1, 40, NOW_MS)
    log.checkpoint()
    log.tend()
    assert [s.loans for s in log.wal.segments] == [1, 0]
    log.wal.files.bytes_max = log.wal.files.allocated_bytes
    log.words[WORD_SPACE_END] = log.tail
    log.tend()
    assert [s.loans for s in log.wal.segments] == [0]
    log.invariants()


def test_a_sealed_segment_whose_sync_is_wanted_stays_until_it_is_synced(tmp_path: Path) -> None:
    """Freed before, it left a gap that no sync passed: who waited for the sync got no answer."""
    memory = memory_of()
    syncer = SteppedSyncer(memory, OsDisk(), lambda: 0)
    log = start(tmp_path, memory=memory, syncer=syncer).log
    for i in range(20):
        append(log, 1, batch(b"%d" % i * 200))
        assert turn(log, syncs=False)
    assert len(log.wal.segments) == 3
    log.want_sync()
    syncer.step()
    assert log.words[WORD_SYNCED] == SEGMENT_BYTES
    for i in range(20):
        append(log, 1, batch(b"%d" % i * 200))
        assert turn(log, syncs=False)
    log.sealing.advance(1, 36, NOW_MS)
    log.checkpoint()
    last = log.wal.segments[-1].start
    assert 2 * SEGMENT_BYTES in [segment.start for segment in log.wal.segments]
    log.push_sync()
    finish_syncs(log, syncer)
    log.checkpoint()
    assert [each.start for each in log.wal.segments if each.start < last - SEGMENT_BYTES] == []


def unsynced(tmp_path: Path) -> tuple[Log, SteppedSyncer]:
    """A log with four kept segments of which none is synced yet, and their sync that runs."""
    memory = memory_of()
    syncer = SteppedSyncer(memory, OsDisk(), lambda: 0)
    log = start(tmp_path, memory=memory, syncer=syncer, keep_bytes_max=1 << 20).log
    for i in range(40):
        append(log, 1, batch(b"%d" % i * 200))
        assert turn(log, syncs=False)
    log.sealing.advance(1, 36, NOW_MS)
    log.checkpoint()
    assert len(kept_in(log)) == 4
    log.want_sync()
    return log, syncer


def kept_in(log: Log) -> list[int]:
    return [segment.start for segment in log.wal.segments if segment.is_kept]


def finish_syncs(log: Log, syncer: SteppedSyncer) -> None:
    while syncer.busy():
        syncer.step()
        assert not syncer.failed()
        log.push_sync()
    assert log.words[WORD_SYNCED] == log.syncs.awaited


def test_a_kept_segment_gives_its_space_while_its_sync_runs(tmp_path: Path) -> None:
    """Its descriptor was closed under the syncer, and the log failed."""
    log, syncer = unsynced(tmp_path)
    fd = log.wal.segments[0].fd
    log.wal.files.bytes_max = log.wal.files.allocated_bytes
    log.words[WORD_SPACE_END] = log.tail
    log.tend()
    assert len(kept_in(log)) < 4
    assert os.fstat(fd)
    finish_syncs(log, syncer)
    log.tend()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_a_damaged_kept_segment_is_freed_while_its_sync_runs(tmp_path: Path) -> None:
    log, syncer = unsynced(tmp_path)
    segment, places = log.wal.segments[0], spans(log)
    flip(log, int(places[0, 0]) + 70)
    assert isinstance(collected(log, places), DamagedFrame)
    assert segment not in log.wal.segments
    finish_syncs(log, syncer)


def test_files_stay_within_their_bound_while_a_sync_does_not_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "LEVELS", (logs.MEMORY, OS))
    log, syncer = unsynced(tmp_path)
    files = log.wal.files
    files.bytes_max = limit = files.allocated_bytes + 2 * SEGMENT_BYTES
    for _ in range(40):
        log.words[WORD_SPACE_END] = files.space_end(log.words[WORD_WRITTEN])
        append(log, 1, batch(b"x" * 800))
        assert turn(log, syncs=False)
        log.sealing.advance(1, high_watermark(log, 1), NOW_MS)
        log.checkpoint()
        log.tend()
        taken = sum(path.stat().st_size for path in tmp_path.glob("*.[ws]*"))
        assert taken <= limit + SEGMENT_BYTES
    assert syncer.busy()
    finish_syncs(log, syncer)


def test_files_stay_as_many_as_the_wal_once_had_and_are_used_again(tmp_path: Path) -> None:
    log, most = start(tmp_path).log, 0
    for _ in range(10):
        fill(log, count=30)
        files = len(list(tmp_path.glob("*.wal")) + list(tmp_path.glob("*.spare")))
        most = max(most, len(log.wal.segments))
        assert files <= most + 1 + max(SPARES_READY, most)
        log.sealing.advance(1, high_watermark(log, 1), NOW_MS)
        log.checkpoint()


def test_a_waiter_for_a_checkpoint_is_called_when_a_later_one_is_durable(tmp_path: Path) -> None:
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


class FirstOnly(FailingDisk):
    """A disk that has space for so many checkpoints."""

    left = 9

    def __init__(self) -> None:
        super().__init__(OsDisk())

    def replace(self, path: Path, data: bytes | memoryview) -> None:
        """See Disk."""
        if path.name == FILE_NAME:
            self.left -= 1
            if self.left < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().replace(path, data)


def test_an_undecided_sealed_segment_is_freed_after_two_checkpoints(tmp_path: Path) -> None:
    """Use fault 2: where the newest is damaged, the one before must know what was open in what the
    log has no more."""
    disk = FirstOnly()
    log = start(tmp_path, disk=disk).log
    fill(log)
    count = len(log.wal.segments)
    log.sealing.advance(1, 40, NOW_MS, is_decided=False)
    disk.left = 1
    log.checkpoint()
    for _ in range(2):
        log.tend()
        assert len(log.wal.segments) == count
    disk.left = 1
    log.tend()
    assert len(log.wal.segments) == 1
    log.invariants()


def test_a_decided_sealed_segment_is_freed_after_one_checkpoint(tmp_path: Path) -> None:
    disk = FirstOnly()
    log = start(tmp_path, disk=disk).log
    fill(log)
    log.sealing.advance(1, 40, NOW_MS)
    disk.left = 1
    log.checkpoint()
    assert len(log.wal.segments) == 1


def test_a_start_without_the_newest_checkpoint_knows_what_was_open_in_what_is_freed(
    tmp_path: Path,
) -> None:
    """Use fault 2."""
    log = start(tmp_path).log
    log.transactions.wrote(Open(1, 7, 0, 0, NOW_MS))
    fill(log)
    log.sealing.advance(1, 40, NOW_MS, is_decided=False)
    log.checkpoint()
    log.tend()
    assert len(log.wal.segments) == 1
    log.close()
    (tmp_path / FILE_NAME).unlink()
    again = start(tmp_path, generation=1).log
    [opened] = again.transactions.copy().open
    assert (opened.producer_id, opened.first_offset) == (7, 0)
    assert [int(row(again)[each]) for each in (P_DECIDED_END, P_SEALED_END)] == [0, 40]
    again.invariants()


@pytest.mark.slow
@pytest.mark.parametrize("is_full", [False, True], ids=["a disk with room", "a full disk"])
def test_write_backs_that_wait_keep_no_sealed_segment_from_being_used_again(
    tmp_path: Path, is_full: bool
) -> None:
    disk, limit = FailingDisk(OsDisk()), 8 * SEGMENT_BYTES
    log = start(
        tmp_path, disk=disk, background=HeldWriteBacks(), bytes_max=limit, keep_bytes_max=limit
    ).log
    log.wal.files.footprint.bytes_max = 3 * SEGMENT_BYTES
    for i in range(120):
        if is_full and i == 60:
            disk.fail("create", error=errno.ENOSPC)
        append(log, 1, batch(b"x" * 800))
        assert turn(log, syncs=False)
        log.sealing.advance(1, high_watermark(log, 1), NOW_MS)
        log.checkpoint()
        assert sum(path.stat().st_size for path in tmp_path.glob("*.[ws]*")) <= limit
