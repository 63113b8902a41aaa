"""Dropped segments are read in blocks, ahead of a reader, and come back when many read them."""

import os
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from smq.log.files import past_cache, wal as wal_module
from smq.log.files.background import InlineBackground
from smq.log.files.disk import Disk, OsDisk, read_now
from smq.log.files.past_cache import (
    AHEAD_BLOCKS,
    AHEAD_BLOCKS_MAX,
    BLOCKS_MIN,
    HELD_LOOKS,
    REST_LOOKS,
)
from smq.log.files.segment_files import WalLimits
from smq.log.files.wal import Wal
from smq.testing.disk import FailingDisk
from tests.log.files.wals import HeldReads, new_wal

BLOCK = 1 << 14
SIZE = 16 * BLOCK
RING = memoryview(np.random.default_rng(1).bytes(2 * SIZE))


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


def test_a_block_that_cannot_be_read_is_not_tried_again_for_a_while(
    tmp_path: Path, disk: FailingDisk
) -> None:
    wal = backlog(tmp_path, disk)
    disk.fail("read_past_cache", 1)
    assert read(wal, 0, 100) == wanted(0, 100)
    assert (0, 0) in wal.past_cache._failed
    tried = disk.calls["read_past_cache"]
    assert read(wal, 0, 100) == wanted(0, 100)
    assert disk.calls["read_past_cache"] == tried + 1  # These bytes alone.
    assert wal.read_cached(0, 100) is None
    for _ in range(REST_LOOKS):
        wal.past_cache.look()
    read(wal, 0, 100)
    assert wal.read_cached(0, 100) is not None


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


def test_reading_ahead_takes_no_block_that_is_read_in_part(
    tmp_path: Path, disk: FailingDisk
) -> None:
    wal = backlog(tmp_path, disk)
    for segment in range(3):
        read(wal, segment * SIZE, 100)
    for position in range(0, 6 * BLOCK, 100):
        read(wal, position, 100)
        wal.invariants()
    for segment in range(1, 3):
        assert wal.read_cached(segment * SIZE + 100, 100) is not None


def test_readers_that_each_find_two_blocks_wait_for_none_and_read_none_twice(
    tmp_path: Path,
) -> None:
    disk = CountingDisk(OsDisk())
    wal, waits, readers = backlog(tmp_path, disk, blocks=16), 0, 7
    for position in range(0, SIZE // 2, 2048):
        for reader in range(readers):
            is_there = wal.read_cached(reader * SIZE // 2 + position, 2048) is not None
            waits += 2 * BLOCK < position < 6 * BLOCK and not is_there
            read(wal, reader * SIZE // 2 + position, 2048)
        wal.invariants()
    assert waits == 0
    assert disk.bytes_read < 1.3 * readers * SIZE // 2


def test_a_segment_does_not_come_back_that_would_be_dropped_before_others_have_read_it(
    tmp_path: Path, disk: FailingDisk
) -> None:
    wal = backlog(tmp_path, disk, blocks=32)
    for _ in range(4):
        for position in range(0, SIZE, BLOCK):
            for segment in range(4):
                read(wal, segment * SIZE + position, BLOCK)
    assert not any(segment.is_cached for segment in wal.segments[:5])


def test_a_reader_that_finds_no_block_reads_just_its_bytes_and_past_the_page_cache(
    tmp_path: Path,
) -> None:
    disk = CountingDisk(OsDisk())
    wal = backlog(tmp_path, disk)
    for segment in range(3):
        read(wal, segment * SIZE, 100)
    disk.bytes_read = 0
    assert read(wal, 4 * SIZE + 5000, 100) == wanted(4 * SIZE + 5000, 100)
    assert disk.bytes_read == 4096
    assert read(wal, 4 * SIZE + 8000, 400) == wanted(4 * SIZE + 8000, 400)
    assert disk.bytes_read == 3 * 4096
    assert disk.calls.get("read", 0) == 0
    wal.invariants()


def test_a_reader_that_skips_blocks_has_done_with_those_before(
    tmp_path: Path, disk: FailingDisk
) -> None:
    wal = backlog(tmp_path, disk)
    for position in range(0, 4 * SIZE, 3 * BLOCK):
        read(wal, position, 100)
        assert wal.read_cached(position, 100) is not None


def test_a_block_that_a_reader_reads_next_stays_though_another_has_read_it(
    tmp_path: Path, disk: FailingDisk
) -> None:
    wal = backlog(tmp_path, disk, blocks=16)
    for block in range(6):
        read(wal, block * BLOCK, 100)
    read(wal, BLOCK, 100)
    for block in range(6, 12):
        read(wal, block * BLOCK, 100)
    assert wal.read_cached(2 * BLOCK, 100) is not None


def test_an_unread_block_is_used_again_after_a_while(tmp_path: Path, disk: FailingDisk) -> None:
    wal = backlog(tmp_path, disk)
    for segment in range(3):
        read(wal, segment * SIZE, 100)
    for _ in range(HELD_LOOKS + 1):
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


def test_a_read_that_is_longer_than_all_blocks_goes_past_the_page_cache(
    tmp_path: Path, disk: FailingDisk
) -> None:
    wal = backlog(tmp_path, disk)
    assert read(wal, 0, SIZE) == wanted(0, SIZE)
    assert read_now(wal.segments[0].fd, 4096, 0) is None
    assert disk.calls.get("read", 0) == 0


def test_a_page_that_fails_costs_no_block_and_its_tries_leave_nothing_in_the_page_cache(
    tmp_path: Path, disk: FailingDisk
) -> None:
    """Each try had the block read again too, and brought the segment back into the page cache."""
    wal = backlog(tmp_path, disk)
    segment = wal.segments[0]
    disk.bad_places = [(segment.path.name, 4096, 4097)]
    segment.bad_pages.date(0)
    assert read(wal, 0, 3 * 4096) == wanted(0, 4096) + bytes(4096) + wanted(8192, 4096)
    for _ in range(REST_LOOKS):
        wal.past_cache.look()
    before, past_bytes = disk.calls["read_past_cache"] + 200, segment.past_bytes
    for _ in range(100):
        wal.try_again(4096, 8192, lambda _: None)
    assert disk.calls["read_past_cache"] == before  # Two pages each, by themselves.
    assert read(wal, 4096, 4096) == bytes(4096)
    assert read(wal, 0, 4096) == wanted(0, 4096)
    assert disk.calls["read_past_cache"] == before + 1
    assert not segment.is_cached
    assert segment.past_bytes <= past_bytes + 3 * 4096
    pages = disk.cached_pages(segment.fd, SIZE)
    assert pages is None or not pages.any()
    disk.bad_places.clear()
    wal.try_again(4096, 4096, lambda _: None)
    assert read(wal, 4096, 4096) == wanted(4096, 4096)
    assert wal.read_cached(0, BLOCK) is not None


class ShortDisk(FailingDisk):
    """Reads past the page cache end in the midst."""

    def read_past_cache(self, path: Path, out: np.ndarray, at: int) -> int:
        """See Disk."""
        return super().read_past_cache(path, out, at) // 2


def test_a_short_read_counts_as_none(tmp_path: Path) -> None:
    wal = backlog(tmp_path, ShortDisk(OsDisk()))
    assert read(wal, 0, 4096) == wanted(0, 4096)
    wal.segments[0].bad_pages.note(0, 0, [1])
    wal.try_again(4096, 4096, lambda _: None)
    assert not len(wal.segments[0].bad_pages.failing())
    assert read_now(wal.segments[0].fd, 4096, 4096) is None


class CountingDisk(FailingDisk):
    """Counts the bytes that a disk would read: not those that the page cache has."""

    bytes_read = 0

    def __init__(self, inner: Disk) -> None:
        super().__init__(inner)
        self._cached: defaultdict[int, set[int]] = defaultdict(set)

    def _touch(self, fd: int, length: int, at: int, *, reads: bool) -> None:
        found = os.fstat(fd)
        end = min(at + length, found.st_size)
        pages = set(range(at // 4096, -(-end // 4096)))
        self.bytes_read += len(pages - self._cached[found.st_ino]) * 4096 * reads
        self._cached[found.st_ino] |= pages

    def write(self, fd: int, data: memoryview, at: int) -> None:
        """See Disk."""
        self._touch(fd, len(data), at, reads=False)
        super().write(fd, data, at)

    def read(self, fd: int, length: int, at: int) -> np.ndarray:
        """See Disk."""
        self._touch(fd, length, at, reads=True)
        return super().read(fd, length, at)

    def will_read(self, fd: int, length: int, at: int) -> None:
        """See Disk."""
        self._touch(fd, length, at, reads=True)
        super().will_read(fd, length, at)

    def drop(self, fd: int, length: int) -> None:
        """See Disk."""
        self._cached[os.fstat(fd).st_ino].clear()
        super().drop(fd, length)

    def read_past_cache(self, path: Path, out: np.ndarray, at: int) -> int:
        """See Disk."""
        got = super().read_past_cache(path, out, at)
        self.bytes_read += got
        return got


def reads_of_ten(directory: Path, apart: int, bound: int) -> float:
    """How often the disk reads a backlog of 32 segments for ten readers that begin one after
    another, so many bytes apart, while the page cache keeps so many segments."""
    disk, readers = CountingDisk(OsDisk()), 10
    limits = WalLimits(SIZE, cached_bytes_max=bound * SIZE, blocks=32)
    wal = new_wal(directory, disk, limits)
    for i in range(32 + bound):
        wal.write(RING, i * SIZE, (i + 1) * SIZE)
    disk.bytes_read, end = 0, 32 * SIZE
    for front in range(0, end + readers * apart, 4096):
        for position in (
            range(front, front - readers * apart, -apart) if apart else [front] * readers
        ):
            if 0 <= position < end:
                assert read(wal, position, 4096) == wanted(position, 4096)
        wal.invariants()
    return disk.bytes_read / end


@pytest.fixture
def _short_read_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the page cache, as small as the segments are."""
    monkeypatch.setattr(wal_module, "READ_AHEAD_BYTES", 2 * BLOCK)


@pytest.mark.usefixtures("_short_read_ahead")
@pytest.mark.parametrize("apart", [0, BLOCK], ids=["at one place", "a block apart"])
def test_ten_readers_that_keep_together_have_the_disk_read_once(tmp_path: Path, apart: int) -> None:
    assert reads_of_ten(tmp_path, apart, bound=3) < 1.05


@pytest.mark.usefixtures("_short_read_ahead")
def test_ten_readers_that_the_page_cache_can_serve_have_the_disk_read_twice(tmp_path: Path) -> None:
    """Also the few blocks that the second one reads before its segment comes back."""
    assert reads_of_ten(tmp_path, SIZE, bound=12) < 2 + 4 * BLOCK / SIZE


@pytest.mark.usefixtures("_short_read_ahead")
def test_ten_readers_further_apart_than_the_page_cache_read_the_disk_once_each(
    tmp_path: Path,
) -> None:
    assert reads_of_ten(tmp_path, SIZE, bound=3) < 10.5


def wasted_blocks(directory: Path, readers: int, rest: int) -> float:
    """How many blocks the disk reads for each of some slow readers, besides what they get.

    They lie a segment apart, poll 4 KiB each 48 times, and rest for so many looks between.
    """
    disk, size, polls = CountingDisk(OsDisk()), 4096, 48
    limits = WalLimits(SIZE, cached_bytes_max=3 * SIZE, blocks=32)
    wal = new_wal(directory, disk, limits)
    for i in range(20):
        wal.write(RING, i * SIZE, (i + 1) * SIZE)
    disk.bytes_read = 0
    for place in range(0, polls * size, size):
        for position in range(place, place + readers * SIZE, SIZE):
            assert read(wal, position, size) == wanted(position, size)
        for _ in range(rest):
            wal.past_cache.look()
        wal.invariants()
    return (disk.bytes_read / readers - polls * size) / BLOCK


@pytest.mark.parametrize("readers", [1, 3, 12])
@pytest.mark.parametrize(
    ("rest", "bound"),
    [(4, AHEAD_BLOCKS_MAX), (REST_LOOKS, AHEAD_BLOCKS_MAX), (REST_LOOKS + 1, 1 + AHEAD_BLOCKS)],
)
def test_a_slow_reader_costs_what_is_read_ahead_at_its_beginning(
    tmp_path: Path, readers: int, rest: int, bound: int
) -> None:
    assert wasted_blocks(tmp_path, readers, rest) <= bound


def test_a_reader_that_goes_on_fast_after_a_rest_waits_twice(
    tmp_path: Path, disk: FailingDisk
) -> None:
    wal, waits = backlog(tmp_path, disk), 0
    read(wal, 0, 4096)
    for _ in range(REST_LOOKS + 1):
        wal.past_cache.look()
    for position in range(4096, 5 * SIZE, 4096):
        waits += wal.read_cached(position, 4096) is None
        assert read(wal, position, 4096) == wanted(position, 4096)
        wal.invariants()
    assert waits == 2


def test_two_readers_at_different_places_do_not_bring_a_segment_back(
    tmp_path: Path, disk: FailingDisk
) -> None:
    wal = backlog(tmp_path, disk)
    for position in range(0, 2 * SIZE, 1000):
        for reader in (0, 2 * SIZE):
            if position >= reader:
                read(wal, position - reader, 1000)
    assert not any(segment.is_cached for segment in wal.segments[:3])


def test_readers_at_many_places_bring_a_segment_back_into_the_page_cache(
    tmp_path: Path, disk: FailingDisk
) -> None:
    wal = backlog(tmp_path, disk)
    first = wal.segments[0]
    for _ in range(4):
        for position in range(0, SIZE, BLOCK):
            read(wal, position, BLOCK)
            read(wal, 2 * SIZE + position, BLOCK)
    assert first.is_cached
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
