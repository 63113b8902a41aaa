"""A schema from elsewhere is refused before anything of it runs."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from smq.model.errors import StoreError
from smq.store.copying import StoreCopy, check_store
from smq.store.database import Database
from smq.store.migrations import MIGRATIONS
from smq.store.schema import check_schema

ENDLESS = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
CHECKED = "replace(sql, 'NOT NULL', 'CHECK (randomblob(9) NOT NULL)') WHERE name = 'counters'"
CRAFTED = [
    f"CREATE VIEW endless AS {ENDLESS}",
    f"ALTER TABLE counters RENAME TO kept; CREATE VIEW counters AS {ENDLESS}",
    "CREATE TRIGGER bomb AFTER UPDATE ON counters BEGIN DELETE FROM topics; END",
    "CREATE TABLE sink (a)",
    "CREATE INDEX large ON topics (length(zeroblob(1000000)))",
    "ALTER TABLE topics ADD COLUMN a AS (length(zeroblob(1000000)))",
    "DROP TRIGGER payload_file_is_gone",
    f"PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = {CHECKED}",
]


def crafted(path: Path, script: str) -> Path:
    Database.open(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.executescript(script)
    return path


@pytest.mark.parametrize("script", CRAFTED)
def test_a_schema_that_no_migration_makes_is_refused(tmp_path: Path, script: str) -> None:
    """Door fault 2, its sibling: `smq restore` of such a store never ended."""
    path = crafted(tmp_path / "store.sqlite", script)
    with pytest.raises(StoreError, match="is not as SMQ makes it"):
        check_store(path)
    with pytest.raises(StoreError, match="is not as SMQ makes it"):
        Database.open(path)
    with pytest.raises(StoreError, match="is not as SMQ makes it"):
        Database.open_read_only(path)
    with pytest.raises(StoreError, match="is not as SMQ makes it"):
        StoreCopy(path)


def test_an_old_schema_with_more_in_it_is_refused_before_it_is_migrated(tmp_path: Path) -> None:
    """Door fault 2, its sibling."""
    path = tmp_path / "store.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(MIGRATIONS[0])
        connection.executescript(f"CREATE VIEW a AS {ENDLESS}; PRAGMA user_version = 1")
    with pytest.raises(StoreError, match="the view 'a' is not as SMQ makes it"):
        Database.open(path)


@pytest.mark.parametrize(
    ("script", "table"),
    [
        ("INSERT INTO topics VALUES ('i', 'default', x'ff', 0)", "topics"),
        ("UPDATE counters SET next = 'x'", "counters"),
        ("UPDATE counters SET next = 1.5", "counters"),
        ("INSERT INTO groups VALUES ('g', x'00', 1, NULL, NULL, NULL)", "groups"),
        ("INSERT INTO deleting_groups VALUES (x'00')", "deleting_groups"),
    ],
)
def test_a_value_that_is_not_of_its_column_s_type_is_refused(
    tmp_path: Path, script: str, table: str
) -> None:
    """Door fault 2, its sibling: with bytes as a topic's name the coordinator ended again and
    again, and never said why."""
    path = crafted(tmp_path / "store.sqlite", script)
    with pytest.raises(StoreError, match=f"the table '{table}' has a value of another type"):
        check_store(path)
    with pytest.raises(StoreError, match=f"the table '{table}' has a value of another type"):
        Database.open(path)


def test_nothing_may_be_where_its_column_allows_that(tmp_path: Path) -> None:
    script = "INSERT INTO groups VALUES ('g', NULL, 1, NULL, NULL, NULL)"
    path = crafted(tmp_path / "store.sqlite", script)
    check_store(path)
    Database.open(path).close()


def test_the_tables_of_a_query_planner_are_allowed(tmp_path: Path) -> None:
    path = crafted(tmp_path / "store.sqlite", "ANALYZE; VACUUM")
    with closing(sqlite3.connect(path)) as connection:
        check_schema(connection, path)
    Database.open(path).close()
