"""A WAL on a directory of the test."""

from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from smq.log.files.background import Background, InlineBackground, JobLane
from smq.log.files.disk import OsDisk
from smq.log.files.segment_files import SegmentFiles, WalLimits
from smq.log.files.wal import Wal
from smq.testing.disk import FailingDisk

SIZE = 4096
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
