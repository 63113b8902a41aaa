"""Since when a topic has had how many partitions. SeaweedMQ's clients name partitions by that time,
so that it never changes, and no two layouts of a topic have the same one.
"""

from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from smq.store.database import Database

MS_NS = 1_000_000


class StoredLayout(NamedTuple):
    """A layout: it began, by the wall clock, when the topic got so many partitions."""

    began_ns: int
    partition_count: int


class Layouts:
    """The table of layouts."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, topic_id: UUID, partition_count: int, now_ms: int) -> None:
        """A topic has so many partitions from now on. Durable with the next commit."""
        self._database.change(
            "INSERT INTO layouts SELECT ?, ?, max(?, coalesce(max(began_ns) + 1, 0)) "
            "FROM layouts WHERE topic_id = ?",
            (topic_id.hex, partition_count, now_ms * MS_NS, topic_id.hex),
        )

    def of(self, topic_id: UUID) -> list[StoredLayout]:
        """The layouts of a topic; the newest is the last. None: there is no such topic now."""
        rows = self._database.rows(
            "SELECT began_ns, partition_count FROM layouts WHERE topic_id = ? ORDER BY 2",
            (topic_id.hex,),
        )
        return [StoredLayout(*row) for row in rows]

    def close(self) -> None:
        """Close the database."""
        self._database.close()


def open_layouts(path: Path) -> Layouts:
    """The layouts in a coordinator's store, for another process. Raises StoreError."""
    return Layouts(Database.open_read_only(path))
