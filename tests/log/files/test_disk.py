"""The real disk."""

import errno
import mmap
import os
from pathlib import Path

import pytest

from smq.log.files.disk import PAGE_BYTES, OsDisk, told
from tests.log.files.wals import all_are_cached

DISK = OsDisk()


def test_written_bytes_are_read_back(tmp_path: Path) -> None:
    fd = DISK.create(tmp_path / "file", 100)
    DISK.write(fd, memoryview(b"hello"), 10)
    DISK.sync(fd)
    assert bytes(DISK.read(fd, 5, 10)) == b"hello"
    assert len(DISK.read(fd, 1000, 90)) == 10
    assert DISK.read(fd, 5, 10).flags.writeable
    DISK.close(fd)


def test_a_created_file_has_its_blocks(tmp_path: Path) -> None:
    DISK.close(DISK.create(tmp_path / "file", 1 << 20))
    assert (tmp_path / "file").stat().st_blocks * 512 >= 1 << 20


def test_a_file_that_does_not_fit_is_not_left_behind(tmp_path: Path) -> None:
    with pytest.raises(OSError) as caught:  # noqa: PT011  (which of the two, the file system says)
        DISK.create(tmp_path / "file", 1 << 62)
    assert caught.value.errno in {errno.ENOSPC, errno.EFBIG}
    assert not (tmp_path / "file").exists()


@pytest.mark.parametrize(
    ("number", "remedy"),
    [(errno.ENOSPC, " (free some space)"), (errno.EDQUOT, " (free some space)"), (errno.EIO, "")],
)
def test_an_error_of_the_disk_names_its_remedy(number: int, remedy: str) -> None:
    assert told(OSError(number, "it failed")) == f"[Errno {number}] it failed{remedy}"


def test_filling_writes_zeros_and_keeps_the_size(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 10)
    DISK.fill(path, 2, 3)
    assert path.read_bytes() == b"xx\0\0\0xxxxx"


def test_replacing_leaves_one_whole_file(tmp_path: Path) -> None:
    DISK.replace(tmp_path / "file", b"one")
    DISK.replace(tmp_path / "file", b"two!")
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("file", b"two!")]


def test_removing_what_is_not_there_is_no_error(tmp_path: Path) -> None:
    DISK.remove(tmp_path / "nothing")
    (tmp_path / "file").touch()
    DISK.remove(tmp_path / "file")
    assert not list(tmp_path.iterdir())


def test_directories_are_made_with_their_parents_for_us_alone(tmp_path: Path) -> None:
    DISK.make_directory(tmp_path / "a" / "b")
    DISK.make_directory(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700


def test_an_opened_file_can_be_renamed_under_its_descriptor(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"data")
    fd = DISK.open(tmp_path / "a")
    DISK.rename(tmp_path / "a", tmp_path / "b")
    assert bytes(DISK.read(fd, 4, 0)) == b"data"
    assert not os.get_inheritable(fd)
    DISK.close(fd)


def test_read_cached_returns_none_for_uncached_pages(tmp_path: Path) -> None:
    disk, path = OsDisk(), tmp_path / "file"
    path.write_bytes(bytes(range(256)) * 4096)
    fd = disk.open(path)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    cached = disk.read_cached(fd, 4096, 1 << 19)
    data = disk.read(fd, 4096, 1 << 19)
    assert data.tobytes() == bytes(range(256)) * 16
    again = disk.read_cached(fd, 4096, 1 << 19)
    disk.close(fd)
    if cached is not None or again is None:
        pytest.skip("this file system keeps all pages, or does not say which it has")
    assert again.tobytes() == data.tobytes()


def test_the_disk_says_which_pages_the_page_cache_has(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(5 * mmap.PAGESIZE - 1))
    fd = DISK.open(path)
    os.fsync(fd)
    DISK.drop(fd, 5 * mmap.PAGESIZE)
    dropped = DISK.cached_pages(fd, 5 * mmap.PAGESIZE - 1)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    DISK.read(fd, 1, 2 * mmap.PAGESIZE)
    pages = DISK.cached_pages(fd, 5 * mmap.PAGESIZE - 1)
    assert DISK.cached_pages(fd, 1 << 62) is None
    DISK.close(fd)
    if dropped is None or pages is None or dropped.any():
        pytest.skip("this file system keeps all pages, or does not say which it has")
    shown = pages[:: mmap.PAGESIZE // PAGE_BYTES].tolist()
    assert shown == [False, False, True, False, False]


def test_all_of_a_long_part_is_brought_into_the_page_cache(tmp_path: Path) -> None:
    """The system took one window of it."""
    path, size = tmp_path / "file", 24 << 20
    path.write_bytes(bytes(size))
    fd = DISK.open(path)
    os.fsync(fd)
    DISK.drop(fd, size)
    dropped = DISK.cached_pages(fd, size)
    if dropped is None or dropped.any():
        pytest.skip("this file system keeps all pages, or does not say which it has")
    DISK.will_read(fd, size, 0)
    assert all_are_cached(DISK, fd, size)
    DISK.close(fd)


def test_only_whole_pieces_are_cached(tmp_path: Path) -> None:
    disk, path = OsDisk(), tmp_path / "file"
    path.write_bytes(bytes(100))
    fd = disk.open(path)
    assert disk.read_cached(fd, 101, 0) is None
    assert len(disk.read(fd, 101, 0)) == 100
    disk.close(fd)


def test_a_file_that_is_cut_under_its_mapping_is_an_error_and_no_signal(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(8192))
    fd = OsDisk().open(path)
    with pytest.raises(OSError, match="shorter"):
        OsDisk().map(fd, 16384)
    OsDisk().close(fd)
