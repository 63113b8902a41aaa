"""A local filer's directory says whose it is."""

from pathlib import Path

import pytest

from smq.filer.local import LocalStore
from smq.filer.mark import is_marked, mark


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
