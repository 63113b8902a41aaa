"""A WAL on a directory of the test."""

import time
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from smq.log.files.background import Background, InlineBackground, JobLane
from smq.log.files.disk import Disk, OsDisk
from smq.log.files.segment_files import SegmentFiles, WalLimits
from smq.log.files.wal import Wal
from smq.testing.disk import FailingDisk

SIZE, DEADLINE_S = 4096, 60.0
LIMITS = WalLimits(SIZE)
RING = memoryview(bytearray(i % 251 for i in range(2 * SIZE)))


def new_wal(
    directory: Path,
    disk: FailingDisk | None = None,
    limits: WalLimits = LIMITS,
    *,
    background: Background | None = None,
) -> Wal:
    disk, background = disk or FailingDisk(OsDisk()), background or InlineBackground()
    wal = Wal(SegmentFiles(directory, disk, background, limits), limits.blocks)
    wal.files.open_existing()
    return wal


def names(directory: Path) -> list[str]:
    return sorted(path.suffix for path in directory.iterdir())


def all_are_cached(disk: Disk, fd: int, size: int) -> bool:
    """Whether the page cache gets all of a file's first bytes, before the deadline."""
    until = time.monotonic() + DEADLINE_S
    while (pages := disk.cached_pages(fd, size)) is not None and time.monotonic() < until:
        if pages.all():
            return True
    return False


class HeldBackground(InlineBackground):
    """Does jobs when somebody waits for them."""

    def __init__(self) -> None:
        self.jobs: deque[Callable[[], None]] = deque()

    def submit(self, lane: JobLane, job: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self.jobs.append(partial(super().submit, lane, job, done))

    def wait_a_job(self, _: JobLane) -> None:
        if self.jobs:
            self.jobs.popleft()()

    def wait(self) -> None:
        while self.jobs:
            self.jobs.popleft()()


class HeldWriteBacks(InlineBackground):
    """Holds the jobs of the lane of write-backs, and of the lane of files if it is told to."""

    def __init__(self) -> None:
        self.jobs: deque[Callable[[], None]] = deque()
        self.held = {JobLane.WRITE_BACK}

    def submit(self, lane: JobLane, job: Callable[[], Any], done: Callable[[Any], None]) -> None:
        run = partial(super().submit, lane, job, done)
        if lane in self.held:
            self.jobs.append(run)
        else:
            run()

    def wait(self) -> None:
        while self.jobs:
            self.jobs.popleft()()


class HeldReads(InlineBackground):
    """Holds the jobs of the lane of reads."""

    def __init__(self) -> None:
        self.jobs: deque[Callable[[], None]] = deque()

    def submit(self, lane: JobLane, job: Callable[[], Any], done: Callable[[Any], None]) -> None:
        run = partial(super().submit, lane, job, done)
        if lane is JobLane.READS:
            self.jobs.append(run)
        else:
            run()

    def run(self) -> None:
        while self.jobs:
            self.jobs.popleft()()
