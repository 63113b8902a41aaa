"""The broker's SQL store, for its one owner, the coordinator: topics, groups, offsets, counters.

The store decides nothing. Changes are durable after `commit()`, which the owner calls once a turn,
before the answers of that turn go out. `lazy` changes survive the death of any process, but perhaps
not a power loss (see Database).
"""

import json
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias
from uuid import UUID

from smq.model.catalog import Topic
from smq.store.access import AccessTables
from smq.store.arrivals import Arrivals
from smq.store.config_changes import ConfigChanges
from smq.store.database import NUMBERS_MAX, Database
from smq.store.deleted_topics import DeletedTopics
from smq.store.kept_times import clamp_times
from smq.store.layouts import Layouts
from smq.store.leaderships import Leaderships
from smq.store.manifest import WritableManifest
from smq.store.moves import MoveTable
from smq.store.protocols import packed, unpacked
from smq.store.resource_configs import ResourceConfigs
from smq.store.rows import CommittedOffset, GroupChange, StoredGroup, StoredMember
from smq.store.transactions import TransactionTables

FILE_NAME = "store.sqlite"
Counter: TypeAlias = Literal["partition_number", "producer_id", "coordinator_epoch"]


# A statement for each row would cost twice as much, and one that replaces rows also moves their
# entries in the index.
_ROWS_AT_ONCE = 50


@cache
def _commit_offsets(count: int) -> str:
    """A statement that saves so many committed offsets."""
    marks = ", ".join(["(?, ?, ?, ?, ?, ?, ?, ?)"] * count)
    names = "offset", "leader_epoch", "metadata", "commit_ms", "expire_ms", "arrival"
    sets = ", ".join(f"{name} = excluded.{name}" for name in names)
    return f"INSERT INTO committed_offsets VALUES {marks} ON CONFLICT DO UPDATE SET {sets}"  # noqa: S608


class Store:
    """All tables except those that the attributes have."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.manifest = WritableManifest(database)
        self.deleted_topics = DeletedTopics(database)
        self._arrivals = Arrivals(database)
        self.transactions = TransactionTables(database, self._arrivals)
        self.config_changes = ConfigChanges(database)
        self.resource_configs = ResourceConfigs(database, self.config_changes)
        self.access = AccessTables(database)
        self.layouts = Layouts(database)
        self.leaderships, self.moves = Leaderships(database), MoveTable(database)

    @classmethod
    def open(cls, path: Path) -> Self:
        """The store at `path`, created or migrated. Raises StoreError."""
        return cls(Database.open(path))

    def commit(self) -> None:
        """Make every change since the last commit durable. Raises StoreError: perhaps none is."""
        self._database.commit()

    @property
    def may_lose(self) -> bool:
        """Whether a power loss may take what was committed last."""
        return self._database.may_lose

    def rollback(self) -> None:
        """Undo every change since the last commit."""
        self._database.rollback()
        self._arrivals.forget_block()
        self.manifest.names.may_have_gone = self.deleted_topics.may_be_some = True

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def clamp_times(self, now_ms: int) -> None:
        """Make the present of kept times that are in the future: no age is negative."""
        clamp_times(self._database, now_ms)

    def allocate(self, counter: Counter, count: int) -> int:
        """The first of `count` consecutive numbers that are given out once."""
        assert count > 0
        [(first,)] = self._database.rows("SELECT next FROM counters WHERE name = ?", (counter,))
        self._database.change(
            "UPDATE counters SET next = next + ? WHERE name = ?", (count, counter)
        )
        return int(first)

    # Topics

    def add_topic(self, topic: Topic, created_ms: int) -> None:
        """Insert a new topic."""
        key = topic.id.hex
        self._database.change(
            "INSERT INTO topics VALUES (?, ?, ?, ?)", (key, topic.namespace, topic.name, created_ms)
        )
        self._insert_configs(topic)
        self.add_partitions(topic, 0, created_ms)

    def add_partitions(self, topic: Topic, first: int, now_ms: int) -> None:
        """Insert the partitions of a topic from index `first` on: a new layout."""
        self.layouts.add(topic.id, topic.partition_count, now_ms)
        places = list(enumerate(zip(topic.partition_numbers, topic.logs, strict=True)))
        self._database.change_many(
            "INSERT INTO partitions (number, topic_id, partition, log) VALUES (?, ?, ?, ?)",
            [(number, topic.id.hex, index, log) for index, (number, log) in places[first:]],
        )

    def set_configs(self, topic: Topic) -> None:
        """Give a topic the configs that it has now, in place of those before."""
        self._database.change("DELETE FROM configs WHERE topic_id = ?", (topic.id.hex,))
        self._insert_configs(topic)

    def _insert_configs(self, topic: Topic) -> None:
        self._database.change_many(
            "INSERT INTO configs VALUES (?, ?, ?)",
            [(topic.id.hex, name, value) for name, value in topic.configs.items()],
        )

    def delete_topic(self, topic_id: UUID) -> None:
        """Delete a topic with its configs; partitions, offsets and segments follow in portions
        (`deleted_topics`)."""
        self.deleted_topics.add(topic_id)

    # Groups

    def groups(self) -> list[StoredGroup]:
        """Every saved group. A group is saved once it is stable."""
        members: dict[str, list[StoredMember]] = {}
        for group_id, *fields, protocols, place in self._database.rows(
            "SELECT group_id, member_id, instance_id, client_id, client_host, "
            "session_timeout_ms, rebalance_timeout_ms, assignment, protocols, position "
            "FROM group_members ORDER BY group_id, position"
        ):
            member = StoredMember(*(*fields, unpacked(protocols), place))
            members.setdefault(group_id, []).append(member)
        rows = self._database.rows(
            "SELECT group_id, protocol_type, generation, protocol_name, leader FROM groups"
        )
        return [StoredGroup(*(*row, tuple(members.get(row[0], ())))) for row in rows]

    def save_group(self, change: GroupChange, now_ms: int) -> None:
        """Save a group as of `now_ms`. Writes only rows that changed."""
        group_id = change.group_id
        self._database.change(
            "INSERT INTO groups VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
            "protocol_type = excluded.protocol_type, generation = excluded.generation, "
            "protocol_name = excluded.protocol_name, leader = excluded.leader, "
            "empty_since_ms = excluded.empty_since_ms",
            (
                group_id,
                change.protocol_type,
                change.generation,
                change.protocol_name,
                change.leader,
                now_ms if change.is_empty else None,
            ),
        )
        self._database.change_many(
            "DELETE FROM group_members WHERE group_id = ? AND position = ?",
            [(group_id, place) for place in change.gone],
        )
        self._database.change_many(
            "INSERT INTO group_members VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE "
            "SET member_id = excluded.member_id, instance_id = excluded.instance_id, "
            "client_id = excluded.client_id, client_host = excluded.client_host, "
            "session_timeout_ms = excluded.session_timeout_ms, "
            "rebalance_timeout_ms = excluded.rebalance_timeout_ms, "
            "assignment = excluded.assignment, protocols = excluded.protocols",
            [_member_row(group_id, member) for member in change.members],
        )

    def delete_group(self, group_id: str) -> None:
        """Delete a group and its offsets, pending ones included."""
        for table in ("groups", "committed_offsets", "transaction_offsets", "deleting_groups"):
            self._database.change(f"DELETE FROM {table} WHERE group_id = ?", (group_id,))  # noqa: S608

    # Committed offsets

    def delete_some_offsets(self, group_id: str, count_max: int) -> bool:
        """Forget some of a group's offsets, committed or pending; returns whether there may be
        more. Then the group is one of the `deleting_groups` until `delete_group`."""
        pending = self._database.change(
            "DELETE FROM transaction_offsets WHERE group_id = ? "
            "AND (partition_number, transactional_id) IN (SELECT partition_number, "
            "transactional_id FROM transaction_offsets WHERE group_id = ? "
            "ORDER BY partition_number, transactional_id LIMIT ?)",
            (group_id, group_id, count_max),
        )
        committed = self._database.change(
            "DELETE FROM committed_offsets WHERE group_id = ? AND partition_number IN "
            "(SELECT partition_number FROM committed_offsets WHERE group_id = ? "
            "ORDER BY partition_number LIMIT ?)",
            (group_id, group_id, count_max - pending),
        )
        if has_more := pending + committed == count_max:
            self._database.change("INSERT OR IGNORE INTO deleting_groups VALUES (?)", (group_id,))
        return has_more

    def deleting_groups(self) -> list[str]:
        """The groups of which some offsets are forgotten, and the others are to be."""
        rows = self._database.rows("SELECT group_id FROM deleting_groups ORDER BY group_id")
        return [group_id for (group_id,) in rows]

    def commit_offsets(
        self, group_id: str, offsets: Mapping[int, CommittedOffset], *, lazy: bool = False
    ) -> None:
        """Save offsets of a group, by partition number."""
        arrival = self._arrivals.next()
        rows = [(group_id, number, *committed, arrival) for number, committed in offsets.items()]
        for first in range(0, len(rows), _ROWS_AT_ONCE):
            some = rows[first : first + _ROWS_AT_ONCE]
            values = [value for row in some for value in row]
            self._database.change(_commit_offsets(len(some)), values, lazy=lazy)

    def delete_offsets(self, group_id: str, numbers: Iterable[int]) -> None:
        """Forget a group's offsets of these partitions."""
        self._database.change_many(
            "DELETE FROM committed_offsets WHERE group_id = ? AND partition_number = ?",
            [(group_id, number) for number in numbers],
        )

    def committed_offsets(
        self, group_id: str, above: int = -1, count_max: int = -1
    ) -> dict[int, CommittedOffset]:
        """A group's offsets by partition number; only numbers greater than `above`, and the first
        `count_max` of these (-1: all)."""
        rows = self._database.rows(
            "SELECT partition_number, offset, leader_epoch, metadata, commit_ms, expire_ms "
            "FROM committed_offsets WHERE group_id = ? AND partition_number > ? "
            "ORDER BY partition_number LIMIT ?",
            (group_id, above, count_max),
        )
        return {number: CommittedOffset(*fields) for number, *fields in rows}

    def committed_offsets_of(
        self, group_id: str, numbers: Iterable[int]
    ) -> dict[int, CommittedOffset]:
        """A group's offsets of these partitions. Reads only their rows."""
        wanted, found = list(numbers), dict[int, CommittedOffset]()
        for first in range(0, len(wanted), NUMBERS_MAX):
            some = wanted[first : first + NUMBERS_MAX]
            marks = ",".join("?" * len(some))
            rows = self._database.rows(
                "SELECT partition_number, offset, leader_epoch, metadata, commit_ms, expire_ms "  # noqa: S608
                f"FROM committed_offsets WHERE group_id = ? AND partition_number IN ({marks})",
                (group_id, *some),
            )
            found.update((number, CommittedOffset(*fields)) for number, *fields in rows)
        return found

    def groups_with_offsets(self) -> list[str]:
        """The groups with stored offsets, committed or pending."""
        rows = self._database.rows(
            "SELECT group_id FROM committed_offsets UNION SELECT group_id FROM transaction_offsets"
        )
        return [group_id for (group_id,) in rows]

    def has_offsets(self, group_id: str) -> bool:
        """Whether a group has stored offsets, committed or pending."""
        question = (
            "SELECT 1 FROM committed_offsets WHERE group_id = ? "
            "UNION ALL SELECT 1 FROM transaction_offsets WHERE group_id = ? LIMIT 1"
        )
        return bool(self._database.rows(question, (group_id, group_id)))

    def expire_offsets(  # noqa: PLR0913  (what is due, and which part of it is visited)
        self,
        group_id: str,
        now_ms: int,
        retention_ms: int,
        *,
        after: int,
        rows_max: int,
        kept: Collection[int] = (),
    ) -> list[int]:
        """Delete a group's expired offsets, except those of the `kept` partitions.

        The retention starts at the commit or when the group became empty, whichever is later; a
        retention that the client requested wins. Visits a bounded number of partitions with
        numbers above `after`, and returns these, in order.
        """
        rows = self._database.rows(
            "SELECT partition_number FROM committed_offsets "
            "WHERE group_id = ? AND partition_number > ? ORDER BY partition_number LIMIT ?",
            (group_id, after, rows_max),
        )
        looked_at = [number for (number,) in rows]
        due = [number for number in looked_at if number not in kept]
        if due:
            self._database.change(
                "DELETE FROM committed_offsets "
                "WHERE group_id = ? AND partition_number IN (SELECT value FROM json_each(?)) "
                "AND ? >= coalesce(expire_ms, ? + max(commit_ms, coalesce("
                "(SELECT empty_since_ms FROM groups WHERE group_id = ?), 0)))",
                (group_id, json.dumps(due), now_ms, retention_ms, group_id),
            )
        return looked_at


def _member_row(group_id: str, member: StoredMember) -> tuple[Any, ...]:
    return (
        group_id,
        member.place,
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.session_timeout_ms,
        member.rebalance_timeout_ms,
        member.assignment,
        packed(member.protocols),
    )
