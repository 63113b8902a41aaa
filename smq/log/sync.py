"""Who calls fdatasync: a thread that never holds the GIL, or, in tests, the caller itself."""

import threading
from typing import Protocol

import numpy as np

from shm.kernels.base.words import WORD_SYNCED
from shm.kernels.log.sync import (
    BOX_DONE,
    BOX_ERRNO,
    BOX_EVENT_FD,
    BOX_REQUESTED,
    BOX_WORDS,
    post_sync,
    stop_sync,
    sync_loop,
)
from shm.segment import LogMemory
from smq.log.disk import Disk


class Syncer(Protocol):
    """Makes written bytes durable, in order, and publishes the position in WORD_SYNCED."""

    def post(self, fd: int, upto: int) -> bool:
        """Ask for a sync of fd, after which all below position `upto` is durable; False: busy."""

    def failed(self) -> bool:
        """Whether a sync failed; nothing is synced until reset()."""

    def reset(self) -> None:
        """The log has been written again; forget the failure and what was asked."""

    def busy(self) -> bool:
        """Whether something asked for is not done yet."""

    def stop(self) -> None:
        """Leave after what is running."""


class InlineSyncer:
    """Syncs in the call, through a Disk: for tests, the simulator and start-up."""

    def __init__(self, memory: LogMemory, disk: Disk) -> None:
        self._memory, self._disk = memory, disk
        self._failed = False

    def post(self, fd: int, upto: int) -> bool:
        """See Syncer."""
        if not self._failed:
            try:
                self._disk.sync(fd)
            except OSError:
                self._failed = True
            else:
                assert upto >= self._memory.words[WORD_SYNCED], "what is synced stays so"
                self._memory.words[WORD_SYNCED] = upto
        return True

    def failed(self) -> bool:
        """See Syncer."""
        return self._failed

    def reset(self) -> None:
        """See Syncer."""
        self._failed = False

    def busy(self) -> bool:
        """See Syncer."""
        return False

    def stop(self) -> None:
        """See Syncer."""


class SyncThread:
    """Syncs in a thread; writes to `event_fd` when WORD_SYNCED has moved or a sync has failed."""

    def __init__(self, memory: LogMemory, event_fd: int) -> None:
        self._box = np.zeros(BOX_WORDS, np.int64)
        self._box[BOX_EVENT_FD] = event_fd
        self._thread = threading.Thread(
            target=sync_loop, args=(memory.memory, self._box), name="sync", daemon=True
        )
        self._thread.start()

    def post(self, fd: int, upto: int) -> bool:
        """See Syncer."""
        return bool(post_sync(self._box, fd, upto))

    def failed(self) -> bool:
        """See Syncer."""
        return bool(self._box[BOX_ERRNO] != 0)

    def reset(self) -> None:
        """See Syncer. The thread rests while BOX_ERRNO is set, so nothing races here."""
        self._box[BOX_DONE] = self._box[BOX_REQUESTED]
        self._box[BOX_ERRNO] = 0

    def busy(self) -> bool:
        """See Syncer."""
        return bool(self._box[BOX_DONE] != self._box[BOX_REQUESTED])

    def stop(self) -> None:
        """See Syncer."""
        stop_sync(self._box)
        self._thread.join()
