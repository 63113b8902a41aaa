"""Rows that are left of deleted topics: their partitions, and what belongs to these.

A topic may have thousands of partitions, with a million committed offsets and segments. A deletion
changes only the topic's row, which frees its name; the other rows are deleted in portions later. A
death in between is harmless, because the topic's row says that rows are left.
"""

from uuid import UUID

from smq.store.database import Database

NAMESPACE = ""
"""That of deleted topics, whose name is their id: no other topic has it."""
ROWS_A_STEP = 250  # Some milliseconds.
# Rows that refer to partitions, and their keys beside the partition's number.
_REFERRING = {
    "committed_offsets": "group_id",
    "transaction_offsets": "group_id, transactional_id",
    "transaction_partitions": "transactional_id",
    "segments": "base_offset",
    "undecided_segments": "base_offset",
    "leaderships": "epoch",
}
_SOME = "SELECT number FROM partitions WHERE topic_id = ? ORDER BY partition LIMIT 50"


class DeletedTopics:
    """The deleted topics of which something is left."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.may_be_some = True
        """Whether `forget_some` may have something to do."""

    def add(self, topic_id: UUID) -> None:
        """A topic is deleted."""
        key = topic_id.hex
        self._database.change(
            "UPDATE topics SET namespace = ?, name = id WHERE id = ?", (NAMESPACE, key)
        )
        self._database.change("DELETE FROM configs WHERE topic_id = ?", (key,))
        self.may_be_some = True

    def forget_some(self) -> None:
        """Forget some rows of a deleted topic, and at last the topic."""
        rows = self._database.rows(
            "SELECT id FROM topics WHERE namespace = ? LIMIT 1", (NAMESPACE,)
        )
        for (key,) in rows:
            if self._forget_referring(key) < ROWS_A_STEP and not self._forget_partitions(key):
                self._database.change("DELETE FROM topics WHERE id = ?", (key,), lazy=True)
        self.may_be_some = bool(rows)

    def _forget_referring(self, key: str) -> int:
        """Forget some rows that refer to its first partitions; returns how many."""
        count = 0
        for table, others in _REFERRING.items():
            count += self._database.change(
                f"DELETE FROM {table} WHERE (partition_number, {others}) IN "  # noqa: S608
                f"(SELECT partition_number, {others} FROM {table} "
                f"WHERE partition_number IN ({_SOME}) LIMIT ?)",
                (key, ROWS_A_STEP - count),
                lazy=True,
            )
        return count

    def _forget_partitions(self, key: str) -> int:
        """Forget its first partitions, to which nothing refers; returns how many."""
        return self._database.change(
            f"DELETE FROM partitions WHERE number IN ({_SOME})",  # noqa: S608
            (key,),
            lazy=True,
        )
