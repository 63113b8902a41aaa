"""Dropped segments are read in blocks, ahead of a reader, and come back when many read them."""

from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smq.log.files import past_cache
from smq.log.files.background import InlineBackground, JobLane
from smq.log.files.disk import OsDisk, read_now
from smq.log.files.past_cache import BLOCKS_MIN, REST_LOOKS, UNREAD_LOOKS
from smq.log.files.segment_files import WalLimits
from smq.log.files.wal import Wal
from smq.testing.disk import FailingDisk
from tests.log.files.wals import new_wal

BLOCK = 1 << 14
SIZE = 16 * BLOCK
RING = memoryview(np.random.default_rng(1).bytes(2 * SIZE))


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


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past_cache, "BLOCK_BYTES", BLOCK)


@pytest.fixture
def disk() -> FailingDisk:
    return FailingDisk(OsDisk())


def backlog(
    directory: Path, disk: FailingDisk, held: HeldReads | None = None, blocks: int = BLOCKS_MIN
) -> Wal:
    """A log of eight segments, of which the first five are dropped."""
    background = held or InlineBackground()
    limits = WalLimits(SIZE, cached_bytes_max=3 * SIZE, blocks=blocks)
    wal = new_wal(directory, disk, limits, background=background)
    for i in range(8):
        wal.write(RING, i * SIZE, (i + 1) * SIZE)
    assert [segment.is_cached for segment in wal.segments] == [False] * 5 + [True] * 3
    return wal


def read(wal: Wal, position: int, length: int) -> bytes:
    """Bytes of the log, from the blocks or loaded."""
    data, got = wal.read_cached(position, length), list[np.ndarray]()
    if data is None:
        wal.load(position, length, got.append)
        data = got[0]
    return bytes(data)


def wanted(position: int, length: int) -> bytes:
    place = position % len(RING)
    return bytes(RING[place : place + length])


def test_a_sequential_reader_has_each_block_read_once_and_waits_for_the_first_only(
    tmp_path: Path, disk: FailingDisk
) -> None:
    wal, waits = backlog(tmp_path, disk), 0
    for position in range(0, 5 * SIZE, 4096):
        waits += wal.read_cached(position, 4096) is None
        assert read(wal, position, 4096) == wanted(position, 4096)
        wal.invariants()
    assert waits == 1
    assert disk.calls["read_past_cache"] == 5 * SIZE // BLOCK
    assert disk.calls.get("read", 0) == 0


def test_a_reader_that_goes_on_has_more_and_more_read_ahead(
    tmp_path: Path, disk: FailingDisk
) -> None:
    held = HeldReads()
    wal = backlog(tmp_path, disk, held, blocks=32)
    wal.load(0, 100, lambda _: None)
    held.run()
    ahead = []
    for block in range(8):
        assert wal.read_cached(block * BLOCK, 100) is not None
        held.run()
        ahead.append(disk.calls["read_past_cache"] - block - 1)
    assert ahead == [2, 4, 4, 8, 8, 8, 8, 8]


def test_a_load_waits_for_its_own_blocks_and_not_for_those_read_ahead(
    tmp_path: Path, disk: FailingDisk
) -> None:
    held = HeldReads()
    wal, got = backlog(tmp_path, disk, held), list[bytes]()
    for position in (0, BLOCK):
        wal.load(position, 100, lambda data: got.append(bytes(data)))
        held.jobs.popleft()()
        assert got.pop() == wanted(position, 100)
        assert held.jobs


def test_reading_ahead_goes_on_in_the_next_segment(tmp_path: Path, disk: FailingDisk) -> None:
    wal = backlog(tmp_path, disk)
    read(wal, SIZE - BLOCK, 100)
    assert wal.read_cached(SIZE, 100) is not None
    assert wal.read_cached(SIZE + BLOCK, 100) is not None


def test_bytes_of_one_block_are_lent_until_blocks_are_used_again(
    tmp_path: Path, disk: FailingDisk
) -> None:
    wal, out = backlog(tmp_path, disk), np.zeros(200, np.uint8)
    read(wal, 0, 100)
    lent = wal.read_cached(0, 100, out)
    assert lent is not None
    uses = wal.past_cache.uses
    while wal.past_cache.uses == uses:
        assert (bytes(lent), bytes(out)) == (wanted(0, 100), bytes(200))
        read(wal, disk.calls["read_past_cache"] * BLOCK, 100)
    spanning = 3 * BLOCK - 50
    read(wal, spanning, 100)
    assert wal.read_cached(spanning, 100, out) is not None
    assert bytes(out[:100]) == wanted(spanning, 100)


def test_reading_ahead_takes_no_block_that_is_unread(tmp_path: Path, disk: FailingDisk) -> None:
    wal = backlog(tmp_path, disk)
    for segment in range(4):  # Each would have two blocks read ahead; there are eight in all.
        read(wal, segment * SIZE, 100)
        wal.invariants()
    for segment in range(3):
        assert wal.read_cached(segment * SIZE + BLOCK, 100) is not None


def test_an_unread_block_is_used_again_after_a_while(tmp_path: Path, disk: FailingDisk) -> None:
    wal = backlog(tmp_path, disk)
    for segment in range(3):
        read(wal, segment * SIZE, 100)
    for _ in range(UNREAD_LOOKS + 1):
        wal.past_cache.look()
    calls = disk.calls["read_past_cache"]
    read(wal, 3 * SIZE, 100)
    assert disk.calls["read_past_cache"] == calls + 3
    wal.invariants()


def test_a_read_may_span_blocks(tmp_path: Path, disk: FailingDisk) -> None:
    wal = backlog(tmp_path, disk)
    for position in (0, 100, BLOCK - 50, SIZE - BLOCK - 8):
        assert read(wal, position, BLOCK + 7) == wanted(position, BLOCK + 7)
    assert disk.calls.get("read", 0) == 0


def test_the_loop_does_not_wait_and_memory_is_bounded(tmp_path: Path, disk: FailingDisk) -> None:
    held = HeldReads()
    wal, got = backlog(tmp_path, disk, held), list[bytes]()
    for segment in range(4):
        wal.load(segment * SIZE, 100, lambda data: got.append(bytes(data)))
        wal.invariants()
    assert not got
    held.run()
    assert got == [wanted(segment * SIZE, 100) for segment in range(4)]
    wal.invariants()
    assert all(segment.pins == 0 for segment in wal.segments)


def test_a_read_that_is_longer_than_all_blocks_goes_through_the_page_cache(
    tmp_path: Path, disk: FailingDisk
) -> None:
    wal = backlog(tmp_path, disk)
    assert read(wal, 0, SIZE) == wanted(0, SIZE)
    assert read_now(wal.segments[0].fd, 4096, 0) is None  # Its pages do not stay.


def test_a_block_that_cannot_be_read_is_read_with_care(tmp_path: Path, disk: FailingDisk) -> None:
    wal = backlog(tmp_path, disk)
    disk.fail("read_past_cache")
    assert read(wal, 0, 4096) == wanted(0, 4096)
    disk.fail("read")
    assert read(wal, 0, 4096) == bytes(4096)
    disk.heal()
    assert read(wal, 0, 4096) == wanted(0, 4096)


class ShortDisk(FailingDisk):
    """Reads past the page cache end in the midst."""

    def read_past_cache(self, path: Path, out: np.ndarray, at: int) -> int:
        """See Disk."""
        return super().read_past_cache(path, out, at) // 2


def test_a_short_read_counts_as_none(tmp_path: Path) -> None:
    wal = backlog(tmp_path, ShortDisk(OsDisk()))
    assert read(wal, 0, 4096) == wanted(0, 4096)


def test_readers_at_many_places_bring_a_segment_back_into_the_page_cache(
    tmp_path: Path, disk: FailingDisk
) -> None:
    wal = backlog(tmp_path, disk)
    first = wal.segments[0]
    for _ in range(4):
        for position in range(0, SIZE, 2 * BLOCK):
            read(wal, position, 100)
            read(wal, 2 * SIZE + position, 100)
    assert first.is_cached
    assert disk.calls["read_past_cache"] <= 2 * 2 * SIZE // BLOCK + 4 * BLOCKS_MIN
    assert read(wal, 0, 4096) == wanted(0, 4096)


def test_a_segment_that_is_freed_leaves_nothing_behind(tmp_path: Path, disk: FailingDisk) -> None:
    wal = backlog(tmp_path, disk)
    read(wal, 0, 100)
    wal.files.free(wal.segments[0])
    assert read(wal, 0, 100) == b""
    assert read(wal, SIZE, 100) == wanted(SIZE, 100)


def test_a_log_at_rest_gives_its_blocks_back(tmp_path: Path, disk: FailingDisk) -> None:
    wal = backlog(tmp_path, disk)
    read(wal, 0, 100)
    assert wal.read_cached(0, 100) is not None
    for _ in range(REST_LOOKS + 1):
        wal.past_cache.look()
    assert wal.read_cached(0, 100) is None
