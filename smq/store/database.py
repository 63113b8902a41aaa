"""One SQLite file: opening, migrating, and changes that are committed together.

The owner makes any number of changes and calls `commit()` once before it answers: a commit
syncs the disk, which costs far more than a row. The first change after a commit opens the
transaction. This module alone turns exceptions of sqlite3 into StoreError.

WAL mode lets Spark and other readers read while the owner writes. A commit survives a power loss,
unless all its changes were `lazy`: these survive the death of any process, and a power loss may
take them, the newest first and none without those after it. SQLite runs with `synchronous=NORMAL`,
so that it does not sync its log at a commit; `commit()` does, where it must. So others may see a
commit that is not durable yet; the owner opens a database only once all that it shows is durable.
"""

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from smq.model.errors import MadeByNewer, NotFound, StoreError, Unavailable
from smq.store.content import check_content
from smq.store.migrations import FUNCTIONS, MIGRATIONS
from smq.store.schema import check_schema, check_types
from smq.store.stored_version import stored_version

NUMBERS_MAX = 500  # Parameters of one query; SQLite accepts at least 999.
LOCK_TIMEOUT_S = 5.0  # WAL readers block no writer; this covers another tool's checkpoint.
LOG_BYTES_MAX = 16 * 1024 * 1024  # Of the file, while no reader holds its content back.
PRAGMAS = (
    "journal_mode = WAL",
    "synchronous = NORMAL",
    "foreign_keys = ON",
    f"journal_size_limit = {LOG_BYTES_MAX}",
    "trusted_schema = OFF",
)
_COPIED_BYTES = 1024 * 1024  # At a time.
_DAMAGE = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)


class Database:
    """A connection for one thread. A transaction lasts from the first change to the next commit."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        self._must_sync = False
        self._log_fd: int | None = None
        self.may_lose = False
        """Whether a power loss may take what was committed last."""
        self._log_is_suspect = False  # A sync of it may have failed: see _write_again.
        self.sync_file: Callable[[int], None] = os.fdatasync

    @classmethod
    def open(cls, path: Path) -> "Database":
        """The database at `path`, created or migrated, and durable. For its one owner.

        A sync of the owner before may have failed, or never returned.
        Raises StoreError: unwritable, not a database, not ours, or made by a newer SMQ.
        """
        refuse_newer(path)
        _make_private(path)
        self = cls(path, _connect(path, path.absolute().as_uri()))
        with self._closed_if_it_fails():
            check_schema(self._connection, path)
            for pragma in PRAGMAS:
                self._connection.execute(f"PRAGMA {pragma}")
            self._migrate_and_check()
            self._log_is_suspect = True
            self._sync()
        return self

    @classmethod
    def open_read_only(cls, path: Path) -> "Database":
        """The database at `path`, as last committed. Raises StoreError."""
        if not path.exists():
            raise NotFound(str(path), "there is no such database")
        self = cls(path, _connect(path, f"{path.absolute().as_uri()}?mode=ro"))
        with self._closed_if_it_fails():
            version = self._version()
            if version > len(MIGRATIONS):
                raise _made_by_newer(path, version)
            if version < len(MIGRATIONS):
                raise StoreError(
                    str(path),
                    f"its version is {version}, this SMQ reads {len(MIGRATIONS)}: "
                    "use the version of SMQ that serves it",
                )
            check_schema(self._connection, path)
        return self

    def check(self) -> None:
        """Look through a database that nobody serves. Raises StoreError: somebody has changed it;
        then it is closed."""
        with self._closed_if_it_fails():
            self._check_rows()

    def _check_rows(self) -> None:
        check_types(self._connection, self.path)
        check_content(self._connection, self.path)

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of a query, uncommitted changes included."""
        try:
            return self._connection.execute(sql, parameters).fetchall()
        except sqlite3.Error as reason:
            raise _unavailable(self.path, reason) from reason

    def change(self, sql: str, parameters: Sequence[Any] = (), *, lazy: bool = False) -> int:
        """Change rows; returns how many. Durable after the next commit, see `lazy` above."""
        self._begin(lazy=lazy)
        try:
            return self._connection.execute(sql, parameters).rowcount
        except sqlite3.Error as reason:
            raise _unavailable(self.path, reason) from reason

    def change_many(
        self, sql: str, parameters: Iterable[Sequence[Any]], *, lazy: bool = False
    ) -> None:
        """The same change for many rows."""
        self._begin(lazy=lazy)
        try:
            self._connection.executemany(sql, parameters)
        except sqlite3.Error as reason:
            raise _unavailable(self.path, reason) from reason

    def commit(self) -> None:
        """Make every change since the last commit durable, all or none.

        If the sync fails, the changes stand but may not be durable; the next commit makes them so.
        """
        try:
            self.may_lose |= self._connection.in_transaction
            self._connection.commit()
            if self._must_sync:
                self._sync()
        except (sqlite3.Error, OSError) as reason:
            raise _unavailable(self.path, reason) from reason

    def sync_next(self) -> None:
        """Have the next commit make durable what a power loss may still take."""
        self._must_sync |= self.may_lose

    def rollback(self) -> None:
        """Undo every change since the last commit."""
        try:
            self._connection.rollback()
        except sqlite3.Error as reason:
            raise _unavailable(self.path, reason) from reason

    def close(self) -> None:
        """Close the connection and drop uncommitted changes."""
        self._connection.close()
        if self._log_fd is not None:
            os.close(self._log_fd)
            self._log_fd = None

    def _sync(self) -> None:
        """Make everything committed survive a power loss."""
        if self._log_fd is None:
            self._sync_names()
            self._log_fd = os.open(f"{self.path}-wal", os.O_RDWR | os.O_CLOEXEC)
        try:
            if self._log_is_suspect:
                self._write_again(self._log_fd)
            self.sync_file(self._log_fd)
        except OSError:
            self._log_is_suspect = True
            raise
        self._log_is_suspect = self._must_sync = self.may_lose = False

    def _write_again(self, log_fd: int) -> None:
        """Write what the kernel holds of the log, so that the next sync writes it to the disk: the
        kernel takes the pages of a failed sync for written. The lock keeps others from the log."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            at = 0
            while some := os.pread(log_fd, _COPIED_BYTES, at):
                at += os.pwrite(log_fd, some, at)
        finally:
            self._connection.rollback()

    def _sync_names(self) -> None:
        """Sync the names of the database and its log: SQLite ignores a failure of that."""
        fd = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    @contextmanager
    def _closed_if_it_fails(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as reason:
            self.close()
            raise _unavailable(self.path, reason) from reason
        except StoreError:
            self.close()
            raise

    def _begin(self, *, lazy: bool) -> None:
        self._must_sync |= not lazy
        if not self._connection.in_transaction:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
            except sqlite3.Error as reason:
                raise _unavailable(self.path, reason) from reason

    def _version(self) -> int:
        return int(self._connection.execute("PRAGMA user_version").fetchone()[0])

    def _migrate_and_check(self) -> None:
        """Take the steps that are missing, all or none: a database that is then refused stays the
        one of the version that made it, which can still serve it."""
        version = self._version()
        assert version <= len(MIGRATIONS), "a newer database is refused before it is opened"
        for name, function in FUNCTIONS.items():
            self._connection.create_function(name, 1, function, deterministic=True)
        steps = [
            f"{script}; PRAGMA user_version = {number};"
            for number, script in enumerate(MIGRATIONS[version:], start=version + 1)
        ]
        if steps:
            self._connection.executescript("".join(["BEGIN IMMEDIATE;", *steps]))
        self._check_rows()
        if steps:
            self._connection.execute("COMMIT")


def refuse_newer(path: Path) -> None:
    """Check a database's version before opening changes it. Raises MadeByNewer."""
    version = stored_version(path)
    if version > len(MIGRATIONS):
        raise _made_by_newer(path, version)


def _made_by_newer(path: Path, version: int) -> MadeByNewer:
    return MadeByNewer(str(path), f"its version is {version}, this SMQ knows {len(MIGRATIONS)}")


def _make_private(path: Path) -> None:
    """Make the file of a new database, for this user alone; SQLite gives its logs the same mode."""
    with suppress(OSError):  # Connecting says why the file cannot be made.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


def _connect(path: Path, uri: str) -> sqlite3.Connection:
    try:
        return sqlite3.connect(uri, uri=True, timeout=LOCK_TIMEOUT_S, isolation_level=None)
    except sqlite3.Error as reason:
        raise _unavailable(path, reason) from reason


def _unavailable(path: Path, reason: sqlite3.Error | OSError) -> Unavailable:
    # The low byte is the primary code; errors raised by Python's module have none.
    if getattr(reason, "sqlite_errorcode", 0) & 0xFF in _DAMAGE:
        return Unavailable(str(path), f"it is damaged ({reason}); restore it from a backup")
    return Unavailable(str(path), f"the database failed: {reason}")
