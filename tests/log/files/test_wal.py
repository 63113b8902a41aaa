"""A log's bytes by position: written, read and loaded, and segments that are replaced."""

import errno
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smq.log.files.background import Background, InlineBackground, JobLane
from smq.log.files.disk import PAGE_BYTES, Disk, OsDisk, read_now
from smq.log.files.salvage import BAD_PAGES_MAX
from smq.log.files.segment import UnreadableSegment
from smq.log.files.segment_files import WalLimits
from smq.log.files.wal import LOADS_MAX, LOANS_END_BELOW, STARTS_A_TURN, Wal
from smq.testing.disk import FailingDisk
from tests.log.files.wals import RING, SIZE, HeldBackground, HeldReads, names, new_wal


def test_written_frames_are_read_across_rings_and_segments(tmp_path: Path) -> None:
    wal = new_wal(tmp_path)
    for start in range(0, 5 * SIZE, SIZE // 2):
        wal.write(RING, start, start + SIZE // 2)
        wal.invariants()
    assert [(s.start, s.end) for s in wal.segments] == [
        (i * SIZE, (i + 1) * SIZE) for i in range(5)
    ]
    for position in (0, 100, SIZE - 10, 3 * SIZE + 7):
        data = wal.read(position, 10)
        place = position % len(RING)
        assert bytes(data) == bytes(RING[place : place + 10])


def test_reading_stops_at_a_segments_end_and_gives_nothing_beyond(tmp_path: Path) -> None:
    wal = new_wal(tmp_path)
    wal.write(RING, 0, SIZE + 64)
    assert len(wal.read(SIZE - 8, 100)) == 8
    assert len(wal.read(2 * SIZE, 100)) == 0
    assert wal.find(-1) is None
    assert wal.find(2 * SIZE) is None


def test_segments_are_found_by_the_positions_they_cover(tmp_path: Path) -> None:
    wal = new_wal(tmp_path)
    for i in range(4):
        wal.write(RING, i * SIZE, (i + 1) * SIZE)
    first, second, _, fourth = wal.segments
    wanted = np.array([SIZE, SIZE + 5, 2 * SIZE - 1, 3 * SIZE])
    assert wal.covering(wanted) == [second, fourth]
    wal.files.free(first)
    assert wal.covering(np.array([0, SIZE])) == [second]
    assert wal.covering(np.array([], np.int64)) == []


def test_few_loads_pin_at_once_and_those_that_wait_find_nothing_when_it_was_freed(
    tmp_path: Path,
) -> None:
    wal = new_wal(tmp_path)
    wal.write(RING, 0, 3 * SIZE)
    wal._background = held = HeldBackground()
    first, second, _ = wal.segments
    got: list[int] = []
    for position in [0] * LOADS_MAX + [SIZE] * 100 + [2 * SIZE]:
        wal.load(position, 10, lambda data: got.append(len(data)))
        wal.invariants()
    assert (first.pins, second.pins) == (LOADS_MAX, 0)
    wal.files.free(second)
    held.wait()
    assert sorted(got) == [0] * 100 + [10] * (LOADS_MAX + 1)
    assert all(segment.pins == 0 for segment in wal.segments)
    wal.invariants()


def test_a_thousand_loads_of_one_block_are_answered_a_few_a_turn(tmp_path: Path) -> None:
    held = HeldBackground()
    wal = new_wal(tmp_path, None, WalLimits(SIZE, cached_bytes_max=SIZE), background=held)
    for i in range(4):
        wal.write(RING, i * SIZE, (i + 1) * SIZE)
        held.wait()
    assert not wal.segments[0].is_cached
    got: list[int] = []

    def answer(number: int, data: np.ndarray) -> None:
        assert bytes(data) == bytes(RING[:10])
        got.append(number)
        if number == LOADS_MAX:  # It comes while others wait.
            wal.load(0, 10, partial(answer, 1000))

    for number in range(1000):
        wal.load(0, 10, partial(answer, number))
    while held.jobs:
        before = len(got)
        held.wait_a_job(JobLane.READS)
        assert len(got) <= before + LOADS_MAX + STARTS_A_TURN
        wal.invariants()
    assert sorted(got[: LOADS_MAX + STARTS_A_TURN]) == [*range(LOADS_MAX + STARTS_A_TURN)]
    assert got[LOADS_MAX + STARTS_A_TURN :] == [*range(LOADS_MAX + STARTS_A_TURN, 1001)]
    assert wal.segments[0].pins == 0


def pages_wal(directory: Path, disk: FailingDisk, held: Background | None = None) -> Wal:
    """A log of two segments of eight pages each, of which three of the first cannot be read."""
    wal = new_wal(directory, disk, WalLimits(8 * PAGE_BYTES), background=held)
    wal.write(memoryview(bytes([7]) * (16 * PAGE_BYTES)), 0, 16 * PAGE_BYTES)
    segment = wal.segments[0]
    disk.bad_places = [
        (segment.path.name, page * PAGE_BYTES, page * PAGE_BYTES + 1) for page in (2, 3, 6)
    ]
    segment.bad_pages.date(0)
    return wal


def test_a_load_does_not_read_what_is_known_to_fail_and_the_log_tries_it_page_by_page(
    tmp_path: Path,
) -> None:
    """Each request paid the failure of the disk."""
    disk = FailingDisk(OsDisk())
    wal = pages_wal(tmp_path, disk)
    pages, got = wal.segments[0].bad_pages, list[bytes]()
    good = b"".join(bytes([7 * (page not in {2, 3, 6})]) * PAGE_BYTES for page in range(8))
    for _ in range(2):
        wal.load(0, 8 * PAGE_BYTES, lambda data: got.append(bytes(data)))
    assert got == [good, good]
    assert pages.failing().tolist() == [2, 3, 6]
    before = disk.calls["read"]
    wal.load(2 * PAGE_BYTES, 2 * PAGE_BYTES, lambda data: got.append(bytes(data)))
    assert (got[-1], disk.calls["read"]) == (bytes(2 * PAGE_BYTES), before)
    del disk.bad_places[0]
    tried = list[int]()
    wal.try_again(2 * PAGE_BYTES, 2 * PAGE_BYTES, lambda _: tried.append(1))
    assert (tried, disk.calls["read"]) == ([1], before + 2)
    assert pages.failing().tolist() == [3, 6]
    wal.try_again(100 * PAGE_BYTES, PAGE_BYTES, lambda _: tried.append(2))
    assert tried == [1, 2]
    wal.files.close()


class AnswersLater(InlineBackground):
    """Does jobs at once, and tells what reads gave in an order that the test chooses."""

    def __init__(self) -> None:
        self.answers: list[Callable[[], None]] = []

    def submit(self, lane: JobLane, job: Callable[[], Any], done: Callable[[Any], None]) -> None:
        def told(found: Any) -> None:
            self.answers.append(partial(done, found))

        super().submit(lane, job, told if lane is JobLane.READS else done)


def test_a_page_that_heals_while_a_read_leaves_it_out_stays_healed(tmp_path: Path) -> None:
    """It failed again for each reader that had begun before, and was never served."""
    disk, later = FailingDisk(OsDisk()), AnswersLater()
    wal = pages_wal(tmp_path, disk, later)
    wal.load(0, 8 * PAGE_BYTES, lambda _: None)
    later.answers.pop()()
    assert wal.segments[0].bad_pages.failing().tolist() == [2, 3, 6]
    wal.load(0, 8 * PAGE_BYTES, lambda _: None)
    disk.bad_places = []
    wal.try_again(0, 8 * PAGE_BYTES, lambda _: None)
    load, try_again = later.answers
    try_again()
    load()
    assert wal.segments[0].bad_pages.failing().tolist() == []
    wal.files.close()


def test_a_try_of_a_replaced_file_says_nothing_of_the_new_one(tmp_path: Path) -> None:
    """A frame that the new file had was lost."""
    disk, later = FailingDisk(OsDisk()), AnswersLater()
    wal = pages_wal(tmp_path, disk, later)
    segment, tried = wal.segments[0], list[list[int]]()
    wal.try_again(0, 8 * PAGE_BYTES, lambda bad: tried.append([*bad]))
    disk.bad_places = []
    wal.swap(segment, wal.write_again(segment, memoryview(b""), segment.end, segment.end))
    later.answers[0]()
    assert tried == [[]]
    assert segment.bad_pages.failing().tolist() == []
    wal.files.close()


def test_loads_that_waited_while_another_one_failed_have_its_answer(tmp_path: Path) -> None:
    """Each of many readers that came at once had the disk fail again, one after another."""
    disk, held = FailingDisk(OsDisk()), HeldBackground()
    wal = pages_wal(tmp_path, disk, held)
    held.wait()
    got = list[int]()
    for _ in range(50):
        wal.load(2 * PAGE_BYTES, PAGE_BYTES, lambda data: got.append(int(data.any())))
    held.wait()
    assert got == [0] * 50
    assert disk.calls["read"] <= 2 * LOADS_MAX
    wal.invariants()
    wal.files.close()


def test_nothing_is_read_ahead_from_a_page_that_fails_on(tmp_path: Path) -> None:
    asked = list[tuple[int, int]]()

    class Ahead(FailingDisk):
        def will_read(self, fd: int, length: int, at: int) -> None:
            asked.append((at // PAGE_BYTES, length // PAGE_BYTES))
            super().will_read(fd, length, at)

    wal = pages_wal(tmp_path, Ahead(OsDisk()))
    for _ in range(2):
        for page in (1, 3, 5, 6):
            wal.load(page * PAGE_BYTES, PAGE_BYTES, lambda _: None)
            wal.segments[0].bad_pages.date(1)
    assert asked[-4:] == [(1, 2), (3, 0), (5, 1), (6, 0)]
    wal.files.close()


def test_a_read_that_a_drop_overtakes_leaves_nothing_in_the_page_cache(tmp_path: Path) -> None:
    """Nobody counted what it had brought back, so nobody dropped it."""
    held = HeldReads()
    limits = WalLimits(SIZE, cached_bytes_max=2 * SIZE)
    wal = new_wal(tmp_path, None, limits, background=held)
    wal.write(RING, 0, SIZE)
    got = list[bytes]()
    wal.load(0, SIZE, lambda data: got.append(bytes(data)))
    wal.try_again(0, SIZE, lambda _: None)
    for i in range(1, 4):
        wal.write(RING, i * SIZE, (i + 1) * SIZE)
    segment = wal.segments[0]
    assert not segment.is_cached
    held.run()
    assert got == [bytes(RING[:SIZE])]
    assert read_now(segment.fd, SIZE, 0) is None
    assert segment.pins == 0
    wal.files.close()


def test_lent_segments_are_held_while_there_is_space_and_pinned_ones_always(
    tmp_path: Path,
) -> None:
    wal = new_wal(tmp_path)
    wal.files.bytes_max = 8 * SIZE
    wal.write(RING, 0, SIZE)
    [segment] = wal.segments
    enough = int(LOANS_END_BELOW * wal.files.bytes_max)
    assert not wal.is_held(segment, 8 * SIZE)
    segment.loans = 2
    assert [wal.is_held(segment, left) for left in (8 * SIZE, enough, enough - 1, 0)] == [
        True,
        True,
        False,
        False,
    ]
    segment.pins = 1
    assert wal.is_held(segment, 0)


def test_a_replaced_segment_has_its_old_bytes_and_those_of_the_ring(tmp_path: Path) -> None:
    wal = new_wal(tmp_path)
    wal.write(RING, 0, 1024)
    segment = wal.segments[0]
    inode = segment.path.stat().st_ino
    wal.swap(segment, wal.write_again(segment, memoryview(bytearray(b"r" * SIZE)), 512, 1024))
    assert segment.path.stat().st_ino != inode
    assert bytes(wal.read(0, 1024)) == bytes(RING[:512]) + b"r" * 512


@pytest.mark.parametrize("method", ["create", "read", "write", "sync", "rename"])
def test_a_failed_replacement_leaves_the_old_file(tmp_path: Path, method: str) -> None:
    disk = FailingDisk(OsDisk())
    wal = new_wal(tmp_path, disk)
    wal.write(RING, 0, 1024)
    before = names(tmp_path)
    disk.fail(method, 1)
    with pytest.raises(OSError, match="error"):
        wal.write_again(wal.segments[0], RING, 512, 1024)
    assert names(tmp_path) == before
    assert bytes(wal.read(0, 1024)) == bytes(RING[:1024])


class PlacesOfWrites(FailingDisk):
    """Notes where files are written."""

    def __init__(self, inner: Disk) -> None:
        super().__init__(inner)
        self.places: list[tuple[int, int]] = []

    def write(self, fd: int, data: memoryview, at: int) -> None:
        """See Disk."""
        self.places.append((at, len(data)))
        super().write(fd, data, at)


def test_a_file_that_cannot_be_read_whole_is_written_over_where_it_can(tmp_path: Path) -> None:
    disk, size = PlacesOfWrites(OsDisk()), 4 * PAGE_BYTES
    wal = new_wal(tmp_path, disk, WalLimits(size))
    wal.write(memoryview(bytes(RING[:PAGE_BYTES]) * 4), 0, 3 * PAGE_BYTES + 100)
    segment, before = wal.segments[0], bytes(wal.read(0, 3 * PAGE_BYTES))
    inode = segment.path.stat().st_ino
    disk.bad_places = [(segment.path.name, PAGE_BYTES, PAGE_BYTES + 1)]
    ring, at = memoryview(bytearray(b"r" * size)), 3 * PAGE_BYTES
    with pytest.raises(UnreadableSegment):
        wal.write_again(segment, ring, at, at + 100)
    disk.places.clear()
    disk.fail("sync", 1)  # It tells of what is being made up for.
    assert wal.write_over(segment, ring, at, at + 100) == segment.fd
    assert disk.places == [(0, PAGE_BYTES), (2 * PAGE_BYTES, PAGE_BYTES), (at, 100)]
    assert disk.calls["sync"] == 2
    wal.swap(segment, segment.fd)
    disk.bad_places.clear()
    assert bytes(wal.read(0, at)) == before
    assert bytes(wal.read(at, 100)) == b"r" * 100
    assert segment.path.stat().st_ino == inode
    wal.files.close()


class NeverTells(PlacesOfWrites):
    """Its file system does not read without waiting; `tells` whether it says what is cached."""

    tells = True

    def read_cached(
        self, fd: int, length: int, at: int, out: np.ndarray | None = None
    ) -> np.ndarray | None:
        """See Disk."""
        del fd, length, at, out
        return None

    def cached_pages(self, fd: int, length: int) -> np.ndarray | None:
        """See Disk."""
        return super().cached_pages(fd, length) if self.tells else None


@pytest.mark.parametrize("tells", [True, False], ids=["says what is cached", "says nothing"])
def test_behind_many_bad_pages_what_may_be_cached_is_written_over_too(
    tmp_path: Path, tells: bool
) -> None:
    """It was left as it was, though the page cache may have had the only copy."""
    disk, bad = NeverTells(OsDisk()), 2 * BAD_PAGES_MAX
    disk.tells, size = tells, (bad + 8) * PAGE_BYTES
    wal = new_wal(tmp_path, disk, WalLimits(size))
    wal.write(memoryview(bytes(size)), 0, size)
    segment = wal.segments[0]
    disk.bad_places = [(segment.path.name, 0, bad * PAGE_BYTES)]
    disk.places.clear()
    disk.calls.clear()
    wal.write_over(segment, RING, size, size)
    assert disk.places == [(page * PAGE_BYTES, PAGE_BYTES) for page in range(bad, bad + 8)]
    assert disk.calls["read"] == (BAD_PAGES_MAX if tells else bad) + 8
    wal.files.close()


def test_a_file_that_is_not_written_over_whole_counts_as_that(tmp_path: Path) -> None:
    disk = FailingDisk(OsDisk())
    wal = new_wal(tmp_path, disk)
    wal.write(RING, 0, SIZE)
    disk.fail("sync", 2)
    with pytest.raises(OSError, match="error"):
        wal.write_over(wal.segments[0], RING, SIZE, SIZE)


def test_an_error_that_says_nothing_of_a_page_is_no_failure_of_it(tmp_path: Path) -> None:
    """A shard without a descriptor to open a file with lost records that the disk had."""
    disk = FailingDisk(OsDisk())
    wal = pages_wal(tmp_path, disk)
    tried = list[list[int]]()
    wal.segments[0].is_cached = False
    for method, error, bad in (
        ("read_past_cache", errno.EMFILE, [2, 3, 6]),
        ("read", errno.ENOMEM, []),
    ):
        disk.fail(method, error=error)
        wal.try_again(0, 8 * PAGE_BYTES, lambda bad: tried.append([*bad]))
        assert tried[-1] == bad
    disk.heal()
    wal.try_again(0, 8 * PAGE_BYTES, lambda _: None)
    assert wal.segments[0].bad_pages.failing().tolist() == [2, 3, 6]
    wal.files.close()
