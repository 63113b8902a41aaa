"""A local filer's directory says whose it is, and who may read it."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from smq.filer.local import LocalStore
from smq.filer.mark import is_marked, mark


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    """A program's, which lets others read."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def modes_below(root: Path) -> set[int]:
    return {stat.S_IMODE(each.stat().st_mode) for each in root.rglob("*") if each.is_dir()}


@pytest.mark.parametrize(("brokers_umask", "mode"), [(0o077, 0o700), (0o027, 0o750)])
def test_uploads_open_a_filer_no_further_than_its_broker(
    tmp_path: Path, brokers_umask: int, mode: int
) -> None:
    mark(tmp_path, "a cluster")  # As before `filer.mode` was changed.
    os.umask(brokers_umask)
    mark(tmp_path, "a cluster")
    os.umask(0o022)
    with LocalStore(tmp_path).writing("payloads/kafka/clicks/1") as sink:
        sink.write(b"pin=4711")
    assert modes_below(tmp_path) == {mode}
    assert stat.S_IMODE((tmp_path / "payloads/kafka/clicks/1").stat().st_mode) == mode & 0o666


def test_a_filer_without_a_mark_is_as_open_as_its_program_wants(tmp_path: Path) -> None:
    with LocalStore(tmp_path).writing("a/b") as sink:
        sink.write(b"1")
    assert modes_below(tmp_path) == {0o755}


def test_a_directory_is_marked_once_for_one_cluster(tmp_path: Path) -> None:
    root = tmp_path / "new" / "filer"
    assert not is_marked(root, "a cluster")
    mark(root, "a cluster")
    mark(root, "a cluster")
    assert is_marked(root, "a cluster")
    assert not is_marked(root, "another")


def test_a_directory_that_was_another_clusters_is_taken_over(tmp_path: Path) -> None:
    mark(tmp_path, "a cluster")
    mark(tmp_path, "another")
    assert is_marked(tmp_path, "another")


def test_the_mark_is_no_object(tmp_path: Path) -> None:
    mark(tmp_path, "a cluster")
    assert list(LocalStore(tmp_path).list()) == []


def test_where_nothing_can_be_written_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"Not a directory|File exists"):
        mark(tmp_path / "file" / "filer", "a cluster")
