"""All names of a filer wait for one lock. What takes a disk long is done without it, and what
others do meanwhile is noticed."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from smq.filer import local
from smq.filer.directories import open_made
from smq.filer.local import LocalStore
from smq.filer.store import CREATE, OVERWRITE, IfMatch, Mode
from smq.model.errors import AlreadyExists, PreconditionFailed, Unavailable


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "filer")


def _check_names_are_free(store: LocalStore) -> None:
    root = os.open(store.root, os.O_RDONLY)
    try:
        fcntl.flock(root, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(root)


def test_names_are_free_while_a_deletion_is_synced(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that waits for idle cores may wake up from the sync after a second."""
    fsync, synced = os.fsync, list[Path]()

    def sync(fd: int) -> None:
        _check_names_are_free(store)
        synced.append(Path(f"/proc/self/fd/{fd}").readlink())
        if len(synced) == 1:
            store.delete("a/b/2")  # It takes along the directory that is to be synced.
        fsync(fd)

    for number in (1, 2):
        store.put(f"a/b/{number}", b"x")
    monkeypatch.setattr(os, "fsync", sync)
    store.delete("a/b/1")
    assert synced == [store.root / "a/b", store.root]


def test_names_are_free_while_the_directories_of_a_new_one_are_made(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One user's names of hundreds of parts kept all topics from being sealed."""
    fsync, mkdir, synced, made = os.fsync, os.mkdir, list[Path](), list[str]()

    def sync(fd: int) -> None:
        _check_names_are_free(store)
        synced.append(Path(f"/proc/self/fd/{fd}").readlink())
        fsync(fd)

    def make(name: str, mode: int, *, dir_fd: int | None = None) -> None:
        _check_names_are_free(store)
        made.append(name)
        mkdir(name, mode, dir_fd=dir_fd)

    store.put("x", b"x")
    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "mkdir", make)
    store.put("a/b/c/d", b"x")
    assert made == ["a", "b", "c"]
    assert synced[1:] == [store.root / each for each in ("", "a", "a/b", "a/b/c")]


def test_names_are_free_while_the_directories_of_the_last_object_are_removed(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deletion held all names for as long as a slow disk takes for 31 directories."""
    rmdir, removed = Path.rmdir, list[Path]()

    def remove(path: Path) -> None:
        _check_names_are_free(store)
        rmdir(path)
        removed.append(path)

    monkeypatch.setattr(Path, "rmdir", remove)
    above = [store.root / each for each in ("a/b/c", "a/b", "a")]
    store.put("a/b/c/d", b"x")
    store.delete("a/b/c/d")
    assert removed == above
    with pytest.raises(PreconditionFailed):
        store.put("a/b/c/d", b"y", IfMatch("version"))
    assert removed == above * 2
    above[0].mkdir(parents=True)
    store.put("a", b"x")
    assert removed == above * 3


@pytest.mark.parametrize("replaces", [True, False])
def test_names_are_free_while_the_room_of_a_file_is(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, *, replaces: bool
) -> None:
    """A disk may take a tenth of a second for a file of a few GB."""
    lock, open_then = LocalStore._names_locked, list[str]()

    @contextmanager
    def locked(store: LocalStore) -> Iterator[None]:
        with lock(store):
            yield
        for each in Path("/proc/self/fd").iterdir():
            with suppress(OSError):
                open_then.append(str(each.readlink()))

    store.put("a/b", b"x")
    monkeypatch.setattr(LocalStore, "_names_locked", locked)
    if replaces:
        store.put("a/b", b"y", OVERWRITE)
    else:
        store.delete("a/b")
    assert f"{store.root}/a/b (deleted)" in open_then


def _do_once_opened(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Once, when the store has opened the directory of a new name."""
    acts = [act]

    def opened(root: Path, directory: Path, mode: int, entry: str) -> int:
        fd = open_made(root, directory, mode, entry)
        if acts:
            acts.pop()()
        return fd

    monkeypatch.setattr(local, "open_made", opened)


def test_a_directory_that_a_deletion_takes_along_is_made_again(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("a/b/1", b"x")
    store.put("c/1", b"x")
    _do_once_opened(monkeypatch, partial(store.delete, "a/b/1"))
    store.put("a/b/2", b"y")
    assert [facts.key for facts in store.list()] == ["a/b/2", "c/1"]


@pytest.mark.parametrize("mode", [CREATE, OVERWRITE])
def test_a_part_of_a_name_that_becomes_an_object_meanwhile_is_taken(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, mode: Mode
) -> None:
    """Over HTTP it was 404 to a PUT, which is to say 409."""

    def become_an_object() -> None:
        store.delete("a/b/1")
        store.put("a", b"object")

    store.put("a/b/1", b"x")
    _do_once_opened(monkeypatch, become_an_object)
    with pytest.raises(AlreadyExists, match="part of its name is an object"):
        store.put("a/b/2", b"y", mode)
    assert [facts.key for facts in store.list()] == ["a"]


def test_a_directory_that_others_remove_again_and_again_is_given_up(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def remove(_root: Path, _directory: Path, _mode: int, _entry: str) -> int:
        raise FileNotFoundError

    store.put("a", b"x")
    monkeypatch.setattr(local, "open_made", remove)
    with pytest.raises(Unavailable, match="again and again"):
        store.put("b/c", b"y")
    assert [facts.key for facts in store.list()] == ["a"]
