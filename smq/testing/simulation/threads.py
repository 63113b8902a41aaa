"""A process's threads, in steps: the simulation decides when their work is done.

A kill before that finds it undone. On a slow disk, work is due late.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from shm.kernels.base.words import WORD_SYNCED
from shm.segment import LogMemory
from smq.app.process.loop import Loop
from smq.log.files.background import JobLane
from smq.log.files.disk import Disk

T = TypeVar("T")
When = Callable[[], int]
"""When (monotonic) what is begun now will be done."""


class SteppedSyncer:
    """Replaces a SyncThread: one sync at a time, done by step()."""

    box = None

    def __init__(self, memory: LogMemory, disk: Disk, when: When) -> None:
        self._memory, self._disk, self._when = memory, disk, when
        self._posted: tuple[int, int] | None = None
        self._failed = False
        self.due_ns: int | None = None

    def post(self, fd: int, upto: int) -> bool:
        """See Syncer."""
        if self.busy() or self._failed:
            return False
        self._posted, self.due_ns = (fd, upto), self._when()
        return True

    def failed(self) -> bool:
        """See Syncer."""
        return self._failed

    def reset(self) -> None:
        """See Syncer."""
        self._failed, self._posted, self.due_ns = False, None, None

    def busy(self) -> bool:
        """See Syncer."""
        return self._posted is not None

    def wait(self) -> None:
        """See Syncer."""
        self.stop()

    def stop(self) -> None:
        """See Syncer: finishes a running sync first."""
        if self.due_ns is not None:
            self.step()

    def step(self) -> None:
        """Do the sync."""
        assert self._posted is not None
        self.due_ns = None
        fd, upto = self._posted
        try:
            self._disk.sync(fd)
        except OSError:
            self._failed = True  # It stays busy until it is reset, like the thread.
            return
        self._memory.words[WORD_SYNCED] = upto
        self._posted = None


class SteppedBackground:
    """Replaces a BackgroundThread: one job at a time in each lane, done by step()."""

    def __init__(self, when: When) -> None:
        self._when = when
        self._jobs: dict[JobLane, deque[tuple[Callable[[], Any], Callable[..., None]]]] = {}
        self._dues: dict[JobLane, int] = {}
        self._finished: dict[JobLane, deque[tuple[Callable[..., None], object]]] = {}
        for lane in JobLane:
            self._jobs[lane], self._finished[lane] = deque(), deque()
        self._abandoned: set[JobLane] = set()

    def submit(
        self, lane: JobLane, job: Callable[[], T], done: Callable[[T | OSError], None]
    ) -> None:
        """See Background."""
        if lane in self._abandoned:
            return
        self._jobs[lane].append((job, done))
        self._dues.setdefault(lane, self._when())

    def collect(self) -> int:
        """See Background."""
        count = 0
        for finished in self._finished.values():
            while finished:
                done, result = finished.popleft()
                done(result)
                count += 1
        return count

    def wait_a_job(self, lane: JobLane) -> None:
        """See Background."""
        if not self._finished[lane] and self._jobs[lane]:
            self._run(lane)
        if self._finished[lane]:
            done, result = self._finished[lane].popleft()
            done(result)

    def abandon(self, lane: JobLane) -> None:
        """See Background. The first job is under way."""
        self._abandoned.add(lane)
        while len(self._jobs[lane]) > 1:
            self._jobs[lane].pop()

    def wait(self) -> None:
        """See Background."""
        while any(self._jobs.values()) or any(self._finished.values()):
            for lane in JobLane:
                self.wait_a_job(lane)

    def has_finished(self) -> bool:
        """Whether collect() would find anything."""
        return any(self._finished.values())

    def next_due_ns(self) -> int | None:
        """When the next job is done."""
        return min(self._dues.values(), default=None)

    def step(self, now_ns: int) -> None:
        """Do the jobs that are due."""
        for lane in [lane for lane, due_ns in self._dues.items() if due_ns <= now_ns]:
            self._run(lane)

    def _run(self, lane: JobLane) -> None:
        job, done = self._jobs[lane].popleft()
        del self._dues[lane]
        if self._jobs[lane]:
            self._dues[lane] = self._when()
        try:
            result: object = job()
        except OSError as error:
            result = error
        self._finished[lane].append((done, result))


class SteppedLane:
    """Replaces a ThreadLane: one piece of work after the other, each done by step()."""

    def __init__(self, loop: Loop, when: When) -> None:
        self._loop, self._when = loop, when
        self._works: deque[tuple[Callable[[], Any], Callable[..., None]]] = deque()
        self.due_ns: int | None = None

    def submit(self, work: Callable[[], T], done: Callable[[T | OSError], None]) -> None:
        """See ThreadLane."""
        self._works.append((work, done))
        if self.due_ns is None:
            self.due_ns = self._when()

    def step(self) -> None:
        """Do the next work; the loop takes its result."""
        work, done = self._works.popleft()
        self.due_ns = self._when() if self._works else None
        result = work()
        self._loop.call_later(0, lambda: done(result))
