"""The schema of a database must be what the migrations make: SQLite runs what a schema holds.

A file from elsewhere may have a view in a table's place, a trigger on each change, or an expression
in a table: any of these may run for ever or fill the memory. So the schema is compared before the
first question to a table. SQLite also keeps a value of any type in any column: whoever reads bytes
where text was written ends.
"""

import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path

from smq.model.errors import StoreError
from smq.store.migrations import FUNCTIONS, MIGRATIONS

_Entry = tuple[str, str, str, str]  # Kind, name, table, SQL.
# Made by ANALYZE and read by the planner. SQLite reserves the names for ordinary tables.
_STATISTICS = frozenset({"sqlite_stat1", "sqlite_stat4"})


def check_schema(connection: sqlite3.Connection, path: Path) -> None:
    """Raises StoreError for a schema that no migration makes, and sqlite3.Error."""
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    for kind, name, *_ in sorted(_schema_of(connection) ^ _schema_at(version)):
        sentence = f"the {kind} {name!r} is not as SMQ makes it: somebody has changed this database"
        raise StoreError(str(path), sentence)


def check_types(connection: sqlite3.Connection, path: Path) -> None:
    """Raises StoreError for a value that is not of its column's type, and sqlite3.Error.

    It reads all tables, of checked schema: half a second for a million segments.
    """
    for kind, table, *_ in sorted(_schema_of(connection)):
        if kind != "table":
            continue
        wrong = [
            f"typeof({name}) NOT IN ('{declared}', '{declared if not_null or key else 'null'}')"
            for name, declared, not_null, key in connection.execute(
                'SELECT name, lower(type), "notnull", pk FROM pragma_table_info(?)', (table,)
            )
            if declared
        ]
        condition = " OR ".join(wrong) or "FALSE"
        find = f"SELECT 1 FROM {table} WHERE {condition} LIMIT 1"  # noqa: S608  (names of ours)
        if connection.execute(find).fetchone():
            sentence = f"the table {table!r} has a value of another type than SMQ writes there: "
            raise StoreError(str(path), sentence + "somebody has changed this database")


@cache
def _schema_at(version: int) -> frozenset[_Entry]:
    with closing(sqlite3.connect(":memory:")) as made:
        for name, function in FUNCTIONS.items():
            made.create_function(name, 1, function, deterministic=True)
        for script in MIGRATIONS[:version]:
            made.executescript(script)
        return _schema_of(made)


def _schema_of(connection: sqlite3.Connection) -> frozenset[_Entry]:
    rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master")
    return frozenset(
        (str(kind), str(name), str(table), _plain(sql or ""))
        for kind, name, table, sql in rows
        if not (kind == "table" and name in _STATISTICS and _plain(sql).startswith("CREATE TABLE"))
    )


def _plain(sql: str) -> str:
    """SQL without what versions of SQLite write differently when they alter a table."""
    return " ".join(str(sql).replace('"', "").split())
