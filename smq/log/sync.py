"""Syncs a log's WAL: which positions, and which thread calls fdatasync.

In a broker a thread that never holds the GIL calls it; in tests the caller does.
"""

import threading
from typing import Protocol

import numpy as np

from shm.kernels.base.words import WORD_SYNCED, WORD_WRITTEN
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
from smq.log.files.disk import Disk
from smq.log.files.segment import WalSegment
from smq.log.files.wal import Wal

WAIT_S = 0.0001  # A sync takes about as long, or much longer.


class Syncer(Protocol):
    """Makes written bytes durable, in order, and publishes the position in WORD_SYNCED."""

    @property
    def box(self) -> np.ndarray | None:
        """The mailbox of its thread, to which kernels may post as well; None: there is none."""

    def post(self, fd: int, upto: int) -> bool:
        """Request a sync of fd that makes everything below position `upto` durable; False: busy."""

    def failed(self) -> bool:
        """Whether a sync has failed; nothing is synced until reset()."""

    def reset(self) -> None:
        """Forget the failure and the pending request: the log has been rewritten."""

    def busy(self) -> bool:
        """Whether a request is not done yet."""

    def wait(self) -> None:
        """Wait until the request is done, or has failed."""

    def stop(self) -> None:
        """Finish the running sync, then end."""


class InlineSyncer:
    """Syncs in the call, through a Disk: for tests, the simulator and start-up."""

    box = None

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
                assert upto >= self._memory.words[WORD_SYNCED], "a synced position never moves back"
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

    def wait(self) -> None:
        """See Syncer."""

    def stop(self) -> None:
        """See Syncer."""


class SyncThread:
    """Syncs in a thread. Writes to `event_fd` when WORD_SYNCED moves or a sync fails."""

    def __init__(self, memory: LogMemory, event_fd: int) -> None:
        self.box = np.zeros(BOX_WORDS, np.int64)
        self.box[BOX_EVENT_FD] = event_fd
        self._thread = threading.Thread(
            target=sync_loop, args=(memory.memory, self.box), name="sync", daemon=True
        )
        self._thread.start()

    def post(self, fd: int, upto: int) -> bool:
        """See Syncer."""
        return bool(post_sync(self.box, fd, upto))

    def failed(self) -> bool:
        """See Syncer."""
        return bool(self.box[BOX_ERRNO] != 0)

    def reset(self) -> None:
        """See Syncer. The thread is idle while BOX_ERRNO is set, so there is no race."""
        self.box[BOX_DONE] = self.box[BOX_REQUESTED]
        self.box[BOX_ERRNO] = 0

    def busy(self) -> bool:
        """See Syncer."""
        return bool(self.box[BOX_DONE] != self.box[BOX_REQUESTED])

    def wait(self) -> None:
        """See Syncer."""
        while self.busy() and not self.failed():
            self._thread.join(WAIT_S)  # It goes on; a sleep.

    def stop(self) -> None:
        """See Syncer."""
        stop_sync(self.box)
        self._thread.join()


class Syncs:
    """The syncs of one log, one after another, up to the wanted position.

    wanted    the position up to which syncs are wanted
    awaited   that of the loop: kernels want syncs too, and wait for these themselves

    Invariant: awaited <= wanted <= the written position.
    """

    def __init__(self, memory: LogMemory, wal: Wal, syncer: Syncer) -> None:
        self._words, self._wal, self.syncer = memory.words, wal, syncer
        self.wanted = self.awaited = self._seen = 0

    def invariants(self) -> None:
        """Raise AssertionError if more is wanted than was written."""
        assert self.awaited <= self.wanted <= self._words[WORD_WRITTEN]

    def is_running(self) -> bool:
        """Whether a sync runs that has not failed."""
        return self.syncer.busy() and not self.syncer.failed()

    def want(self) -> None:
        """Want everything synced that is written by now. A running sync does not cover it."""
        self.wanted = self.awaited = self._words[WORD_WRITTEN]

    def end_in(self, segment: WalSegment) -> bool:
        """Whether the wanted position lies in a segment and is not synced: without the segment no
        sync would reach it."""
        is_there = segment.start < self.wanted <= segment.end
        return is_there and self.wanted > self._words[WORD_SYNCED]

    def may_use(self, end: int) -> bool:
        """Whether the syncer may use the descriptor of a segment that ends there."""
        return self.syncer.busy() and end > self._words[WORD_SYNCED]

    def see(self) -> None:
        """The loop is about to do what waits for the syncs that have ended by now."""
        self._seen = self._words[WORD_SYNCED]

    def is_awaited(self) -> bool:
        """Whether the loop waits for a sync, or has not seen its end yet."""
        return bool(self.awaited > self._seen)

    def push(self) -> bool:
        """Post the wanted sync if the syncer is free; False: a sync has failed.

        A segment is synced before the next one.
        """
        if self.syncer.failed():
            return False
        synced = self._words[WORD_SYNCED]
        if self.syncer.busy() or self.wanted <= synced:
            return True
        for segment in self._wal.segments:
            if segment.end <= synced or segment.start >= self.wanted:
                continue
            if not self.syncer.post(segment.fd, min(segment.end, self.wanted)):
                break  # No later segment may pass this one: the next push posts the rest.
        return True
