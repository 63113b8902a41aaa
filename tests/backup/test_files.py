"""Links and copies of files, durable."""

import errno
import mmap
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from smq.backup import files
from smq.log.files.disk import OsDisk


def test_a_link_is_the_same_file_and_another_file_system_has_none(tmp_path: Path) -> None:
    source = tmp_path / "a"
    source.write_bytes(b"content")
    assert files.link(source, tmp_path / "deep" / "b")
    assert (tmp_path / "deep" / "b").samefile(source)
    with TemporaryDirectory(dir="/dev/shm") as other:
        assert not files.link(source, Path(other, "b"))
        files.copy(source, Path(other, "b"))
        assert Path(other, "b").read_bytes() == b"content"


@pytest.mark.parametrize("shares", [True, False])
def test_a_copy_has_the_first_bytes_and_zeros_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, shares: bool
) -> None:
    if not shares:

        def refuse(*_: object) -> int:
            raise OSError(errno.EXDEV, "two file systems")

        monkeypatch.setattr(os, "copy_file_range", refuse)
    monkeypatch.setattr(files, "PIECE_BYTES", 1000)
    source = tmp_path / "a"
    source.write_bytes(os.urandom(10_000))
    files.copy(source, tmp_path / "b", 4321)
    assert (tmp_path / "b").read_bytes() == source.read_bytes()[:4321] + bytes(10_000 - 4321)
    with pytest.raises(FileExistsError):
        files.copy(source, tmp_path / "b")


def test_write_refuses_to_replace_a_file(tmp_path: Path) -> None:
    files.write(tmp_path / "deep" / "a", b"x")
    with pytest.raises(FileExistsError):
        files.write(tmp_path / "deep" / "a", b"y")
    files.sync_directories(tmp_path)


PAGE = 4096
SIZE = 64 * PAGE


def dropped(path: Path) -> Path:
    """A file of which the page cache has nothing."""
    path.write_bytes(os.urandom(SIZE))
    with path.open("rb") as file:
        os.fsync(file.fileno())
        OsDisk().drop(file.fileno(), SIZE)
    return path


def pages_of(path: Path) -> bool:
    with path.open("rb") as file:
        return files.is_cached(file.fileno(), SIZE)


@pytest.mark.parametrize("shares", [True, False])
def test_a_copy_leaves_nothing_in_the_page_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, shares: bool
) -> None:
    if not shares:
        monkeypatch.setattr(os, "copy_file_range", lambda *_: 0)
    source = dropped(tmp_path / "a")
    files.copy(source, tmp_path / "b")
    files.write(tmp_path / "c", bytes(SIZE))
    assert [pages_of(tmp_path / name) for name in "abc"] == [False] * 3
    assert (tmp_path / "b").read_bytes() == source.read_bytes()


def test_a_copy_leaves_what_the_page_cache_had_before(tmp_path: Path) -> None:
    """A single page may be all that is left of bytes whose write-back has failed."""
    source = dropped(tmp_path / "a")
    with source.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, SIZE, os.POSIX_FADV_RANDOM)
        os.pread(file.fileno(), 1, SIZE // 2)
    files.copy(source, tmp_path / "b")
    assert [pages_of(tmp_path / name) for name in "ab"] == [True, False]


@pytest.mark.parametrize("error", [OSError(errno.ENODEV, "no map"), ValueError("too long")])
def test_a_file_that_cannot_be_mapped_is_copied_and_counts_as_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refuse(*_: object) -> None:
        raise error

    source = dropped(tmp_path / "a")
    with monkeypatch.context() as patch:
        patch.setattr(mmap, "mmap", refuse)
        files.copy(source, tmp_path / "b")
        assert pages_of(source)
    assert (tmp_path / "b").read_bytes() == source.read_bytes()


def test_a_copy_of_what_is_being_written_leaves_its_pages_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "copy_file_range", lambda *_: 0)
    source = dropped(tmp_path / "a")
    files.copy(source, tmp_path / "b", SIZE - 1)
    assert pages_of(source)


def test_a_file_without_bytes_is_copied(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    files.copy(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == b""
