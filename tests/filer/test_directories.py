"""A new directory's name is synced in the one that it lies in, for each that is new."""

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from smq.filer import directories
from smq.filer.directories import is_at, is_removed_if_hollow, make_directory, open_made
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
    for _ in range(2):
        make_directory(tmp_path / "a" / "b")
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
        assert is_at(tmp_path / "a" / "b", fd)
        os.close(fd)
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


def test_a_removed_directory_is_not_at_its_path(tmp_path: Path) -> None:
    fd = open_made(tmp_path, tmp_path / "a", 0o700)
    (tmp_path / "a").rmdir()
    assert not is_at(tmp_path / "a", fd)
    (tmp_path / "a").mkdir()
    assert not is_at(tmp_path / "a", fd)
    os.close(fd)


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
                assert os.fstat(fd).st_ino in durable
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


def test_a_removal_that_takes_long_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directories, "HOLLOW_STEPS_MAX", 2)
    (tmp_path / "a/b/c").mkdir(parents=True)
    assert not is_removed_if_hollow(tmp_path / "a")
