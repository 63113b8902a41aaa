"""Segment files: begun ahead of time, recycled; leftovers of a crash are cleaned."""

import errno
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from smq.log.files import segment_files
from smq.log.files.disk import PAGE_BYTES, OsDisk
from smq.log.files.segment import NoSegment
from smq.log.files.segment_files import SPARES_READY, SPARES_SHARE, WalLimits
from smq.log.files.wal import Wal
from smq.testing.disk import FailingDisk
from tests.log.files.wals import RING, SIZE, HeldBackground, names, new_wal


def test_the_next_file_and_two_spares_are_ready_before_they_are_needed(tmp_path: Path) -> None:
    disk = FailingDisk(OsDisk())
    wal = new_wal(tmp_path, disk)
    wal.write(RING, 0, 64)
    assert names(tmp_path) == [".spare", ".spare", ".wal", ".wal"]
    disk.fail("create")
    wal.write(RING, 64, 3 * SIZE)
    assert len(wal.segments) == 3


def test_a_freed_file_is_used_again(tmp_path: Path) -> None:
    wal = new_wal(tmp_path)
    wal.write(RING, 0, 3 * SIZE)
    inodes = {path.stat().st_ino for path in tmp_path.iterdir()}
    for start in range(3 * SIZE, 20 * SIZE, SIZE):
        wal.files.free(wal.segments[0])
        wal.write(RING, start, start + SIZE)
    assert {path.stat().st_ino for path in tmp_path.iterdir()} == inodes


def test_a_file_that_a_snapshot_has_is_not_written_again(tmp_path: Path) -> None:
    (tmp_path / "wal").mkdir()
    wal = new_wal(tmp_path / "wal")
    wal.write(RING, 0, 3 * SIZE)
    linked = [(segment.path, tmp_path / str(segment.start)) for segment in wal.segments]
    for path, link in linked:
        link.hardlink_to(path)
    content = [link.read_bytes() for _, link in linked]
    for start in range(3 * SIZE, 20 * SIZE, SIZE):
        wal.files.free(wal.segments[0])
        wal.write(RING, start, start + SIZE)
        wal.invariants()
    assert [link.read_bytes() for _, link in linked] == content
    assert [link.stat().st_nlink for _, link in linked] == [1, 1, 1]
    last = wal.segments[-1]
    (tmp_path / "last").hardlink_to(last.path)
    content = [(tmp_path / "last").read_bytes()]
    wal.own_last(last.start + 512)
    wal.copy(memoryview(b"n" * 512), last.fd, 0, 0, 512)
    assert (tmp_path / "last").read_bytes() == content[0]
    assert bytes(wal.read(last.start, 512)) == b"n" * 512
    wal.close()
    (tmp_path / "wal" / "9.spare").hardlink_to(tmp_path / "last")
    assert (tmp_path / "wal" / "9.spare") not in new_wal(tmp_path / "wal").files._spares


def test_freeing_touches_no_file_before_the_background_does(tmp_path: Path) -> None:
    disk, background = FailingDisk(OsDisk()), HeldBackground()
    wal = new_wal(tmp_path, disk, WalLimits(SIZE, 5 * SIZE), background=background)
    wal.write(RING, 0, 3 * SIZE)
    background.wait()
    before, files = disk.calls.copy(), sorted(tmp_path.iterdir())
    for segment in wal.segments[:-1]:
        wal.files.free(segment)
    assert (disk.calls, sorted(tmp_path.iterdir())) == (before, files)
    assert wal.files.files_bytes == len(files) * SIZE
    background.wait()
    assert names(tmp_path) == [".spare"] * SPARES_READY + [".wal"] * 2
    assert wal.files.files_bytes == (SPARES_READY + 2) * SIZE


def test_a_segment_that_is_wanted_waits_for_the_file_of_one_that_was_freed(tmp_path: Path) -> None:
    disk, background = FailingDisk(OsDisk()), HeldBackground()
    wal = new_wal(tmp_path, disk, WalLimits(SIZE, 2 * SIZE), background=background)
    wal.write(RING, 0, 2 * SIZE)
    background.wait()
    inodes = {path.stat().st_ino for path in tmp_path.iterdir()}
    disk.fail("create")
    wal.files.free(wal.segments[0])
    wal.files.prepare_next()
    wal.write(RING, 2 * SIZE, 3 * SIZE)
    assert {path.stat().st_ino for path in tmp_path.iterdir()} == inodes
    assert [segment.start for segment in wal.segments] == [SIZE, 2 * SIZE]


@pytest.mark.parametrize("is_done", [False, True], ids=["the rename", "the directory's sync"])
def test_a_freed_file_whose_rename_fails_is_deleted(tmp_path: Path, is_done: bool) -> None:
    """It stayed, and nobody counted it, until the next start."""
    disk = FailingDisk(OsDisk())
    wal = new_wal(tmp_path, disk, WalLimits(SIZE, 20 * SIZE))
    wal.write(RING, 0, 2 * SIZE)
    if is_done:
        disk.fail_behind_rename = True
    else:
        disk.fail("rename", 1)
    wal.files.free(wal.segments[0])
    assert len(list(tmp_path.iterdir())) * SIZE == wal.files.files_bytes
    wal.write(RING, 2 * SIZE, 5 * SIZE)
    assert [segment.start for segment in wal.segments] == [i * SIZE for i in range(1, 5)]
    assert len(list(tmp_path.iterdir())) * SIZE == wal.files.files_bytes


def test_a_new_file_that_gets_no_name_is_deleted(tmp_path: Path) -> None:
    disk = FailingDisk(OsDisk())
    wal = new_wal(tmp_path, disk)
    disk.fail("rename", 1)
    with pytest.raises(NoSegment):
        wal.write(RING, 0, 64)
    assert not list(tmp_path.iterdir())


def test_of_many_freed_files_some_are_kept(tmp_path: Path) -> None:
    wal = new_wal(tmp_path)
    wal.files.bytes_max = 40 * SIZE
    wal.write(RING, 0, SIZE)
    for start in range(SIZE, 30 * SIZE, SIZE):
        wal.write(RING, start, start + SIZE)
    for segment in wal.segments[:-1]:
        wal.files.free(segment)
    assert names(tmp_path) == [".spare"] * (40 // SPARES_SHARE) + [".wal", ".wal"]


def test_a_segment_that_cannot_be_begun_says_so_and_can_be_later(tmp_path: Path) -> None:
    disk = FailingDisk(OsDisk())
    wal = new_wal(tmp_path, disk)
    disk.fail("create", error=errno.ENOSPC)
    with pytest.raises(NoSegment) as caught:
        wal.write(RING, 0, 64)
    assert caught.value.errno == errno.ENOSPC
    assert wal.segments == []
    disk.heal()
    wal.write(RING, 0, 64)
    assert bytes(wal.read(0, 64)) == bytes(RING[:64])


def test_a_failed_rename_costs_no_spare(tmp_path: Path) -> None:
    disk = FailingDisk(OsDisk())
    wal = new_wal(tmp_path, disk)
    wal.write(RING, 0, 64)
    disk.fail("rename")
    wal.write(RING, 64, SIZE + 64)  # The next file was ready.
    with pytest.raises(NoSegment):
        wal.write(RING, SIZE + 64, 2 * SIZE + 64)
    disk.heal()
    wal.write(RING, 2 * SIZE, 2 * SIZE + 64)
    assert len(wal.segments) == 3


def test_leftovers_are_deleted_and_foreign_files_are_not(tmp_path: Path) -> None:
    wal = new_wal(tmp_path)
    wal.write(RING, 0, 2 * SIZE)
    wal.close()
    kept = {path.name for path in tmp_path.iterdir()}
    (tmp_path / f"{0:020d}.index").touch()
    for name in ("checkpoint.new", "77.spare", f"{99:020d}.index", f"{7 * SIZE:020d}.wal"):
        (tmp_path / name).touch()
    (tmp_path / "notes.txt").touch()
    (tmp_path / "mine.wal").write_bytes(b"not a segment")
    again = new_wal(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == kept | {
        "notes.txt", "mine.wal", f"{0:020d}.index",
    }  # fmt: skip
    assert [s.start for s in again.segments] == [0, SIZE, 2 * SIZE]


def test_spares_of_another_size_are_deleted(tmp_path: Path) -> None:
    wal = new_wal(tmp_path)
    wal.write(RING, 0, 64)
    wal.close()
    again = new_wal(tmp_path, limits=WalLimits(2 * SIZE))
    assert names(tmp_path) == [".wal", ".wal"]
    again.files.forget_from(64)
    assert [(s.start, s.end) for s in again.segments] == [(0, SIZE)]


def test_segments_behind_the_end_are_forgotten_also_when_their_files_remain(tmp_path: Path) -> None:
    wal = new_wal(tmp_path)
    wal.write(RING, 0, 2 * SIZE + 64)
    wal.close()
    disk = FailingDisk(OsDisk())
    again = new_wal(tmp_path, disk)
    disk.fail("remove", error=errno.EIO)
    with pytest.raises(OSError, match="error"):
        again.files.forget_from(64)
    assert [(s.start, s.end) for s in again.segments] == [(0, SIZE)]
    disk.heal()
    again.write(RING, 64, SIZE + 64)
    assert bytes(again.read(SIZE, 64)) == bytes(RING[SIZE : SIZE + 64])


def test_new_spares_do_not_take_names_that_are_taken(tmp_path: Path) -> None:
    for _ in range(3):
        wal = new_wal(tmp_path)
        wal.files.forget_from(64)
        start = wal.segments[-1].end if wal.segments else 0
        wal.write(RING, start, start + 64)
        wal.close()
    assert len(list(tmp_path.glob("*.spare"))) <= 2 + SPARES_READY


def test_spares_are_written_ahead_when_somebody_waits_for_syncs(tmp_path: Path) -> None:
    disk = FailingDisk(OsDisk())
    wal = new_wal(tmp_path, disk)
    wal.files.writes_ahead = True
    wal.write(RING, 0, 64)
    assert disk.calls["fill"] == 2


class DroppedDisk(FailingDisk):
    """The page cache has nothing of any file."""

    def cached_pages(self, fd: int, length: int) -> np.ndarray | None:
        """See Disk."""
        del fd
        return np.zeros(-(-length // PAGE_BYTES), np.bool_)

    def read_cached(
        self, fd: int, length: int, at: int, out: np.ndarray | None = None
    ) -> np.ndarray | None:
        """See Disk."""
        del fd, length, at, out
        return None


def recycled(directory: Path, disk: FailingDisk, held: HeldBackground) -> Wal:
    """A log whose requests wait for syncs, whose next file is to be made of one that it freed."""
    wal = new_wal(directory, disk, WalLimits(SIZE, 6 * SIZE), background=held)
    for i in range(5):
        wal.write(RING, i * SIZE, (i + 1) * SIZE)
        held.wait()
    wal.files.writes_ahead = True
    while len(wal.segments) > 2:
        wal.files.free(wal.segments[0])
    held.wait()
    disk.calls.clear()
    return wal


def test_a_log_that_waits_for_its_next_file_has_nothing_of_it_read_back(tmp_path: Path) -> None:
    """The loop waited until a slow disk had read a segment."""
    disk, held = DroppedDisk(OsDisk()), HeldBackground()
    wal = recycled(tmp_path, disk, held)
    wal.write(RING, 5 * SIZE, 6 * SIZE)  # Its file was made before. The next one is being made.
    disk.calls.clear()
    wal.write(RING, 6 * SIZE, 7 * SIZE)
    assert "will_read" not in disk.calls
    assert disk.calls["clear"] == 1
    wal.invariants()
    held.wait()
    assert disk.calls["will_read"] == 1  # Of the one behind, for which nobody waits.
    wal.files.close()


def test_a_file_is_read_back_by_steps_of_which_few_are_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_files, "READ_BACK_BYTES", SIZE // 4)
    disk, held = DroppedDisk(OsDisk()), HeldBackground()
    wal = recycled(tmp_path, disk, held)
    wal.write(RING, 5 * SIZE, 6 * SIZE)
    held.wait()
    assert (disk.calls["will_read"], disk.calls["read"]) == (4, 4)
    assert "clear" not in disk.calls
    wal.files.close()


def test_a_file_that_cannot_be_read_back_is_cleared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write to a part of a page that cannot be read fails."""
    monkeypatch.setattr(segment_files, "READ_BACK_BYTES", SIZE // 4)
    disk, held = DroppedDisk(OsDisk()), HeldBackground()
    wal = recycled(tmp_path, disk, held)
    disk.fail("read")
    wal.write(RING, 5 * SIZE, 6 * SIZE)
    held.wait()
    assert disk.calls["clear"] == 1
    wal.write(RING, 6 * SIZE, 7 * SIZE)
    wal.files.close()


class UnsyncedDirectory(OsDisk):
    """Its directory's next syncs fail, after what they were to make durable was done."""

    fails = 0

    def sync_directory(self, path: Path) -> None:
        if self.fails:
            self.fails -= 1
            raise OSError(errno.EIO, "no sync")
        super().sync_directory(path)


@pytest.mark.parametrize("fails", [1, 2, 3])
def test_a_spare_that_has_lost_its_name_is_not_tried_again(tmp_path: Path, fails: int) -> None:
    """One error of the disk had the log stay read-only until a restart."""
    disk = UnsyncedDirectory()
    wal = new_wal(tmp_path, FailingDisk(disk))
    wal.write(RING, 0, SIZE)
    disk.fails = fails
    for start in range(SIZE, 6 * SIZE, SIZE):
        for _ in range(fails + 1):  # A log that has failed tries again.
            with suppress(NoSegment):
                wal.write(RING, start, start + SIZE)
                break
    assert [segment.start for segment in wal.segments] == [i * SIZE for i in range(6)]
    wal.files.close()
