"""How much SQLite does for something: rows it writes, steps of its machine, and how it looks."""

from collections.abc import Callable, Sequence
from typing import Any

from smq.store.database import Database


def rows_written(database: Database, action: Callable[[], object]) -> int:
    """The rows that are inserted, changed and deleted, those of foreign keys included."""
    before = database._connection.total_changes
    action()
    return database._connection.total_changes - before


def steps(database: Database, action: Callable[[], object]) -> int:
    """Instructions of SQLite's machine: some for each row that is looked at, the same each time."""
    taken = 0

    def step() -> int:
        nonlocal taken
        taken += 1
        return 0

    database._connection.set_progress_handler(step, 1)
    try:
        action()
    finally:
        database._connection.set_progress_handler(None, 0)
    return taken


def statements(database: Database, action: Callable[[], object]) -> list[str]:
    """What SQLite was asked."""
    asked: list[str] = []
    database._connection.set_trace_callback(asked.append)
    try:
        action()
    finally:
        database._connection.set_trace_callback(None)
    return asked


def plan(database: Database, sql: str, parameters: Sequence[Any]) -> str:
    """How SQLite finds what a query wants: SEARCH goes by an index, SCAN through everything."""
    rows = database.rows(f"EXPLAIN QUERY PLAN {sql}", parameters)
    return "; ".join(row[3] for row in rows)
