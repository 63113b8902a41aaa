"""Pages that somebody asks for are tried once more, and those behind them while they fail."""

import errno
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from smq.log.files.background import JobLane
from smq.log.files.disk import OsDisk
from smq.log.files.segment import WalSegment
from smq.log.given_up import GivenUp
from smq.log.log import Log
from smq.log.own_tries import (
    ASKED_MAX,
    RETRY_MS,
    TRIES_MS,
    OwnTries,
)
from smq.testing.disk import PAGE_BYTES, FailingDisk
from tests.log.files.wals import HeldBackground
from tests.log.logs import memory_of, start
from tests.log.test_reading import filled

PAGES = 16  # Of a segment.


class LostPages(GivenUp):
    """Pages of which what they have is lost, and how often that was told."""

    def __init__(self, log: Log) -> None:
        super().__init__(log.wal, log.partitions, log.lookup, [], lambda: 0, lambda *_: True)
        self.lost = list[tuple[int, list[int]]]()
        self.told = 0

    def lose(self, segment: WalSegment, frames: np.ndarray, bad: Sequence[int]) -> None:
        assert len(frames)
        self.lost.append((segment.start, list(bad)))

    def tell(self) -> None:
        self.told += 1


class Asking:
    """Tries of a log's WAL, which wait for run(), and the pages that were lost."""

    def __init__(self, directory: Path) -> None:
        self.disk, self.held, self.now_ms = FailingDisk(OsDisk()), HeldBackground(), 0
        memory = memory_of(32 * PAGE_BYTES, PAGES * PAGE_BYTES)
        self.log = start(
            directory,
            disk=self.disk,
            memory=memory,
            background=self.held,
            segment_bytes=PAGES * PAGE_BYTES,
        ).log
        filled(self.log, 8 * PAGES, size=PAGE_BYTES)
        self.held.wait()
        self.segments, self.given_up = self.log.wal.segments, LostPages(self.log)
        self.tries = OwnTries(self.log.wal, self.log.memory, lambda: self.now_ms, self.given_up)

    def fail(self, segment: WalSegment, first: int = 0, end: int = 1) -> None:
        """Pages fail."""
        segment.bad_pages.note(0, 0, range(first, end))
        self.disk.bad_places.append((segment.path.name, first * PAGE_BYTES, end * PAGE_BYTES))

    def run(self) -> int:
        """Begin a round, and do it; how many reads it took."""
        before = self.disk.calls.get("read", 0)
        self.tries.begin()
        self.held.wait()
        return self.disk.calls.get("read", 0) - before


@pytest.fixture
def asking(tmp_path: Path) -> Asking:
    return Asking(tmp_path)


def test_places_that_are_asked_for_and_other_pages_take_turns_on_a_slow_disk(
    asking: Asking,
) -> None:
    """One try in each round, which then has lasted too long."""
    wanted, others = asking.segments[-4:-1], asking.segments[:-4]
    for segment in (*wanted, *others):
        segment.bad_pages.note(0, 0, [0])
    for segment in wanted:
        asking.tries.ask(segment, 0)
    left = []
    for _ in range(6):
        asking.tries.begin()
        asking.now_ms += TRIES_MS + 1
        asking.held.wait()
        kinds = (wanted, others)
        left.append([sum(len(each.bad_pages.failing()) for each in kind) for kind in kinds])
        asking.now_ms += RETRY_MS
    count = len(others)
    first = [[3, count], [2, count], [2, count - 1]]  # First it finds what lies there.
    assert left == [*first, [2, count - 1], [1, count - 1], [1, count - 2]]


def test_an_error_that_says_nothing_of_a_page_loses_nothing(asking: Asking) -> None:
    asking.fail(asking.segments[0])
    asking.tries.ask(asking.segments[0], 0)
    asking.disk.fail("read", error=errno.ENOMEM)
    assert asking.run() > 0
    asking.disk.heal()
    asking.now_ms += RETRY_MS
    assert asking.run() > 0
    assert asking.given_up.lost == []
    assert asking.segments[0].bad_pages.failing().tolist() == [0]
    asking.tries.ask(asking.segments[0], 0)
    asking.run()
    assert asking.given_up.lost == [(0, [0])]


def test_readers_that_ask_again_and_again_leave_a_slow_disk_to_others_for_most_of_the_time(
    asking: Asking,
) -> None:
    """Each began a round of its own."""
    began, began_ms, end_ms = 0, -1, 100_000
    while asking.now_ms < end_ms:
        segment = asking.segments[began % len(asking.segments)]
        segment.bad_pages.note(0, 0, [0])
        asking.tries.ask(segment, 0)
        asking.tries.begin()
        if asking.held.jobs:
            began, began_ms = began + 1, asking.now_ms
            asking.now_ms += 1000
            asking.held.wait_a_job(JobLane.READS)
        asking.now_ms += 100
    assert 0 < began * 1000 < end_ms / 2
    assert began_ms > end_ms - 2 * RETRY_MS


def test_pages_behind_one_that_is_asked_for_are_tried_while_they_fail(asking: Asking) -> None:
    segment = asking.segments[1]
    asking.fail(segment, 2, 9)
    asking.fail(segment, 11, 12)
    asking.tries._ended_ms = 0  # No round of its own.
    asking.tries.ask(segment, 3)
    assert asking.run() == 6
    assert asking.given_up.lost == [(segment.start, [3, 4, 5, 6]), (segment.start, [7, 8])]
    assert asking.given_up.told == 1


def test_of_the_pages_behind_only_what_fails_is_lost_and_a_good_one_ends_it(
    asking: Asking,
) -> None:
    segment = asking.segments[1]
    asking.fail(segment, 1, 4)
    asking.fail(segment, 9, 10)
    segment.bad_pages.note(0, 0, range(1, 12))  # All but these have healed.
    asking.tries._ended_ms = 0
    asking.tries.ask(segment, 1)
    asking.run()
    assert asking.given_up.lost == [(segment.start, [1, 2, 3])]
    assert segment.bad_pages.failing().tolist() == [1, 2, 3, 9, 10, 11]


def test_pages_that_have_not_failed_for_long_are_not_tried_with_those_that_are_asked_for(
    asking: Asking,
) -> None:
    segment = asking.segments[1]
    asking.fail(segment, 1, 8)
    asking.given_up.are_over = lambda _, pages: pages.stop <= 3
    asking.tries._ended_ms = 0
    asking.tries.ask(segment, 1)
    assert asking.run() == 2
    assert asking.given_up.lost == [(segment.start, [1, 2])]


def test_a_later_place_that_is_asked_for_does_not_wait_for_all_that_lies_before(
    asking: Asking,
) -> None:
    segment = asking.segments[1]
    asking.fail(segment, 0, PAGES)
    asking.tries._ended_ms = 0
    for page in (0, 10, 1, 12):
        asking.tries.ask(segment, page)
    asking.run()
    order = [page for _, pages in asking.given_up.lost for page in pages]
    assert order == [0, 1, 2, 3, 10, 11, 12, 13, 4, 5, 6, 7, 14, 15, 8, 9]


def test_not_all_places_that_are_asked_for_at_once_are_tried(asking: Asking) -> None:
    for segment in asking.segments:
        for page in range(0, PAGES, 8):
            asking.fail(segment, page, page + 1)
            asking.tries.ask(segment, page)
    asking.tries._ended_ms = 0
    asking.run()
    assert len(asking.given_up.lost) <= ASKED_MAX


def test_a_segment_that_need_not_be_read_any_more_is_not_tried(asking: Asking) -> None:
    kept, gone, left = asking.segments[0], replace(asking.segments[1]), asking.segments[2]
    kept.is_kept = True
    for segment in (kept, gone, left):
        asking.fail(segment)
        asking.tries.ask(segment, 0)
    asking.run()
    assert asking.given_up.lost == [(left.start, [0])]


class StoppedDisk(OsDisk):
    """The log stops during a read."""

    def __init__(self, tries: OwnTries) -> None:
        self._tries = tries

    def read(self, fd: int, length: int, at: int) -> np.ndarray:
        self._tries.stop()
        return super().read(fd, length, at)


def test_a_stop_waits_for_one_read_and_loses_nothing(asking: Asking) -> None:
    """A try has four pages, of which each may take the disk seconds."""
    for segment in asking.segments[:3]:
        segment.bad_pages.note(0, 0, range(4))
        asking.tries.ask(segment, 0)
    asking.disk.inner, asking.tries._ended_ms = StoppedDisk(asking.tries), 0
    assert asking.run() == 1
    assert [len(each.bad_pages.failing()) for each in asking.segments[:3]] == [3, 4, 4]
    assert asking.given_up.lost == []
