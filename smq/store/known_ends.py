"""Where partitions end at least, by the manifest. Any process may ask, as it may the manifest."""

from collections.abc import Iterable
from pathlib import Path

from smq.model.segments import KnownEnds
from smq.store.database import Database

_ENDS_SQL = """
    SELECT number, log_start_offset,
        coalesce((SELECT end_offset FROM segments WHERE partition_number = number
            ORDER BY base_offset DESC LIMIT 1), 0),
        coalesce((SELECT end_offset FROM undecided_segments WHERE partition_number = number
            ORDER BY base_offset DESC LIMIT 1), 0)
    FROM partitions WHERE log = ?
"""


def known_ends(path: Path, logs: Iterable[int]) -> list[KnownEnds]:
    """What the SQL store at `path` has of the partitions in these logs. Raises StoreError."""
    database = Database.open_read_only(path)
    try:
        return [KnownEnds(*row) for log in logs for row in database.rows(_ENDS_SQL, (log,))]
    finally:
        database.close()
