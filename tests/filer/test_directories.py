"""A new directory's name is synced in the one that it lies in, for each that is new."""

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from smq.filer import directories
from smq.filer.directories import is_removed_if_hollow, make_directory, open_made, remove_empty
from smq.filer.local import LocalStore
from smq.filer.mark import mark


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The paths that are synced."""
    paths: list[Path] = []
    fsync = os.fsync

    def note(fd: int) -> None:
        fsync(fd)
        paths.append(Path(f"/proc/self/fd/{fd}").readlink())

    monkeypatch.setattr(os, "fsync", note)
    return paths


def test_each_new_name_is_synced_and_none_that_was_there(
    tmp_path: Path, synced: list[Path]
) -> None:
    (tmp_path / "beside").touch()
    for _ in range(2):
        make_directory(tmp_path / "a" / "b")
        (tmp_path / "a" / "b" / "x").touch()
        assert synced == [tmp_path, tmp_path / "a"]


@pytest.mark.parametrize("marks", [True, False])
def test_the_root_of_a_filer_is_as_durable_as_its_files(
    tmp_path: Path, synced: list[Path], *, marks: bool
) -> None:
    """Data fault 25, 'look': a directory's entry."""
    root = tmp_path / "data" / "filer"
    if marks:
        mark(root, "cluster")
    LocalStore(root).put("topics/a", b"a")
    assert {tmp_path, tmp_path / "data", root, root / "topics"} <= set(synced)


def test_a_directory_that_is_opened_is_made_as_durably(tmp_path: Path, synced: list[Path]) -> None:
    for _ in range(2):
        fd = open_made(tmp_path, tmp_path / "a" / "b", 0o700)
        assert os.path.samestat((tmp_path / "a" / "b").stat(), os.fstat(fd))
        os.close(fd)
        (tmp_path / "a" / "b" / "x").touch()
        assert synced == [tmp_path, tmp_path / "a"]
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    os.close(open_made(tmp_path, tmp_path, 0o700))


def test_a_file_in_the_way_of_a_directory_says_so(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "nowhere").symlink_to(tmp_path / "none")
    for name in ("a", "a/b", "nowhere"):
        with pytest.raises((NotADirectoryError, FileExistsError)):
            open_made(tmp_path, tmp_path / name, 0o700)


def test_a_directory_that_is_removed_meanwhile_is_not_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync = os.fsync

    def remove(fd: int) -> None:
        fsync(fd)
        (tmp_path / "a").rmdir()

    monkeypatch.setattr(os, "fsync", remove)
    with pytest.raises(FileNotFoundError):
        open_made(tmp_path, tmp_path / "a" / "b", 0o700)


def test_a_directory_that_a_killed_maker_may_have_left_is_synced(
    tmp_path: Path, synced: list[Path]
) -> None:
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    (tmp_path / "a" / "x").touch()
    os.close(open_made(tmp_path, tmp_path / "a" / "b" / "c", 0o700))
    assert synced == [tmp_path / "a" / "b"]  # The others have something in them.
    make_directory(tmp_path / "a" / "b" / "c" / "d")
    assert synced[1:] == [tmp_path / "a" / "b", tmp_path / "a" / "b" / "c"]


def test_a_large_directory_is_not_read_where_an_entry_is_known(
    tmp_path: Path, synced: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To read one of a thousand files took longer than a sync."""
    scandir, read = os.scandir, list[Path]()

    def note(fd: int) -> Any:
        read.append(Path(f"/proc/self/fd/{fd}").readlink())
        return scandir(fd)

    made = tmp_path / "a" / "b"
    made.mkdir(parents=True)
    (made / "x").touch()
    monkeypatch.setattr(os, "scandir", note)
    os.close(open_made(tmp_path, made, 0o700, "x"))
    assert made not in read
    os.close(open_made(tmp_path, made, 0o700, "gone"))
    assert made in read
    assert synced == []
    (made / "x").unlink()
    os.close(open_made(tmp_path, made, 0o700, "x"))
    assert synced == [tmp_path / "a"]


def test_a_directory_that_another_writer_makes_is_opened(
    tmp_path: Path, synced: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    mkdir = os.mkdir

    def make_before(name: str, mode: int, *, dir_fd: int) -> None:
        mkdir(name, mode, dir_fd=dir_fd)
        mkdir(name, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "mkdir", make_before)
    os.close(open_made(tmp_path, tmp_path / "a", 0o700))
    assert synced == [tmp_path]


def test_descriptors_are_closed_when_a_sync_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, closed = list[int](), list[int]()
    open_file, close = os.open, os.close

    def note_open(*arguments: Any, **named: Any) -> int:
        opened.append(open_file(*arguments, **named))
        return opened[-1]

    def note_close(fd: int) -> None:
        closed.append(fd)
        close(fd)

    def fail(_fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "open", note_open)
    monkeypatch.setattr(os, "close", note_close)
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output"):
        os.close(open_made(tmp_path, tmp_path / "a", 0o700))
    assert sorted(opened) == sorted(closed)


def test_a_directory_that_is_found_has_its_name_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several make it at once, and others remove it."""
    fsync, durable = os.fsync, set[int]()

    def sync(fd: int) -> None:
        fsync(fd)
        durable.update(each.inode() for each in os.scandir(fd))

    def make(_number: int) -> None:
        for _ in range(100):
            with suppress(FileNotFoundError):
                fd = open_made(tmp_path, tmp_path / "a" / "b", 0o700)
                found = os.fstat(fd)
                assert found.st_ino in durable or not found.st_nlink  # 0: it is removed.
                os.close(fd)
            with suppress(OSError):
                (tmp_path / "a" / "b").rmdir()
                (tmp_path / "a").rmdir()

    monkeypatch.setattr(os, "fsync", sync)
    with ThreadPoolExecutor(4) as threads:
        assert len([*threads.map(make, range(4))]) == 4


def test_a_directory_is_removed_unless_a_file_is_in_it(tmp_path: Path) -> None:
    hollow, full = tmp_path / "hollow", tmp_path / "full"
    for each in (hollow, full):
        for name in ("a/b/c", "a/d", "e"):
            (each / name).mkdir(parents=True)
    (full / "a/b/c/x").write_bytes(b"")
    assert is_removed_if_hollow(hollow)
    assert not is_removed_if_hollow(full)
    assert (full / "a/b/c/x").exists()
    (tmp_path / "elsewhere/a").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    assert not is_removed_if_hollow(tmp_path / "link")
    assert (tmp_path / "elsewhere/a").is_dir()
    assert not hollow.exists()


def test_a_directory_that_others_make_meanwhile_is_removed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rmdir, made = Path.rmdir, list[Path]()

    def make(path: Path) -> None:
        if not made:
            (path / "new").mkdir()
            made.append(path)
        rmdir(path)

    monkeypatch.setattr(Path, "rmdir", make)
    (tmp_path / "a/b").mkdir(parents=True)
    assert is_removed_if_hollow(tmp_path / "a")
    assert made == [tmp_path / "a/b"]


def test_a_directory_that_others_remove_or_fill_meanwhile_is_no_error(tmp_path: Path) -> None:
    """Two who want its name, and those who use it."""
    hollow, file = tmp_path / "hollow", tmp_path / "hollow/a/b/x"
    done = Event()

    def use() -> None:
        while not done.is_set():
            with suppress(OSError):
                file.parent.mkdir(parents=True)
            with suppress(OSError):
                file.touch()
            with suppress(OSError):
                file.unlink()

    def remove(_number: int) -> None:
        for _ in range(500):
            is_removed_if_hollow(hollow)

    with ThreadPoolExecutor() as threads:
        using = threads.submit(use)
        assert len([*threads.map(remove, range(2))]) == 2
        done.set()
        using.result()
    file.unlink(missing_ok=True)
    assert is_removed_if_hollow(hollow)
    assert not hollow.exists()


def test_empty_directories_are_removed_up_to_the_first_that_stays(
    tmp_path: Path, synced: list[Path]
) -> None:
    (tmp_path / "a/b/c").mkdir(parents=True)
    (tmp_path / "a/x").touch()
    remove_empty(tmp_path / "a/b/c/d", tmp_path)  # Others have removed that one.
    assert [*(tmp_path / "a").iterdir()] == [tmp_path / "a/x"]
    (tmp_path / "a/x").unlink()
    remove_empty(tmp_path / "a", tmp_path)
    assert synced == [tmp_path / "a", tmp_path]
    assert not [*tmp_path.iterdir()]


def test_a_removal_that_takes_long_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directories, "HOLLOW_STEPS_MAX", 2)
    (tmp_path / "a/b/c").mkdir(parents=True)
    assert not is_removed_if_hollow(tmp_path / "a")
