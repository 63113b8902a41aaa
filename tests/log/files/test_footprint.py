"""The page cache keeps a log's newest segments; older ones are written back, then dropped."""

import errno
import os
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from smq.log.files.disk import PAGE_BYTES, OsDisk, read_now
from smq.log.files.footprint import drops_pages
from smq.log.files.segment import WalSegment
from smq.log.files.segment_files import WalLimits
from smq.log.files.wal import Wal
from smq.testing.disk import FailingDisk
from tests.log.files.wals import HeldWriteBacks, all_are_cached, new_wal

SIZE = 1 << 16
RING = memoryview(np.random.default_rng(1).bytes(2 * SIZE))


@pytest.fixture
def disk() -> FailingDisk:
    return FailingDisk(OsDisk())


def wal_of(directory: Path, disk: FailingDisk, segments: int = 3) -> Wal:
    return new_wal(directory, disk, WalLimits(SIZE, cached_bytes_max=segments * SIZE))


def cached(wal: Wal) -> list[bool]:
    """Of each segment, whether the page cache is to keep it; it does not have the others."""
    kept = [segment.is_cached for segment in wal.segments]
    for segment, is_kept in zip(wal.segments, kept, strict=True):
        assert is_kept or read_now(segment.fd, SIZE, 0) is None
    return kept


def fill(wal: Wal, first: int, last: int) -> None:
    """Fill these segments, and begin the next one."""
    for i in range(first, last):
        wal.write(RING, i * SIZE, (i + 1) * SIZE)
        wal.invariants()


def test_the_newest_segments_stay_in_the_page_cache_and_older_ones_leave_it(
    tmp_path: Path, disk: FailingDisk
) -> None:
    wal = wal_of(tmp_path, disk)
    fill(wal, 0, 6)
    assert cached(wal) == [False] * 3 + [True] * 3
    assert [segment.cache_fd >= 0 for segment in wal.segments] == [False] * 3 + [True] * 3


def test_a_segment_that_the_disk_cannot_read_in_part_stays_in_the_page_cache(
    tmp_path: Path, disk: FailingDisk
) -> None:
    wal = wal_of(tmp_path, disk)
    fill(wal, 0, 3)
    failing, rescued, _ = wal.segments
    failing.bad_pages.note(0, 0, [3])
    rescued.has_last_copy = True
    fill(wal, 3, 6)
    assert cached(wal) == [True, True, False, False, False, True]
    failing.bad_pages.note(0, 4 * PAGE_BYTES, [])
    fill(wal, 6, 7)
    assert [segment.is_cached for segment in wal.segments[:2]] == [False, True]


def test_a_full_segment_is_written_back_before_it_must_be_dropped(
    tmp_path: Path, disk: FailingDisk
) -> None:
    wal = wal_of(tmp_path, disk, segments=100)
    fill(wal, 0, 1)
    wal.write(RING, SIZE, SIZE + 100)
    assert disk.calls["begin_write_back"] == 1
    fill(wal, 1, 4)
    wal.write(RING, 4 * SIZE, 4 * SIZE + 100)
    assert disk.calls["begin_write_back"] == 4
    assert "write_back" not in disk.calls


def hears(segment: WalSegment) -> bool:
    """Whether a segment's descriptor for write-backs is of its present file."""
    return os.fstat(segment.cache_fd).st_ino == segment.path.stat().st_ino


def test_a_start_has_a_descriptor_of_each_segment_that_hears_of_its_write_backs(
    tmp_path: Path, disk: FailingDisk
) -> None:
    """A snapshot that synced a segment of a former life heard of an error in our place, and the
    segment was dropped: records were gone that the page cache still had."""
    wal = wal_of(tmp_path, disk)
    fill(wal, 0, 2)
    wal.files.close()
    again = wal_of(tmp_path, disk)
    again.files.adopt()
    assert len(again.segments) >= 2
    assert all(map(hears, again.segments))
    again.files.close()


def test_a_file_that_takes_a_segments_place_has_a_descriptor_that_hears(
    tmp_path: Path, disk: FailingDisk
) -> None:
    wal = wal_of(tmp_path, disk)
    fill(wal, 0, 2)
    for segment in wal.segments:
        wal.swap(segment, wal.write_again(segment, RING, segment.end, segment.end))
    assert all(map(hears, wal.segments))
    wal.files.close()


def test_a_dropped_segment_is_read_past_the_page_cache(tmp_path: Path, disk: FailingDisk) -> None:
    wal = wal_of(tmp_path, disk)
    fill(wal, 0, 6)
    position, length = SIZE + 100, 5000
    got: list[np.ndarray] = []
    assert wal.read_cached(position, length) is None
    wal.load(position, length, got.append)
    wanted = bytes(RING[position % len(RING) :][:length])
    assert bytes(got[0]) == wanted
    out = np.zeros(length, np.uint8)
    again = wal.read_cached(position, length, out)
    assert again is not None
    assert bytes(again) == wanted
    assert cached(wal)[:2] == [False, False]
    wal.invariants()


def test_nothing_is_dropped_after_a_failed_write_back_until_the_log_is_healthy(
    tmp_path: Path, disk: FailingDisk
) -> None:
    wal, met = wal_of(tmp_path, disk), list[int | None]()
    wal.files.footprint.failed = lambda error: met.append(error.errno)
    wal.files.footprint.may_drop = lambda: not met
    fill(wal, 0, 3)
    disk.fail("write_back", times=1)
    fill(wal, 3, 6)
    assert met == [errno.EIO]
    assert cached(wal) == [True] * 6
    assert "drop" not in disk.calls
    met.clear()
    wal.files.footprint.trim()
    assert cached(wal) == [False] * 3 + [True] * 3


def test_a_drop_makes_up_for_a_write_back_that_could_not_begin(
    tmp_path: Path, disk: FailingDisk
) -> None:
    wal, met = wal_of(tmp_path, disk), list[OSError]()
    wal.files.footprint.failed = met.append
    disk.fail("begin_write_back")
    fill(wal, 0, 6)
    assert not met
    assert cached(wal) == [False] * 3 + [True] * 3


def test_a_start_drops_what_earlier_lives_have_left(tmp_path: Path, disk: FailingDisk) -> None:
    before = new_wal(tmp_path, disk, WalLimits(SIZE))
    fill(before, 0, 6)
    before.close()
    wal = wal_of(tmp_path, disk)
    assert cached(wal)[:6] == [True] * 6  # Behind them is the file that was made ready.
    wal.files.adopt()
    assert cached(wal)[:6] == [False] * 4 + [True] * 2
    wal.close()


def test_a_file_that_is_used_again_is_written_without_reading_it_first(
    tmp_path: Path, disk: FailingDisk
) -> None:
    wal = wal_of(tmp_path, disk)
    fill(wal, 0, 6)
    while len(wal.segments) > 4:
        wal.files.free(wal.segments[0])
    assert disk.calls.get("clear", 0) == 0
    fill(wal, 6, 10)
    assert disk.calls["clear"] > 0
    wal.write(RING, 10 * SIZE, 10 * SIZE + 100)
    assert bytes(wal.read(10 * SIZE, 200)) == bytes(RING[:100]) + bytes(100)


@pytest.mark.parametrize("error", [errno.EOPNOTSUPP, errno.ENOSPC])
def test_a_file_that_cannot_be_cleared_is_used_again_unless_it_may_have_lost_blocks(
    tmp_path: Path, disk: FailingDisk, error: int
) -> None:
    """XFS frees the blocks first. A log that wrote there had a failed write, and a repair."""
    wal = wal_of(tmp_path, disk)
    fill(wal, 0, 6)
    while len(wal.segments) > 4:
        wal.files.free(wal.segments[0])
    disk.fail("clear", error=error)
    with ExitStack() as opened:  # So that no other file gets an inode of theirs. Two were dropped.
        freed = [opened.enter_context(path.open()) for path in wal.files._spares]
        fill(wal, 6, 10)
        inodes = {os.fstat(file.fileno()).st_ino for file in freed[-2:]}
        is_used = [segment.path.stat().st_ino in inodes for segment in wal.segments]
    assert disk.calls["clear"] > 0
    assert any(is_used) == (error == errno.EOPNOTSUPP)
    assert bytes(wal.read(9 * SIZE, SIZE)) == bytes(RING[SIZE:])
    wal.invariants()
    wal.close()


@pytest.mark.parametrize("waits", [False, True], ids=["no syncs", "syncs"])
def test_a_file_of_which_only_the_end_is_cached_is_made_writable_too(
    tmp_path: Path, disk: FailingDisk, waits: bool
) -> None:
    wal = wal_of(tmp_path, disk)
    wal.files.writes_ahead = waits
    path, data = tmp_path / "1.spare", RING[:SIZE]
    path.write_bytes(data)
    fd = disk.open(path)
    os.fsync(fd)
    disk.drop(fd, SIZE)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    disk.read(fd, 1, SIZE - 1)
    pages = disk.cached_pages(fd, SIZE)
    if pages is None or pages[0] or not pages[-1]:
        pytest.skip("this file system keeps all pages, or does not say which it has")
    disk.close(fd)
    spare = wal.files._open_spare(path)
    assert spare is not None
    if waits:
        assert all_are_cached(disk, spare, SIZE)
        assert disk.read(spare, SIZE, 0).tobytes() == bytes(data)
    else:
        assert not disk.read(spare, SIZE, 0).any()
    disk.close(spare)
    wal.files.close()


def test_a_file_whose_syncs_are_waited_for_is_brought_back_rather_than_cleared(
    tmp_path: Path, disk: FailingDisk
) -> None:
    wal = wal_of(tmp_path, disk)
    wal.files.writes_ahead = True
    fill(wal, 0, 6)
    while len(wal.segments) > 4:
        wal.files.free(wal.segments[0])
    fill(wal, 6, 10)
    assert disk.calls["will_read"] > 0
    assert "clear" not in disk.calls


def test_a_file_that_is_replaced_counts_as_the_newest(tmp_path: Path, disk: FailingDisk) -> None:
    wal = wal_of(tmp_path, disk)
    fill(wal, 0, 6)
    first = wal.segments[0]
    wal.swap(first, wal.write_again(first, RING, first.end, first.end))
    assert first.is_cached
    assert bytes(wal.read(0, SIZE)) == bytes(RING[:SIZE])
    fill(wal, 6, 9)
    assert [segment.is_cached for segment in wal.segments[:2]] == [False, False]
    wal.invariants()
    wal.close()


def test_an_unbounded_log_leaves_its_pages_to_the_system(tmp_path: Path, disk: FailingDisk) -> None:
    wal = new_wal(tmp_path, disk, WalLimits(SIZE))
    fill(wal, 0, 6)
    wal.files.adopt()
    assert cached(wal) == [True] * 6
    assert not {"begin_write_back", "write_back", "drop"} & disk.calls.keys()


def test_a_segment_that_is_freed_takes_its_waiting_write_backs_with_it(
    tmp_path: Path, disk: FailingDisk
) -> None:
    """Each pinned its segment, so a slow disk had a log's files take six times their limit."""
    held = HeldWriteBacks()
    limits = WalLimits(SIZE, cached_bytes_max=3 * SIZE)
    wal = new_wal(tmp_path, disk, limits, background=held)
    fill(wal, 0, 8)
    assert [segment.pins for segment in wal.segments] == [1] + [0] * 7
    first, *freed, last = wal.segments[:5]
    descriptors = [segment.cache_fd for segment in freed]
    for segment in freed:
        wal.files.free(segment)
        wal.invariants()
    assert [segment.cache_fd for segment in freed] == [-1] * 3
    held.wait()
    assert disk.calls["begin_write_back"] == 4
    assert cached(wal) == [False] * 2 + [True] * 3
    assert not any(segment.pins for segment in (first, *freed, last))
    assert min(descriptors) >= 0
    wal.files.close()


def test_a_segment_that_is_freed_before_it_is_dropped_has_the_next_one_dropped(
    tmp_path: Path, disk: FailingDisk
) -> None:
    held = HeldWriteBacks()
    limits = WalLimits(SIZE, cached_bytes_max=3 * SIZE)
    wal = new_wal(tmp_path, disk, limits, background=held)
    fill(wal, 0, 4)
    for _ in range(2):
        held.jobs.popleft()()
    wal.files.free(wal.segments[0])  # Its drop waits for the other write-backs to begin.
    fill(wal, 4, 5)
    held.wait()
    assert cached(wal) == [False] + [True] * 3
    wal.files.close()


class CrowdedDisk(FailingDisk):
    """Its process may open `left` files more."""

    left = 1000

    def open(self, path: Path) -> int:
        """See Disk."""
        if self.left == 0:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        self.left -= 1
        return super().open(path)


def test_a_segment_that_cannot_be_opened_to_be_dropped_stays_until_it_can(tmp_path: Path) -> None:
    disk, met = CrowdedDisk(OsDisk()), list[OSError]()
    before = new_wal(tmp_path, disk, WalLimits(SIZE))
    fill(before, 0, 6)
    before.close()
    wal = wal_of(tmp_path, disk)
    wal.files.footprint.failed = met.append
    disk.left = 0
    wal.files.adopt()
    assert not met
    assert cached(wal)[:6] == [True] * 6
    disk.left = 1000
    wal.files.footprint.trim()
    assert cached(wal)[:6] == [False] * 4 + [True] * 2
    wal.close()


def test_a_file_is_no_segment_before_its_write_backs_can_be_heard_of(tmp_path: Path) -> None:
    disk = CrowdedDisk(OsDisk())
    wal = wal_of(tmp_path, disk)
    fill(wal, 0, 6)
    wal.files.free(wal.segments[0])
    disk.left = 1
    fill(wal, 6, 7)
    assert disk.left == 0
    disk.left = 1000
    fill(wal, 7, 10)
    wal.close()


class KeepingDisk(OsDisk):
    """Its file system says nothing and keeps its pages."""

    def drop(self, fd: int, length: int) -> None:
        """See Disk."""


def test_a_file_system_that_keeps_its_pages_is_recognised(tmp_path: Path) -> None:
    assert drops_pages(OsDisk(), tmp_path)
    assert not drops_pages(KeepingDisk(), tmp_path)


def test_a_file_system_that_cannot_be_read_past_the_page_cache_is_recognised(
    tmp_path: Path, disk: FailingDisk
) -> None:
    disk.fail("read_past_cache", error=errno.EINVAL)
    with pytest.raises(OSError, match="Invalid argument"):
        drops_pages(disk, tmp_path)
    assert not os.listdir(tmp_path)  # noqa: PTH208
