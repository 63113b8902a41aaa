"""The version as SQLite would say it, and no file of the database is touched."""

import os
import shutil
import sqlite3
import struct
from contextlib import closing
from pathlib import Path

import pytest

from smq.store.database import Database
from smq.store.migrations import MIGRATIONS
from smq.store.stored_version import stored_version

Files = dict[str, bytes]


def files(directory: Path) -> Files:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def killed(tmp_path: Path, versions: list[int]) -> Path:
    """A copy of a database whose owner set these versions, one a commit, and did not close it."""
    (tmp_path / "a").mkdir()
    path, target = tmp_path / "a" / "s", tmp_path / "b"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE IF NOT EXISTS t (a)")
    for version in versions:
        connection.execute(f"PRAGMA user_version = {version}")
        connection.execute("INSERT INTO t VALUES (?)", ("x" * 9000,))
    shutil.copytree(path.parent, target)
    connection.close()
    return target / path.name


def test_there_is_none(tmp_path: Path) -> None:
    assert stored_version(tmp_path / "store.sqlite") == 0
    assert files(tmp_path) == {}


@pytest.mark.parametrize("content", [b"", b"hello, " * 100, b"SQLite format 3\0"])
def test_a_file_that_is_no_database_has_version_0(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "store.sqlite").write_bytes(content)
    (tmp_path / "store.sqlite-wal").write_bytes(content)
    assert stored_version(tmp_path / "store.sqlite") == 0


def test_of_a_database_that_was_closed_it_is_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    Database.open(path).close()
    before = files(tmp_path)
    assert stored_version(path) == len(MIGRATIONS)
    assert files(tmp_path) == before == {"store.sqlite": before["store.sqlite"]}


def test_of_a_database_that_was_killed_it_is_what_was_committed_last(tmp_path: Path) -> None:
    path = killed(tmp_path, [3, 7])
    before = files(path.parent)
    assert {"s", "s-wal"} <= before.keys()
    assert b"\0\0\0\7" not in before["s"][60:64]
    assert stored_version(path) == 7
    assert files(path.parent) == before


def test_a_commit_that_is_not_whole_does_not_count(tmp_path: Path) -> None:
    path = killed(tmp_path, [3, 7])
    wal = path.with_name("s-wal")
    whole = wal.read_bytes()
    seen = set()
    for end in range(0, len(whole), 64):
        wal.write_bytes(whole[:end])
        seen.add(stored_version(path))
    assert seen == {0, 3, 7}


def test_frames_of_before_the_log_was_begun_anew_do_not_count(tmp_path: Path) -> None:
    path = killed(tmp_path, [9])
    wal = path.with_name("s-wal")
    head = bytearray(wal.read_bytes())
    head[16] ^= 1  # A salt.
    wal.write_bytes(head)
    assert stored_version(path) == 0


def test_a_pipe_has_no_version(tmp_path: Path) -> None:
    """Who made a snapshot held its restore."""
    os.mkfifo(tmp_path / "store.sqlite")
    assert stored_version(tmp_path / "store.sqlite") == 0


@pytest.mark.parametrize("page_bytes", [0, 512])
def test_a_hole_in_the_log_ends_it(tmp_path: Path, page_bytes: int) -> None:
    """A log of a terabyte without a byte held the restore of a snapshot for days."""
    path = tmp_path / "store.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 7")
    with path.with_name("store.sqlite-wal").open("wb") as wal:
        wal.write(struct.pack(">4x4xI4x8s8x", page_bytes, bytes(8)))
        wal.truncate(1 << 40)
    assert stored_version(path) == 7
