"""A database of any earlier version becomes a new one."""

import sqlite3
from pathlib import Path

import pytest

from smq.store import migrations
from smq.store.database import Database
from smq.store.migrations import MIGRATIONS


def tables(path: Path) -> list[tuple[str, str]]:
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()
    connection.close()
    return rows


@pytest.mark.parametrize("version", range(len(MIGRATIONS)))
def test_a_database_of_every_earlier_version_becomes_a_new_one(
    tmp_path: Path, version: int
) -> None:
    old, new = tmp_path / "old.sqlite", tmp_path / "new.sqlite"
    connection = sqlite3.connect(old)
    for script in MIGRATIONS[:version]:
        connection.executescript(script)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    Database.open(old).close()
    Database.open(new).close()
    assert tables(old) == tables(new)


def test_a_step_that_fails_is_not_taken_by_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.sqlite"
    Database.open(path).close()
    before = tables(path)
    steps = (*migrations.MIGRATIONS, "CREATE TABLE half (a); CREATE TABLE half (a);")
    monkeypatch.setattr("smq.store.database.MIGRATIONS", steps)
    with pytest.raises(Exception, match="already exists"):
        Database.open(path)
    assert tables(path) == before


def test_opening_twice_takes_no_step_twice(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    Database.open(path).close()
    Database.open(path).close()
    assert len(tables(path)) > len(MIGRATIONS)
