"""Everything in the SQL store at a glance, for metrics: one query each, whatever there is.

Any process may read it; a reader sees the coordinator's last commit.
"""

from pathlib import Path
from typing import NamedTuple

from smq.store.database import Database
from smq.store.manifest import Manifest


class Sealed(NamedTuple):
    """The sealed segments of a partition."""

    segments: int
    bytes: int


class Committed(NamedTuple):
    """The committed offset of a group in a partition, by the partition's number."""

    group_id: str
    number: int
    offset: int


class Overview:
    """Reads a store that its coordinator writes."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.manifest = Manifest(database)

    def version(self) -> int:
        """A number that changes with each commit of the coordinator."""
        return int(self._database.rows("PRAGMA data_version")[0][0])

    def sealed(self) -> dict[int, Sealed]:
        """The sealed segments of each partition that has any. SQLite scans all of them."""
        return {
            number: Sealed(count, size)
            for number, count, size in self._database.rows(
                "SELECT partition_number, count(*), sum(bytes) FROM segments"
                " GROUP BY partition_number"
            )
        }

    def committed(self) -> list[Committed]:
        """Every committed offset, in the order of groups and partitions."""
        rows = self._database.rows(
            "SELECT group_id, partition_number, offset FROM committed_offsets"
            " ORDER BY group_id, partition_number"
        )
        return [Committed(*row) for row in rows]

    def members(self) -> dict[str, int]:
        """The number of members of each group."""
        return dict(
            self._database.rows(
                "SELECT groups.group_id, count(member_id) FROM groups"
                " LEFT JOIN group_members USING (group_id) GROUP BY groups.group_id"
            )
        )

    def close(self) -> None:
        """Close the database."""
        self._database.close()


def open_overview(path: Path) -> Overview:
    """The store at `path`, read-only. Raises StoreError."""
    return Overview(Database.open_read_only(path))
