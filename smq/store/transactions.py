"""The tables of transactions: transactional ids, and pending offsets.

Part of the coordinator's store: changes are durable with its next commit.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import get_type_hints

from smq.store.arrivals import Arrivals
from smq.store.database import NUMBERS_MAX, Database
from smq.store.rows import CommittedOffset, StoredTransaction

_OWN_TABLES = {"partitions", "groups", "written"}
_COLUMNS = [each.name for each in fields(StoredTransaction) if each.name not in _OWN_TABLES]
_KINDS: Mapping[str, type] = get_type_hints(StoredTransaction)  # SQLite has no bool.
NOT_WRITTEN = -1
_IN_ORDER = "ORDER BY group_id, partition_number LIMIT ?"
_NAMES, _MARKS = ", ".join(_COLUMNS), ", ".join("?" * len(_COLUMNS))
_SETS = ", ".join(f"{name} = excluded.{name}" for name in _COLUMNS[1:])
_SAVE = f"INSERT INTO transactions VALUES ({_MARKS}) ON CONFLICT DO UPDATE SET {_SETS}"  # noqa: S608
_own_columns = attrgetter(*_COLUMNS)


class TransactionTables:
    """Rows of transactions."""

    def __init__(self, database: Database, arrivals: Arrivals) -> None:
        self._database, self._arrivals = database, arrivals

    def all(self) -> list[StoredTransaction]:
        """Every transactional id, with the partitions and groups of its open transaction."""
        partitions, groups = defaultdict[str, set[int]](set), defaultdict[str, set[str]](set)
        written = defaultdict[str, dict[int, int]](dict)
        for transactional_id, number, generation in self._database.rows(
            "SELECT transactional_id, partition_number, generation FROM transaction_partitions"
        ):
            partitions[transactional_id].add(number)
            if generation != NOT_WRITTEN:
                written[transactional_id][number] = generation
        for transactional_id, group_id in self._database.rows("SELECT * FROM transaction_groups"):
            groups[transactional_id].add(group_id)
        own = self._database.rows(f"SELECT {_NAMES} FROM transactions")  # noqa: S608
        return [
            StoredTransaction(
                **{name: _KINDS[name](value) for name, value in zip(_COLUMNS, row, strict=True)},
                partitions=frozenset(partitions[row[0]]),
                groups=frozenset(groups[row[0]]),
                written=written[row[0]],
            )
            for row in own
        ]

    def save(
        self, txn: StoredTransaction, before: StoredTransaction | None, *, lazy: bool = False
    ) -> None:
        """Save a transactional id. Writes only rows of what it has touched since `before`."""
        key = txn.transactional_id
        self._database.change(_SAVE, _own_columns(txn), lazy=lazy)
        old_partitions = before.partitions if before is not None else frozenset()
        old_written = before.written if before is not None else {}
        old_groups = before.groups if before is not None else frozenset()
        gone = old_partitions - txn.partitions
        if gone and not txn.partitions:
            self._database.change(
                "DELETE FROM transaction_partitions WHERE transactional_id = ?",
                (key,),
                lazy=lazy,
            )
        elif gone:
            self._database.change_many(
                "DELETE FROM transaction_partitions "
                "WHERE transactional_id = ? AND partition_number = ?",
                [(key, number) for number in gone],
                lazy=lazy,
            )
        if old_groups - txn.groups:
            self._database.change(
                "DELETE FROM transaction_groups WHERE transactional_id = ?", (key,), lazy=lazy
            )
            old_groups = frozenset()
        new = (txn.partitions - old_partitions) | (txn.written.keys() - old_written.keys())
        self._add(
            "INSERT OR REPLACE INTO transaction_partitions VALUES (?, ?, ?)",
            [(key, number, txn.written.get(number, NOT_WRITTEN)) for number in new],
            lazy=lazy,
        )
        self._add(
            "INSERT INTO transaction_groups VALUES (?, ?)",
            [(key, group_id) for group_id in txn.groups - old_groups],
            lazy=lazy,
        )

    def _add(self, sql: str, rows: Sequence[tuple[int | str, ...]], *, lazy: bool) -> None:
        if rows:
            self._database.change_many(sql, rows, lazy=lazy)

    def move_written(self, number: int, generation: int) -> list[str]:
        """Note another generation for the records that transactions have in a partition; returns
        the ids of these."""
        ids = self._database.rows(
            "SELECT transactional_id FROM transaction_partitions "
            "WHERE partition_number = ? AND generation != ?",
            (number, NOT_WRITTEN),
        )
        if ids:
            self._database.change(
                "UPDATE transaction_partitions SET generation = ? "
                "WHERE partition_number = ? AND generation != ?",
                (generation, number, NOT_WRITTEN),
            )
        return [transactional_id for (transactional_id,) in ids]

    def delete(self, transactional_id: str) -> None:
        """Forget a transactional id."""
        self._database.change(
            "DELETE FROM transactions WHERE transactional_id = ?", (transactional_id,)
        )

    # Offsets

    def put_offsets(
        self, transactional_id: str, group_id: str, offsets: Mapping[int, CommittedOffset]
    ) -> None:
        """Keep offsets, by partition number, until the transaction is decided."""
        arrival = self._arrivals.next()
        self._database.change_many(
            "INSERT OR REPLACE INTO transaction_offsets VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (group_id, number, transactional_id, *committed[:4], arrival)
                for number, committed in offsets.items()
            ],
        )

    def offset_numbers(self, transactional_id: str) -> set[int]:
        """The partitions whose offsets a transaction commits."""
        rows = self._database.rows(
            "SELECT DISTINCT partition_number FROM transaction_offsets WHERE transactional_id = ?",
            (transactional_id,),
        )
        return {number for (number,) in rows}

    def apply_offsets(self, transactional_id: str, count_max: int, *, lazy: bool = False) -> int:
        """Commit some offsets of a transaction; returns how many.

        Offsets that arrived later stay, as in Kafka.
        """
        self._database.change(
            "INSERT INTO committed_offsets "  # noqa: S608
            "SELECT group_id, partition_number, offset, leader_epoch, metadata, commit_ms, NULL, "
            f"arrival FROM transaction_offsets WHERE transactional_id = ? {_IN_ORDER} "
            "ON CONFLICT DO UPDATE SET offset = excluded.offset, "
            "leader_epoch = excluded.leader_epoch, metadata = excluded.metadata, "
            "commit_ms = excluded.commit_ms, expire_ms = NULL, arrival = excluded.arrival "
            "WHERE excluded.arrival >= committed_offsets.arrival",
            (transactional_id, count_max),
            lazy=lazy,
        )
        return self.drop_offsets(transactional_id, count_max, lazy=lazy)

    def drop_offsets(self, transactional_id: str, count_max: int, *, lazy: bool = False) -> int:
        """Forget some offsets of a transaction; returns how many."""
        return self._database.change(
            "DELETE FROM transaction_offsets WHERE transactional_id = ? "  # noqa: S608
            "AND (group_id, partition_number) IN (SELECT group_id, partition_number "
            f"FROM transaction_offsets WHERE transactional_id = ? {_IN_ORDER})",
            (transactional_id, transactional_id, count_max),
            lazy=lazy,
        )

    def undecided(self, group_id: str, numbers: Iterable[int]) -> set[int]:
        """Those of these partitions that have pending offsets of a group. Reads one row of each."""
        wanted, found = list(numbers), set[int]()
        for first in range(0, len(wanted), NUMBERS_MAX):
            some = wanted[first : first + NUMBERS_MAX]
            marks = ",".join(["(?)"] * len(some))
            rows = self._database.rows(
                f"WITH wanted (number) AS (VALUES {marks}) SELECT number FROM wanted "  # noqa: S608
                "WHERE EXISTS (SELECT 1 FROM transaction_offsets "
                "WHERE group_id = ? AND partition_number = number)",
                (*some, group_id),
            )
            found.update(number for (number,) in rows)
        return found

    def forget_offsets(self, group_id: str, numbers: Sequence[int], count_max: int) -> bool:
        """Forget some of a group's pending offsets of these partitions, of any transaction; returns
        whether there may be more."""
        for first in range(0, len(numbers), NUMBERS_MAX):
            some = numbers[first : first + NUMBERS_MAX]
            marks = ",".join("?" * len(some))
            count_max -= self._database.change(
                "DELETE FROM transaction_offsets WHERE group_id = ? "  # noqa: S608
                "AND (partition_number, transactional_id) IN (SELECT partition_number, "
                "transactional_id FROM transaction_offsets "
                f"WHERE group_id = ? AND partition_number IN ({marks}) "
                "ORDER BY partition_number, transactional_id LIMIT ?)",
                (group_id, group_id, *some, count_max),
            )
            if count_max <= 0:
                return True
        return False
