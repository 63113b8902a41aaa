"""Work that takes milliseconds and must not hold up the shard's loop: files to allocate, tables to
file, checkpoints to write."""

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Protocol, TypeVar

T = TypeVar("T")


class Background(Protocol):
    """Runs jobs one after another and reports back in the loop's own thread."""

    def submit(self, job: Callable[[], T], done: Callable[[T | OSError], None]) -> None:
        """Run `job` elsewhere; `done(result)` is called by collect(), with an OSError if it failed."""

    def collect(self) -> int:
        """Call `done` for what has finished; how many."""

    def wait_a_job(self) -> None:
        """Return when the next job has finished and been collected; at once if there is none."""

    def wait(self) -> None:
        """Return when no job is left."""


class InlineBackground:
    """Runs the job in submit(): for tests, the simulator and start-up."""

    def submit(self, job: Callable[[], T], done: Callable[[T | OSError], None]) -> None:
        """See Background."""
        try:
            result: T | OSError = job()
        except OSError as error:
            result = error
        done(result)

    def collect(self) -> int:
        """See Background."""
        return 0

    def wait_a_job(self) -> None:
        """See Background."""

    def wait(self) -> None:
        """See Background."""


class BackgroundThread:
    """One thread; `wake` is called in it when something has finished."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._jobs: SimpleQueue[tuple[Callable[[], object], Callable[..., None]]] = SimpleQueue()
        self._finished: SimpleQueue[tuple[Callable[..., None], object]] = SimpleQueue()
        self._pending = 0
        threading.Thread(target=self._run, name="background", daemon=True).start()

    def submit(self, job: Callable[[], T], done: Callable[[T | OSError], None]) -> None:
        """See Background."""
        self._pending += 1
        self._jobs.put((job, done))

    def collect(self) -> int:
        """See Background."""
        count = 0
        while not self._finished.empty():
            self._take(*self._finished.get())
            count += 1
        return count

    def wait_a_job(self) -> None:
        """See Background."""
        if self._pending:
            self._take(*self._finished.get())

    def wait(self) -> None:
        """See Background."""
        while self._pending:
            self.wait_a_job()

    def _take(self, done: Callable[..., None], result: object) -> None:
        self._pending -= 1
        done(result)

    def _run(self) -> None:
        while True:
            job, done = self._jobs.get()
            try:
                result: object = job()
            except OSError as error:
                result = error
            self._finished.put((done, result))
            self._wake()
