"""Files that are read again when they change."""

import os
from pathlib import Path

import pytest

from smq.app.process.watched_files import Sentences, UnusableFile, WatchedFiles
from smq.model.named_files import read_named

SENTENCES = Sentences("read again", "as before", "nobody gets in")


class Watching:
    """Two files of which the first holds a number, and what is said of them."""

    def __init__(self, home: Path) -> None:
        self.files, self.said = [home / "number", home / "other"], list[str]()
        self.is_barred = False  # The other file is none.
        self.read_count = 0

    def read(self) -> int:
        self.read_count += 1
        try:
            return int(self.files[self.is_barred].read_text())
        except (OSError, ValueError) as reason:
            raise UnusableFile("no number") from reason

    def put(self, text: str) -> None:
        """As who replaces a file does it."""
        new = self.files[0].with_name("new")
        new.write_text(text)
        new.rename(self.files[0])

    def watched(self, nothing: int | None = None) -> WatchedFiles[int]:
        return WatchedFiles(lambda: self.files, self.read, SENTENCES, self.said.append, nothing)


@pytest.fixture
def watching(tmp_path: Path) -> Watching:
    return Watching(tmp_path)


def test_a_changed_file_is_used_and_a_bad_one_leaves_what_was_read(watching: Watching) -> None:
    watching.put("1")
    watched = watching.watched()
    values = []
    for text in ("1", "x", "y", "2"):
        watching.put(text)
        for _ in range(2):
            watched.look()
        values.append(watched.value)
    assert values == [1, 1, 1, 2]
    bad = "no number; as before"
    assert watching.said == ["read again", bad, bad, "read again"]
    assert watching.read_count == 5, "once for each change"


def test_a_file_that_could_not_be_read_at_a_change_is_tried_again(watching: Watching) -> None:
    watching.put("1")
    watched = watching.watched()
    watching.put("2")
    watching.is_barred = True
    for _ in range(2):
        watched.look()
    watching.is_barred = False
    watched.look()
    assert watched.value == 2
    assert watching.said == ["no number; as before", "read again"]


def test_a_file_of_another_kind_is_not_tried_again_before_it_changes(tmp_path: Path) -> None:
    path, said, tries = tmp_path / "named", list[str](), list[Path]()

    def read() -> bytes:
        tries.append(path)
        try:
            return read_named(path)
        except OSError as reason:
            raise UnusableFile("no file") from reason

    path.write_text("1")
    watched = WatchedFiles(lambda: [path], read, SENTENCES, said.append)
    path.unlink()
    os.mkfifo(path)
    for _ in range(3):
        watched.look()
    assert (watched.value, len(tries), said) == (b"1", 2, ["no file; as before"])


def test_each_of_the_files_is_looked_at(watching: Watching) -> None:
    watching.put("1")
    watched = watching.watched()
    for change in (lambda: watching.files[1].write_text("x"), watching.files[1].unlink):
        change()
        watched.look()
    watched.look()
    assert watching.said == ["read again"] * 2


def test_a_bad_file_is_refused_at_the_start(watching: Watching) -> None:
    with pytest.raises(UnusableFile, match="no number"):
        watching.watched()
    assert not watching.said


def test_a_bad_file_leaves_nothing_where_nothing_was_read(watching: Watching) -> None:
    watching.put("x")
    watched = watching.watched(nothing=0)
    watching.put("y")
    watched.look()
    assert watched.value == 0
    assert watching.said == ["no number; nobody gets in"] * 2
    watching.put("5")
    watched.look()
    watching.put("z")
    watched.look()
    assert watched.value == 5
    assert watching.said[2:] == ["read again", "no number; as before"]
