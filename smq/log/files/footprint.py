"""How much of a log the page cache keeps: its newest segments, up to a bound.

Memory that the page cache has to find costs a writer several times what the write itself costs. So
old pages make room for new ones, by our choice and in time:

    full       a segment's write-back begins: a writer never meets a burst of dirty pages
    too old    its write-back is waited for; then, and only then, its pages are dropped
    dropped    it is read past the page cache (smq.log.files.past_cache)

The operating system tells an error of a write-back once to each descriptor. So a segment has one
for this purpose alone (`cache_fd`), opened before its first write, or by the start that finds it:
whoever syncs the file too, as a snapshot does, hears an error beside us and not in our place. After
one, nothing is dropped until the log is repaired: the page cache may have the only copy.

One job runs at a time, and pins its segment; the others wait here. A segment that is freed takes
its waiting jobs with it, so a slow disk never holds more than one file that is wanted elsewhere.
"""

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from shm.kernels.base.words import SPACE_UNLIMITED
from smq.log.files.background import Background, JobLane
from smq.log.files.disk import Disk
from smq.log.files.segment import WalSegment

PROBE = "page-cache.new"
PROBE_BYTES = 64 * 1024


def drops_pages(disk: Disk, directory: Path) -> bool:
    """Whether the page cache drops what it is asked to drop: some file systems say nothing and keep
    it. Raises OSError when it cannot be tried, or read past the page cache."""
    path = directory / PROBE
    fd = disk.create(path, PROBE_BYTES)
    try:
        disk.write(fd, memoryview(bytes(PROBE_BYTES)), 0)
        was_there = disk.read_cached(fd, PROBE_BYTES, 0) is not None
        disk.write_back(fd, PROBE_BYTES)
        disk.read_past_cache(path, disk.block(PROBE_BYTES), 0)
        disk.drop(fd, PROBE_BYTES)
        return was_there and disk.read_cached(fd, PROBE_BYTES, 0) is None
    finally:
        disk.close(fd)
        disk.remove(path)


class _WriteBackJob(NamedTuple):
    """What is to be done with a segment's pages or descriptor, and who hears of it."""

    segment: WalSegment
    run: Callable[[WalSegment], None]
    done: Callable[[OSError | None], None]


class Footprint:
    """The full segments of one log that the page cache has, oldest first.

    bytes_max   with the segment that is being written; SPACE_UNLIMITED: nothing is dropped
    failed      is called when a write-back has failed, which is as bad as a failed sync
    heard       is called first, by the job: if the process dies then, nobody is told again
    may_drop    whether the log is healthy
    """

    def __init__(self, disk: Disk, background: Background, bytes_max: int) -> None:
        self._disk, self._background, self.bytes_max = disk, background, bytes_max
        self.failed: Callable[[OSError], None] = _ignore
        self.heard: Callable[[], None] = _nothing
        self.may_drop: Callable[[], bool] = _yes
        self._cached: deque[WalSegment] = deque()
        self._waiting: deque[_WriteBackJob] = deque()
        self._is_running = self._is_dropping = False

    def invariants(self) -> None:
        """Raise AssertionError when a segment counts twice, or though it was dropped."""
        assert all(segment.is_cached for segment in self._cached)
        assert len({id(segment) for segment in self._cached}) == len(self._cached)
        assert self._is_running or not self._waiting

    @property
    def is_dropping(self) -> bool:
        """Whether a drop is under way, or has ended and nobody has looked: it may have failed."""
        return self._is_dropping

    @property
    def is_bounded(self) -> bool:
        return self.bytes_max != SPACE_UNLIMITED

    def open(self, segment: WalSegment, path: Path) -> None:
        """Before a segment's first write: open the descriptor that hears of its write-backs.
        `path` is its file's at present. Raises OSError."""
        if self.is_bounded:
            segment.cache_fd = self._disk.open(path)

    def adopt(self, segments: Sequence[WalSegment]) -> None:
        """At a start: the page cache may have segments of earlier lives; the last one is written
        on."""
        if not self.is_bounded:
            return
        for segment in segments:
            if segment.cache_fd < 0 and not segment.pins:
                with suppress(OSError):  # Then it is opened before it is dropped.
                    self.open(segment, segment.path)
        self._cached = deque(segments[:-1])  # Some may have been filled by the start itself.
        self.trim()

    def enter(self, segment: WalSegment) -> None:
        """The page cache has a full segment: one that was just filled, or that many read."""
        if self.is_bounded:
            segment.is_cached, segment.past_bytes = True, 0
            self._cached.append(segment)
            self._run(segment, self._begin, _ignore)
            self.trim()

    def forget(self, segment: WalSegment) -> None:
        """A segment's file is given up, or another one takes its place."""
        if segment in self._cached:
            self._cached.remove(segment)
        for job in [job for job in self._waiting if job.segment is segment]:
            self._waiting.remove(job)
            job.done(None)

    def close(self, segment: WalSegment) -> None:
        """Close its descriptor."""
        if segment.cache_fd >= 0:
            self._disk.close(segment.cache_fd)
            segment.cache_fd = -1

    def reopen(self, segment: WalSegment) -> None:
        """Another file has taken its file's place: have a descriptor of that, after what still uses
        the old one."""
        self._run(segment, self._reopen, _ignore)

    def _reopen(self, segment: WalSegment) -> None:
        self.close(segment)
        self.open(segment, segment.path)

    def trim(self) -> None:
        """Drop the oldest segments beyond the bound, one after another; but for those that the
        disk cannot read in part, as it may lose more of them."""
        if not self._cached or self._is_dropping or not self.may_drop():
            return
        newest, oldest = self._cached[-1], next((s for s in self._cached if s.may_be_dropped), None)
        written = newest.end - newest.start  # About what the segment takes that is being written.
        total = written + sum(each.end - each.start for each in self._cached)
        if oldest is None or total <= self.bytes_max:
            return
        self._is_dropping = True
        self._run(oldest, self._drop, partial(self._dropped, oldest, oldest.fd))

    def _run(
        self,
        segment: WalSegment,
        job: Callable[[WalSegment], None],
        done: Callable[[OSError | None], None],
    ) -> None:
        """Have a job done with a segment's pages, after those that wait; forget() forgets it."""
        self._waiting.append(_WriteBackJob(segment, job, done))
        self._run_next()

    def _run_next(self) -> None:
        if self._is_running or not self._waiting:
            return
        segment, job, done = self._waiting.popleft()
        self._is_running = True
        segment.pins += 1

        def ran(failure: OSError | None) -> None:
            self._is_running = False
            segment.pins -= 1
            done(failure)
            self._run_next()

        self._background.submit(JobLane.WRITE_BACK, partial(job, segment), ran)

    def _begin(self, segment: WalSegment) -> None:
        if segment.cache_fd >= 0:
            self._disk.begin_write_back(segment.cache_fd, segment.end - segment.start)

    def _drop(self, segment: WalSegment) -> None:
        if segment.cache_fd < 0:  # It could not be opened when it should have been.
            self.open(segment, segment.path)
        size = segment.end - segment.start
        try:
            self._disk.write_back(segment.cache_fd, size)
        except OSError:  # Nothing is dropped.
            self.heard()
            raise
        self._disk.drop(segment.cache_fd, size)
        self.close(segment)

    def _dropped(self, segment: WalSegment, fd: int, failure: OSError | None) -> None:
        self._is_dropping = False
        if failure is not None:
            if segment.cache_fd >= 0:  # Else it cannot be opened now, and tend() tries again.
                self.failed(failure)
        elif segment.fd != fd:  # Another file has taken its file's place meanwhile.
            self.trim()
        elif segment in self._cached:
            self._cached.remove(segment)
            segment.is_cached, segment.is_on_disk = False, True
            self.trim()


def _ignore(_: OSError | None) -> None:
    """What has failed is told by the next call too, before anything is dropped."""


def _nothing() -> None:
    return


def _yes() -> bool:
    return True
