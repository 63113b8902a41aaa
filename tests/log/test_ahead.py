"""A memfd takes memory page by page as they are touched: its blocks tell how far that has come."""

import os
from collections.abc import Callable, Iterator

import pytest

from shm.segment import LogMemory
from smq.log.ahead import AHEAD_BYTES, STEP_BYTES, RingAhead
from smq.log.files.background import InlineBackground, JobLane, T

RING_BYTES = 2 * AHEAD_BYTES


@pytest.fixture
def memory() -> Iterator[LogMemory]:
    memory = LogMemory.create(0, RING_BYTES, 1 << 20, 4)
    yield memory
    os.close(memory.fd)


def present_bytes(memory: LogMemory) -> int:
    return os.fstat(memory.fd).st_blocks * 512


def test_pages_are_present_a_little_ahead_of_the_tail(memory: LogMemory) -> None:
    before, ahead = present_bytes(memory), RingAhead(memory, InlineBackground())
    ahead.look(0)
    assert present_bytes(memory) - before == AHEAD_BYTES
    ahead.look(STEP_BYTES)
    assert present_bytes(memory) - before == AHEAD_BYTES + STEP_BYTES


def test_touching_changes_nothing(memory: LogMemory) -> None:
    memory.ring[5] = 7
    RingAhead(memory, InlineBackground()).look(0)
    assert memory.ring[5] == 7
    assert not memory.ring[6:].any()


def test_after_a_lap_there_is_nothing_to_touch(memory: LogMemory) -> None:
    before, ahead = present_bytes(memory), RingAhead(memory, InlineBackground())
    start = 3 * RING_BYTES + STEP_BYTES  # The lap of a later life begins anywhere.
    for tail in range(start, start + 2 * RING_BYTES, STEP_BYTES):
        ahead.look(tail)
    assert present_bytes(memory) - before == RING_BYTES


def test_a_tail_that_has_run_ahead_is_not_followed_from_behind(memory: LogMemory) -> None:
    before, ahead = present_bytes(memory), RingAhead(memory, InlineBackground())
    ahead.look(0)
    ahead.look(RING_BYTES - STEP_BYTES)
    assert present_bytes(memory) - before == AHEAD_BYTES + STEP_BYTES


class OneByOne(InlineBackground):
    """Runs each job when the test says so."""

    def __init__(self) -> None:
        self.jobs: list[Callable[[], None]] = []

    def submit(self, _: JobLane, job: Callable[[], T], done: Callable[[T | OSError], None]) -> None:
        self.jobs.append(lambda: done(job()))


def test_once_it_is_stopped_no_more_pages_are_touched(memory: LogMemory) -> None:
    """A stop of a shard beside busy processes took longer than it may, and was a kill."""
    before, background = present_bytes(memory), OneByOne()
    ahead = RingAhead(memory, background)
    ahead.look(0)
    [job] = background.jobs
    ahead.stop()
    job()
    assert len(background.jobs) == 1
    assert present_bytes(memory) == before
