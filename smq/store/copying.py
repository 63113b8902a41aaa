"""A copy of the SQL store as of one moment, taken by another process while its owner serves.

    with StoreCopy(path) as copy:
        with copy.held():        no commit happens meanwhile: the block's reads match the copy
            ...
        copy.write(target)       the owner continues; the moment ends with it

`held` takes SQLite's write lock for as long as its block lasts, and opens a read transaction, which
keeps seeing that moment. The owner's next commit waits for the block, so it must be short. While
the read transaction is open, SQLite cannot reuse its log, and each commit makes it longer: so
`write` copies to the page cache, ends the transaction, and only then waits for the disk.
"""

import os
import sqlite3
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Self

from smq.model.config import INT32_MAX
from smq.model.errors import StoreError, Unavailable
from smq.model.setting import INT64_MAX
from smq.store.database import Database
from smq.store.deleted_topics import NAMESPACE as DELETED
from smq.store.schema import check_schema

HOLD_WAIT_S = 5.0  # For the owner's commit, which syncs the disk.


class StoreCopy:
    """Connections to a store of which one moment is to be kept. Raises StoreError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with _failures_told(path):
            self._writer = _connect(path)
            self._reader = _connect(path)
            check_schema(self._reader, path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()
        self._writer.close()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold back commits while the block runs; the copy is of that moment."""
        with _failures_told(self.path):
            self._let_go()
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                self._reader.execute("BEGIN")
                self._reader.execute("SELECT next FROM counters").fetchall()
                yield
            finally:
                self._writer.execute("ROLLBACK")

    def write(self, target: Path) -> None:
        """Write the copy, durable but for its name. `held` begins another moment."""
        try:
            with _failures_told(target), closing(_connect(target, mode="rwc")) as copy:
                copy.execute("PRAGMA journal_mode = OFF")  # A half copy is removed, not repaired.
                copy.execute("PRAGMA synchronous = OFF")
                self._reader.backup(copy)
        finally:
            self._let_go()
        _sync(target)

    def _let_go(self) -> None:
        if self._reader.in_transaction:
            self._reader.execute("ROLLBACK")


_PATHS = "SELECT path FROM segments UNION SELECT path FROM undecided_segments"


def segment_paths(path: Path) -> set[str]:
    """The files that the manifest names in a store without an owner. Raises StoreError."""
    with _failures_told(path), closing(_connect(path)) as store:
        return {name for (name,) in store.execute(_PATHS)}


def partition_numbers(path: Path) -> set[int]:
    """The partitions of all topics in a store without an owner. Raises StoreError."""
    with _failures_told(path), closing(_connect(path)) as store:
        question = (
            "SELECT number FROM partitions JOIN topics ON topics.id = topic_id WHERE namespace != ?"
        )
        return {number for (number,) in store.execute(question, (DELETED,))}


def log_count_of(path: Path) -> int:
    """How many logs there must be for the partitions in such a store. Raises StoreError."""
    with _failures_told(path), closing(_connect(path)) as store:
        question = (
            "SELECT max(log) FROM (SELECT log FROM partitions UNION ALL SELECT log FROM leaderships"
            " UNION ALL SELECT target FROM partitions)"
        )
        [(last,)] = store.execute(question).fetchall()
        return 0 if last is None else int(last) + 1


def topics_of(path: Path) -> set[tuple[str, str]]:
    """Namespace and name of each topic in such a store. Raises StoreError."""
    with _failures_told(path), closing(_connect(path)) as store:
        question = "SELECT namespace, name FROM topics WHERE namespace != ?"
        return {(each[0], each[1]) for each in store.execute(question, (DELETED,))}


def keep_topics(path: Path, topics: Collection[tuple[str, str]]) -> None:
    """Forget all other topics, with their offsets and segments. Raises StoreError."""
    with _failures_told(path), closing(_connect(path)) as store:
        store.execute("PRAGMA foreign_keys = ON")
        store.execute("BEGIN")
        for topic_id, namespace, name in store.execute(
            "SELECT id, namespace, name FROM topics"
        ).fetchall():
            if (namespace, name) not in topics:
                store.execute("DELETE FROM topics WHERE id = ?", (topic_id,))
        store.execute("COMMIT")
        store.execute("VACUUM")
        store.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    _sync(path)


# By states of smq.coordinator.transactions.states; an open one is fenced (decisions.fenced).
_RENEW = (
    """
    UPDATE transactions SET state = 'PrepareAbort', epoch = epoch + 1, last_epoch = epoch,
        previous_producer_id = producer_id, version = 2
    WHERE state = 'Ongoing'
    """,
    """
    UPDATE transactions SET state = 'Empty', producer_id = next_producer_id, epoch = -1,
        last_epoch = -1, previous_producer_id = -1, next_producer_id = -1
    WHERE state NOT IN ('PrepareCommit', 'PrepareAbort')
    """,
)


# A partition's number is not used again, whatever the counter says.
_BEYOND_USED = (
    "UPDATE counters SET next = max(next, (SELECT coalesce(max(number), 0) + 1 FROM partitions)) "
    "WHERE name = 'partition_number'"
)
# A start refuses what is beyond bounds (smq.store.content): a restored broker must not come there
# by what it gives out.
_CROWDED = "SELECT name FROM counters WHERE next > iif(name IN (?, ?), ?, ?)"
_MOST = "partition_number", "coordinator_epoch", INT32_MAX - 10**8, INT64_MAX // 4


def renew(path: Path, by: Mapping[str, int]) -> None:
    """Make a copied store another broker's: it gives out no number that the first one, or another
    copy, may have given out since. Raises StoreError.

    Counters rise, and must have room left. Each transactional id gets another producer: at once, or
    once a transaction is ended. An open one is aborted: its producer may have gone on with it, and
    only a part is here.
    """
    with _failures_told(path), closing(_connect(path)) as store:
        store.execute("BEGIN")
        names = store.execute("SELECT transactional_id FROM transactions").fetchall()
        for name, count in [*by.items(), ("producer_id", len(names))]:
            store.execute("UPDATE counters SET next = next + ? WHERE name = ?", (count, name))
        store.execute(_BEYOND_USED)
        for (name,) in store.execute(_CROWDED, _MOST).fetchall():
            sentence = f"its counter {name!r} has no room left: somebody has changed this database"
            raise StoreError(str(path), sentence)
        question = "SELECT next FROM counters WHERE name = 'producer_id'"
        ((end,),) = store.execute(question).fetchall()
        store.executemany(
            "UPDATE transactions SET next_producer_id = ? WHERE transactional_id = ?",
            [(end - i, name) for i, (name,) in enumerate(names, start=1)],
        )
        for change in _RENEW:
            store.execute(change)
        store.execute("COMMIT")
        store.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    _sync(path)


def check_store(path: Path) -> None:
    """Migrate a store without an owner, and have SQLite look through it. Raises StoreError: what
    Database.open refuses, and damage."""
    with closing(Database.open(path)) as store:
        [(verdict,), *_] = store.rows("PRAGMA quick_check(1)")
    if verdict != "ok":
        raise StoreError(str(path), f"it is damaged: {verdict}")


def _connect(path: Path, mode: str = "rw") -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    return sqlite3.connect(uri, uri=True, timeout=HOLD_WAIT_S, isolation_level=None)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def _failures_told(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as reason:
        raise Unavailable(str(path), f"the database failed: {reason}") from reason
