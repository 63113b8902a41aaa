"""Everything in the SQL store at a glance, for metrics: one query each, whatever there is.

Any process may read it; a reader sees the coordinator's last commit.
"""

from pathlib import Path
from typing import NamedTuple

from smq.store.database import Database
from smq.store.deleted_topics import NAMESPACE as DELETED
from smq.store.manifest import Manifest


class Sealed(NamedTuple):
    """The sealed segments of a partition."""

    segments: int
    bytes: int
    untyped: int = 0
    """Records whose value does not fit the topic's schema."""


class Committed(NamedTuple):
    """The committed offset of a group in a partition, by the partition's number."""

    group_id: str
    number: int
    offset: int


class OpenPart(NamedTuple):
    """A partition of an open transaction; `started_ms` is on the time line."""

    transactional_id: str
    producer_id: int
    started_ms: int
    topic: str
    partition: int


class MemberOverview(NamedTuple):
    """A member and its timers."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int


class GroupOverview(NamedTuple):
    """A group at its last stable generation; `empty_since_ms`: when its last member left."""

    group_id: str
    protocol_type: str | None
    generation: int
    empty_since_ms: int | None
    members: tuple[MemberOverview, ...]


class Overview:
    """Reads a store that its coordinator writes."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.manifest = Manifest(database)

    def version(self) -> int:
        """A number that changes with each commit of the coordinator."""
        return int(self._database.rows("PRAGMA data_version")[0][0])

    def sealed(self) -> dict[int, Sealed]:
        """The segments of each partition that has any, undecided ones too. SQLite scans all."""
        return {
            number: Sealed(count, size, untyped)
            for number, count, size, untyped in self._database.rows(
                "SELECT partition_number, count(*), sum(bytes), sum(untyped_count) FROM"
                " (SELECT partition_number, bytes, untyped_count FROM segments UNION ALL"
                " SELECT partition_number, bytes, untyped_count FROM undecided_segments)"
                " GROUP BY partition_number"
            )
        }

    def committed(self) -> list[Committed]:
        """Every committed place, in the order of groups and partitions.

        An offset below 0 is none: librdkafka commits -1001 where it has read nothing.
        """
        rows = self._database.rows(
            "SELECT group_id, partition_number, offset FROM committed_offsets WHERE offset >= 0"
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

    def open_parts(self) -> list[OpenPart]:
        """The partitions of open transactions, the oldest first."""
        rows = self._database.rows(
            "SELECT transactional_id, producer_id, started_ms, topics.name, partition"
            " FROM transactions JOIN transaction_partitions USING (transactional_id)"
            " JOIN partitions ON partitions.number = partition_number"
            " JOIN topics ON topics.id = topic_id"
            " WHERE state = 'Ongoing' AND namespace != ? ORDER BY started_ms, 1, 4, 5",
            (DELETED,),
        )
        return [OpenPart(*row) for row in rows]

    def references(self, payload: str) -> list[tuple[str, int, int, int]]:
        """Sealed segments that refer to a payload: topic, partition, base and end offset."""
        return [
            (topic, partition, base, end)
            for topic, partition, base, end in self._database.rows(
                "SELECT topics.name, partition, base_offset, end_offset FROM payload_names"
                " JOIN payload_files ON payload_files.number = file"
                " JOIN segments USING (path)"
                " JOIN partitions ON partitions.number = partition_number"
                " JOIN topics ON topics.id = topic_id WHERE payload_names.id = ?"
                " AND namespace != ?"
                " ORDER BY 1, 2, 3 LIMIT 100",
                (payload, DELETED),
            )
        ]

    def groups(self) -> list[GroupOverview]:
        """Every group with its members."""
        members: dict[str, list[MemberOverview]] = {}
        for group_id, *row in self._database.rows(
            "SELECT group_id, member_id, instance_id, client_id, client_host, session_timeout_ms,"
            " rebalance_timeout_ms FROM group_members ORDER BY group_id, position"
        ):
            members.setdefault(group_id, []).append(MemberOverview(*row))
        rows = self._database.rows(
            "SELECT group_id, protocol_type, generation, empty_since_ms FROM groups"
            " ORDER BY group_id"
        )
        return [GroupOverview._make([*row, tuple(members.get(row[0], ()))]) for row in rows]

    def close(self) -> None:
        """Close the database."""
        self._database.close()


def open_overview(path: Path) -> Overview:
    """The store at `path`, read-only. Raises StoreError."""
    return Overview(Database.open_read_only(path))
