"""A new directory's name is synced in the one that it lies in, for each that is new."""

import os
from pathlib import Path

import pytest

from smq.filer.directories import make_directory
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
