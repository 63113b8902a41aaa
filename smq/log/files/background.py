"""Work that takes milliseconds and must not hold up the shard's loop: allocating files, saving
tables, writing checkpoints, reading old records that are not in the page cache, inflating batches.

Jobs of one lane run one after another. Lanes do not wait for each other, so that the next segment's
file never waits for a checkpoint on a slow disk.
"""

import errno
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from queue import Empty, SimpleQueue
from typing import Protocol, TypeVar

T = TypeVar("T")


class JobLane(Enum):
    """The purpose of a job: WAL files, tables and checkpoints, reads, the ring's pages, searches in
    batches, checks of batches before they are appended, write-back of full WAL segments."""

    FILES = 0
    TABLES = 1
    READS = 2
    PAGES = 3
    SEARCHES = 4
    CHECKS = 5
    WRITE_BACK = 6


class Background(Protocol):
    """Runs jobs and reports back in the loop's own thread."""

    def submit(
        self, lane: JobLane, /, job: Callable[[], T], done: Callable[[T | OSError], None]
    ) -> None:
        """Run `job` elsewhere; collect() calls `done(result)`, with an OSError if it failed."""

    def collect(self) -> int:
        """Call `done` of finished jobs; returns how many there were."""

    def wait_a_job(self, lane: JobLane, /) -> None:
        """Return when the lane's next job has finished and been collected; at once if it has
        none."""

    def abandon(self, lane: JobLane, /) -> None:
        """Forget the lane's jobs that have not begun, and those that are submitted later: `done` is
        called for none of them."""

    def wait(self) -> None:
        """Return when no job is left."""


class InlineBackground:
    """Runs the job in submit(): for tests, the simulator and start-up."""

    def submit(self, _: JobLane, job: Callable[[], T], done: Callable[[T | OSError], None]) -> None:
        """See Background."""
        try:
            result: T | OSError = job()
        except OSError as error:
            result = error
        done(result)

    def collect(self) -> int:
        """See Background."""
        return 0

    def wait_a_job(self, _: JobLane) -> None:
        """See Background."""

    def abandon(self, _: JobLane) -> None:
        """See Background. No job waits here."""

    def wait(self) -> None:
        """See Background."""


class BackgroundThread:
    """A thread for each lane; `wake` is called in it when something has finished."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._lanes = {lane: JobThread(lane.name.lower(), wake) for lane in JobLane}

    def submit(
        self, lane: JobLane, job: Callable[[], T], done: Callable[[T | OSError], None]
    ) -> None:
        """See Background."""
        self._lanes[lane].submit(job, done)

    def collect(self) -> int:
        """See Background."""
        return sum(worker.collect() for worker in self._lanes.values())

    def wait_a_job(self, lane: JobLane) -> None:
        """See Background."""
        self._lanes[lane].wait_a_job()

    def abandon(self, lane: JobLane) -> None:
        """See Background."""
        self._lanes[lane].abandon()

    def wait(self) -> None:
        """See Background. A finished job of one lane may add jobs to another."""
        while any(worker.pending for worker in self._lanes.values()):
            for worker in self._lanes.values():
                worker.wait_a_job()


class JobThread:
    """One thread, and its queue of jobs."""

    def __init__(self, name: str, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._jobs: SimpleQueue[tuple[Callable[[], object], Callable[..., None]]] = SimpleQueue()
        self._finished: SimpleQueue[tuple[Callable[..., None], object]] = SimpleQueue()
        self.pending = 0
        self._is_abandoned = False
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def submit(self, job: Callable[[], object], done: Callable[..., None]) -> None:
        if not self._is_abandoned:
            self.pending += 1
            self._jobs.put((job, done))

    def abandon(self) -> None:
        self._is_abandoned = True
        with suppress(Empty):
            while True:
                self._jobs.get_nowait()
                self.pending -= 1

    def collect(self) -> int:
        count = self._finished.qsize()  # They may add ready jobs for ever.
        for _ in range(count):
            self._take(*self._finished.get())
        return count

    def wait_a_job(self) -> None:
        if self.pending:
            self._take(*self._finished.get())

    def _take(self, done: Callable[..., None], result: object) -> None:
        assert self.pending > 0
        self.pending -= 1
        done(result)

    def _run(self) -> None:
        while True:
            job, done = self._jobs.get()
            try:
                result: object = job()
            except OSError as error:
                result = error
            except MemoryError:  # The lane would never do another job.
                result = OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
            self._finished.put((done, result))
            self._wake()
