"""The page cache may have the last copy of what the disk cannot read of a dropped segment."""

import errno
from pathlib import Path

import numpy as np
import pytest

from smq.log.files import past_cache
from smq.log.files.bad_pages import pages_of
from smq.log.files.disk import Disk, OsDisk, read_now
from smq.testing.disk import FailingDisk
from tests.log.files.test_past_cache import BLOCK, SIZE, backlog, read, wanted


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past_cache, "BLOCK_BYTES", BLOCK)


class WornDisk(FailingDisk):
    """Some pages can be read from the page cache only; a drop takes them out of it."""

    def __init__(self, inner: Disk) -> None:
        super().__init__(inner)
        self.worn = set[tuple[str, int]]()  # Files and pages …
        self.cached = set[tuple[str, int]]()  # … of which the page cache has these.

    def _pages(self, name: str, length: int, at: int) -> set[tuple[str, int]]:
        return {(name, page) for page in pages_of(at, length)}

    def read(self, fd: int, length: int, at: int) -> np.ndarray:
        """See Disk."""
        if (self._pages(self._name_of(fd), length, at) & self.worn) - self.cached:
            raise OSError(errno.EIO, "a worn page")
        return super().read(fd, length, at)

    def read_cached(
        self, fd: int, length: int, at: int, out: np.ndarray | None = None
    ) -> np.ndarray | None:
        """See Disk."""
        worn = self._pages(self._name_of(fd), length, at) & self.worn
        if worn:
            return None if worn - self.cached else super().read(fd, length, at)
        return super().read_cached(fd, length, at, out)

    def read_past_cache(self, path: Path, out: np.ndarray, at: int) -> int:
        """See Disk."""
        if self._pages(path.name, len(out), at) & self.worn:
            raise OSError(errno.EIO, "a worn page")
        return super().read_past_cache(path, out, at)

    def drop(self, fd: int, length: int) -> None:
        """See Disk."""
        super().drop(fd, length)
        self.cached = {each for each in self.cached if each[0] != self._name_of(fd)}


def test_bytes_that_only_the_page_cache_has_are_read_from_there_and_stay_there(
    tmp_path: Path,
) -> None:
    """The log's own tries asked the disk alone, and a reader's care ended with a drop."""
    disk = WornDisk(OsDisk())
    wal = backlog(tmp_path, disk)
    segment = wal.segments[0]
    segment.bad_pages.date(0)
    disk.worn = {(segment.path.name, page) for page in range(1, 8)}
    disk.cached = {(segment.path.name, page) for page in range(4, 8)}
    lost = bytes(3 * 4096)
    expected = wanted(0, 4096) + lost + wanted(4 * 4096, 4 * 4096)
    for _ in range(2):
        assert read(wal, 0, 8 * 4096) == expected
        wal.try_again(4096, 7 * 4096, lambda _: None)
        assert segment.bad_pages.failing().tolist() == [1, 2, 3]
    disk.fail("read_past_cache", error=errno.EMFILE)
    assert read(wal, 9 * 4096, 4096) == wanted(9 * 4096, 4096)
    disk.heal()
    assert read(wal, 0, 8 * 4096) == expected
    disk.cached |= disk.worn
    wal.try_again(4096, 3 * 4096, lambda _: None)
    assert not len(segment.bad_pages.failing())
    for _ in range(2):
        assert read(wal, 0, 8 * 4096) == wanted(0, 8 * 4096)


def test_a_block_that_cannot_be_read_is_read_with_care(tmp_path: Path) -> None:
    disk = FailingDisk(OsDisk())
    wal = backlog(tmp_path, disk)
    disk.fail("read_past_cache", error=errno.EINVAL)
    assert read(wal, 0, 4096) == wanted(0, 4096)
    assert read_now(wal.segments[0].fd, 4096, 0) is None  # Its pages do not stay.
    disk.fail("read")
    assert read(wal, 0, 4096) == bytes(4096)
    disk.heal()
    assert read(wal, 0, 4096) == wanted(0, 4096)


def test_a_block_gives_what_the_disk_cannot_read_any_more(
    tmp_path: Path,
) -> None:
    """A read that ended behind it went to the disk for all of its bytes: its pages failed, also by
    the log's own tries, and were given up."""
    disk = FailingDisk(OsDisk())
    wal = backlog(tmp_path, disk)
    segment = wal.segments[0]
    segment.bad_pages.date(0)
    read(wal, 0, 100)
    for block in range(16):
        wal.past_cache._failed.add((0, block * BLOCK))
    disk.bad_places = [(segment.path.name, 0, SIZE)]
    end = max(at for _, at in wal.past_cache._unread) + BLOCK
    got = read(wal, end - 5000, 5000 + 4096)
    assert got == wanted(end - 5000, 5000) + bytes(4096)
    wal.try_again(end - 8192, 3 * 4096, lambda _: None)
    assert segment.bad_pages.failing().tolist() == [end // 4096]
    assert read(wal, end - 5000, 5000) == wanted(end - 5000, 5000)
    wal.invariants()
