"""What becomes of the frames that are given up: their bytes, and what is known of their offsets."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from shm.kernels.base.words import FRAME_HEADER_BYTES, P_OPEN_FROM, WORD_RING_START
from smq.log import given_up
from smq.log.files.bad_pages import PATIENCE
from smq.log.files.disk import OsDisk
from smq.log.files.segment_files import QUARANTINE
from smq.log.log import Log
from smq.log.own_tries import RETRY_MS
from smq.log.reading import DamagedFrame
from smq.testing.disk import PAGE_BYTES, FailingDisk
from tests.log.logs import OS, append, batch, memory_of, read, start, turn
from tests.log.test_reading import collected, filled, flip, spans


def give_up(log: Log, position: int) -> None:
    """Ask for the batches from a position on until those that cannot be read have been given up."""
    for log.now_ms in range(0, 2 * PATIENCE.wait_ms, RETRY_MS):
        log.tend()
        places = spans(log)
        collected(log, places[places.sum(axis=1) > position])


def test_of_what_is_given_up_only_what_could_be_read_is_set_aside(tmp_path: Path) -> None:
    """A file for each frame of a few bytes took 26 times the space of the bad pages."""
    disk = FailingDisk(OsDisk())
    log = start(tmp_path, disk=disk, segment_bytes=4 * PAGE_BYTES).log
    values, places = filled(log, 500, size=40), spans(log)
    segment = log.wal.segments[1]
    bad = segment.start + PAGE_BYTES
    disk.bad_places = [(segment.path.name, PAGE_BYTES, 3 * PAGE_BYTES)]
    give_up(log, bad)
    starts, ends = places[:, 0] - FRAME_HEADER_BYTES, places.sum(axis=1)
    is_lost = (ends > bad) & (starts < bad + 2 * PAGE_BYTES)
    kept = read(log, 1)
    assert kept.keys() == values.keys() - {*np.flatnonzero(is_lost).tolist()}
    has_rest = is_lost & ((starts < bad) | (ends > bad + 2 * PAGE_BYTES))
    names = sorted(path.name for path in (tmp_path / QUARANTINE).iterdir())
    assert names == [f"{position:020d}.frame" for position in starts[has_rest].tolist()]
    assert len(names) == 1
    first, last = np.flatnonzero(is_lost)[[0, -1]]
    [told] = [each for each in log.notices if "are lost" in each]
    assert f"cannot be read: offsets {first} to {last} of partition 1 are lost" in told


def test_lost_offsets_are_forgotten_with_their_segment_unless_a_transaction_is_open(
    tmp_path: Path,
) -> None:
    log = start(tmp_path).log
    filled(log, 60)
    for i, (offset, is_open) in enumerate(((2, False), (35, True), (40, False))):
        log.partitions.table[log.partitions.slots[1], P_OPEN_FROM] = is_open
        flip(log, int(spans(log, offset=offset)[0, 0]) + 70)
        with pytest.raises(DamagedFrame):
            read(log, 1, offset)
        assert log.lookup.has_damage_from(1, offset)
        assert (log.lookup.behind_damage(1, 2) == 3) is (i < 2)
        log.sealing.advance(1, 30, 1)
        log.checkpoint()
    assert log.lookup.behind_damage(1, 35) == 36


FRAMES_PAGES = 8  # Of a segment.


def dead(tmp_path: Path, bad: range, numbers: tuple[int, ...] = (1,), size: int = 40) -> Log:
    """A log that cannot read these pages of its second segment."""
    disk = FailingDisk(OsDisk())
    memory = memory_of(64 * PAGE_BYTES, FRAMES_PAGES * PAGE_BYTES)
    levels = dict.fromkeys(numbers, OS)
    bytes_ = FRAMES_PAGES * PAGE_BYTES
    log = start(tmp_path, disk=disk, memory=memory, segment_bytes=bytes_, levels=levels).log
    while len(log.wal.segments) < 4:
        for number in numbers:
            append(log, number, batch(bytes(size)))
        assert turn(log)
    log.words[WORD_RING_START] = log.tail
    segment = log.wal.segments[1]
    segment.bad_pages.note(0, 0, bad)
    log.now_ms = 0
    return log


def lose(log: Log, bad: range) -> None:
    """Pages of the second segment have failed for long, and once more."""
    segment = log.wal.segments[1]
    for log.now_ms in range(0, 2 * PATIENCE.wait_ms, RETRY_MS):
        segment.bad_pages.note(0, 0, bad)
        segment.bad_pages.date(log.now_ms)
    frames = log.given_up.frames_in(segment, range(FRAMES_PAGES))()
    log.given_up.lose(segment, frames, list(bad))
    log.given_up.tell()


def places(log: Log, number: int, size: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """The first page of each batch of a partition, and the one behind the last, of the second
    segment."""
    found = spans(log, number) - (log.wal.segments[1].start, 0)
    return (found[:, 0] - FRAME_HEADER_BYTES) // PAGE_BYTES, -(-found.sum(axis=1) // PAGE_BYTES)


def lost_of(log: Log, number: int, count: int) -> list[int]:
    return [i for i in range(count) if log.lookup.behind_damage(number, i) != i]


@pytest.mark.parametrize("is_filed", [True, False])
def test_all_that_has_a_part_in_the_failed_pages_is_lost_at_once_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_filed: bool
) -> None:
    bad, numbers = range(2, 5), (1, 2, 3)
    log = dead(tmp_path, bad, numbers)
    where = {number: places(log, number) for number in numbers}
    if not is_filed:
        monkeypatch.setattr(log.wal.segments[1], "index", None)
    lose(log, bad)
    for number, (first, end) in where.items():
        expected = np.flatnonzero((first < bad.stop) & (end > bad.start)).tolist()
        assert len(expected) > 10
        assert lost_of(log, number, len(first)) == expected
    told = [each for each in log.notices if "are lost" in each]
    assert len(told) == len(numbers)
    log.invariants()


def test_a_frame_with_a_page_that_has_not_failed_for_long_is_kept_and_so_is_what_the_ring_has(
    tmp_path: Path,
) -> None:
    size = 3 * PAGE_BYTES
    log = dead(tmp_path, range(3), size=size)
    segment = log.wal.segments[1]
    (first, end), fresh = places(log, 1), [FRAMES_PAGES - 1]
    frames = log.given_up.frames_in(segment, range(FRAMES_PAGES))()
    for log.now_ms in range(0, PATIENCE.wait_ms + 1, RETRY_MS):
        segment.bad_pages.note(0, 0, range(FRAMES_PAGES - 1))
        segment.bad_pages.date(log.now_ms)
    segment.bad_pages.note(0, 0, fresh)
    log.words[WORD_RING_START] = int(frames["position"][1]) + FRAME_HEADER_BYTES
    log.given_up.lose(segment, frames, list(range(FRAMES_PAGES)))
    [lost] = lost_of(log, 1, len(first))
    assert first[lost] <= 0 < end[lost]
    log.words[WORD_RING_START] = log.tail
    log.given_up.lose(segment, frames, list(range(FRAMES_PAGES)))
    expected = np.flatnonzero((first < FRAMES_PAGES - 1) & (end > 0) & (end < FRAMES_PAGES))
    assert lost_of(log, 1, len(first)) == expected.tolist()


def test_readers_of_lost_offsets_that_are_sealed_are_sent_to_the_segments(
    tmp_path: Path,
) -> None:
    """They passed over records that a sealed segment had."""
    log = dead(tmp_path, range(FRAMES_PAGES))
    first, end = places(log, 1)
    mine = np.flatnonzero((first < FRAMES_PAGES) & (end > 0))
    sealed = int(mine[len(mine) // 2])
    log.sealing.advance(1, sealed, 1)
    lose(log, range(FRAMES_PAGES))
    assert lost_of(log, 1, len(first)) == mine.tolist()
    [told] = [each for each in log.notices if "are lost" in each]
    assert f"offsets {sealed} to {mine[-1]} of" in told
    assert log.find(1, int(mine[0]), len(first), 1 << 20) is None
    found = log.find(1, sealed, len(first), 1 << 20)
    assert found is not None
    assert len(found.spans) == len(first) - 1 - mine[-1]


def test_a_partition_that_is_gone_loses_nothing(tmp_path: Path) -> None:
    log = dead(tmp_path, range(FRAMES_PAGES), (1, 2))
    log.drop_partitions([2])
    lose(log, range(FRAMES_PAGES))
    assert not log.lookup.has_damage_from(2, 0)
    assert all("partition 1 " in each for each in log.notices if "are lost" in each)


def test_notices_of_many_partitions_that_lose_something_come_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(given_up, "NOTICES_MAX", 2)
    numbers = tuple(range(1, 6))
    log = dead(tmp_path, range(FRAMES_PAGES), numbers, size=1000)
    lose(log, range(FRAMES_PAGES))
    told = list[str]()
    while log.notices:
        assert len(log.notices) <= 2
        told += log.notices
        log.notices.clear()
        log.own_tries.tend()
    assert len(told) == len(numbers)
    for number in numbers:
        assert any(f"partition {number} are lost" in each for each in told)


@pytest.mark.parametrize("error", [errno.ESTALE, errno.ENODEV, errno.EBADE])
def test_an_error_that_says_nothing_of_the_bytes_gives_up_none_and_the_operator_hears_of_it(
    tmp_path: Path, error: int
) -> None:
    """It said that they were given up after a minute, and waited for ever."""
    disk = FailingDisk(OsDisk())
    log = start(tmp_path, disk=disk).log
    values = filled(log, 50)
    disk.fail("read", error=error)
    log.wal.segments[0].is_cached = False
    disk.fail("read_cached", error=error)
    disk.fail("read_past_cache", error=error)
    log.own_tries.tend()
    told = list[str]()
    for log.now_ms in range(0, 10 * PATIENCE.wait_ms, RETRY_MS):
        log.tend()
        collected(log, spans(log))
        told += log.notices
        log.notices.clear()
    assert len(told) > 1
    assert all(os.strerror(error) in each and "start the broker again" in each for each in told)
    assert not log.lookup.has_damage_from(1, 0)
    disk.heal()
    log.now_ms = 11 * PATIENCE.wait_ms
    log.tend()
    log.notices.clear()
    log.tend()
    assert not log.notices
    assert read(log, 1) == values
