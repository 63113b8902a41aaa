"""The coordinator's store: the real one, but its disk may fill up, its syncs may fail, and its
newest commits may be lost.

A commit shows before its sync: the others may read it when the sync has failed, or when the
coordinator dies in between.

A power loss takes unsynced commits, newest first. SQLite keeps its whole WAL until closed, so that
the simulation can cut off its end.
"""

import errno
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

from smq.model.errors import Unavailable
from smq.store.store import FILE_NAME, Store
from smq.testing.simulation.disk import Faults


class StoreImage(NamedTuple):
    """The bytes of a database and of its WAL."""

    database: bytes
    log: bytes

    def write(self, path: Path) -> None:
        """Replace the files, which others may still have open."""
        for each in path.parent.glob(f"{path.name}*"):
            each.unlink()
        path.write_bytes(self.database)
        _log_of(path).write_bytes(self.log)


class SimulatedStore(Store):
    """The store of one coordinator."""

    faults: Faults
    before_call: Callable[[str], None]
    _synced_bytes = 0

    def keep_log(self) -> None:
        """Keep SQLite's whole WAL until it is closed, so that its end can be cut off."""
        self._database.rows("PRAGMA wal_autocheckpoint = 0")
        self._database.sync_file = self._sync
        self._synced_bytes = self._log.stat().st_size

    def _sync(self, _fd: int) -> None:
        """The commit shows already. Nothing is synced really: it takes long, and `image` knows."""
        self.before_call("sync")
        if "sync" in self.faults.failing:
            raise OSError(errno.EIO, "the disk is broken")
        self._synced_bytes = self._log.stat().st_size

    def commit(self) -> None:
        """See Store."""
        self.before_call("commit")
        if "commit" in self.faults.failing:
            raise Unavailable(FILE_NAME, "the disk is full")
        super().commit()

    def image(self, chance: Random) -> StoreImage | None:
        """What a power loss now leaves of it; None: everything."""
        if not self.may_lose:
            return None
        log = self._log.read_bytes()
        return StoreImage(
            self._database.path.read_bytes(), log[: chance.randint(self._synced_bytes, len(log))]
        )

    @property
    def _log(self) -> Path:
        return _log_of(self._database.path)


def _log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")
