"""Times that the store keeps and that decide an age later: none is in the future after a start.

They are on the time line (smq.app.supervisor.timeline). What was kept last before a power cut may
be ahead of it then, and a restored snapshot's may be by a year. An age is never negative: such a
time becomes the present, so that retention, expiry and compaction wait no longer than they should.
Transactions and payloads' condemnations do so where they are read and changed.
"""

from smq.store.database import Database

_TIMES = (
    ("committed_offsets", "commit_ms"),
    ("transaction_offsets", "commit_ms"),
    ("groups", "empty_since_ms"),
    ("segments", "compacted_ms"),
    ("replaced_files", "replaced_ms"),
)


def clamp_times(database: Database, now_ms: int) -> None:
    """Make the present of what is in the future. An offset's own retention begins anew then."""
    for table, column in _TIMES:
        future = f"{table} WHERE {column} > ?"
        if not database.rows(f"SELECT 1 FROM {future} LIMIT 1", (now_ms,)):  # noqa: S608
            continue  # Nothing is written: the disk may be full.
        if table == "committed_offsets":
            database.change(
                "UPDATE committed_offsets SET expire_ms = expire_ms - commit_ms + ? "
                "WHERE commit_ms > ? AND expire_ms IS NOT NULL",
                (now_ms, now_ms),
            )
        database.change(
            f"UPDATE {table} SET {column} = ? WHERE {column} > ?",  # noqa: S608
            (now_ms, now_ms),
        )
