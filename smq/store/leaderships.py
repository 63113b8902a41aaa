"""Which logs have led the partitions that were to move, and where they move.

partitions     log: of the newest leadership; epoch, target, attempt: as smq.model.catalog.Moved
leaderships    those of the partitions with attempt > 0; others have one, which is implied
"""

from collections import defaultdict
from collections.abc import Mapping

from smq.model.catalog import Leadership, Moved
from smq.store.database import Database


class Leaderships:
    """The table of leaderships, and what `partitions` has beside it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def save(self, number: int, moved: Moved) -> None:
        """Give a partition these leaderships in place of its own. Durable with the next commit."""
        assert moved.attempt > 0
        moved.invariants()
        self._database.change(
            "UPDATE partitions SET log = ?, epoch = ?, target = ?, attempt = ? WHERE number = ?",
            (moved.leaderships[-1].log, moved.epoch, moved.target, moved.attempt, number),
        )
        self._database.change("DELETE FROM leaderships WHERE partition_number = ?", (number,))
        self._database.change_many(
            "INSERT INTO leaderships VALUES (?, ?, ?, ?, ?)",
            [(number, *each) for each in moved.leaderships],
        )


def moved_partitions(database: Database) -> Mapping[str, Mapping[int, Moved]]:
    """The partitions that were to move, by the id of their topic and their index."""
    leaderships = defaultdict[int, list[Leadership]](list)
    for number, *fields in database.rows(
        "SELECT partition_number, epoch, log, start_offset, end_offset FROM leaderships "
        "ORDER BY partition_number, epoch"
    ):
        leaderships[number].append(Leadership(*fields))
    found = defaultdict[str, dict[int, Moved]](dict)
    for topic_id, index, number, epoch, target, attempt in database.rows(
        "SELECT topic_id, partition, number, epoch, target, attempt FROM partitions "
        "WHERE attempt > 0"
    ):
        found[topic_id][index] = Moved(epoch, target, attempt, tuple(leaderships[number]))
    return found
