"""A log reads by itself again what the disk could not read, until that is given up or whole."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from shm.kernels.base.words import WORD_WRITTEN
from smq.log import own_tries
from smq.log.files.bad_pages import PATIENCE
from smq.log.files.disk import OsDisk
from smq.log.log import Log
from smq.log.own_tries import (
    LOOK_MS,
    LOOKS_OF_SEGMENT,
    RETRY_MS,
    TRIES_MS,
)
from smq.log.reading import DamagedFrame
from smq.testing.disk import PAGE_BYTES, FailingDisk
from tests.log.files.wals import HeldBackground
from tests.log.logs import memory_of, read, start, wait
from tests.log.test_reading import collected, filled, spans


@pytest.mark.parametrize("every_ms", [RETRY_MS, 5 * RETRY_MS, 3 * PATIENCE.wait_ms])
def test_a_reader_that_asks_rarely_gets_past_a_bad_page(tmp_path: Path, every_ms: int) -> None:
    """Its failures lay too far apart: each counted as the first one."""
    disk = FailingDisk(OsDisk())
    log = start(tmp_path, disk=disk).log
    filled(log, 50)
    disk.bad_places = [(log.wal.segments[1].path.name, 1500, 1501)]
    times = 1 + -(-PATIENCE.wait_ms // every_ms)
    for i in range(times):
        for log.now_ms in range(max(0, i - 1) * every_ms, i * every_ms + 1, RETRY_MS):
            log.tend()
        log.tend()  # This dates what it tried last.
        assert not any("are lost" in each for each in log.notices)
        with pytest.raises(DamagedFrame, match="cannot be read"):
            read(log, 1)
    assert "are lost" in log.notices[-1]
    tries = disk.calls["read"]
    for log.now_ms in range(times * every_ms, times * every_ms + 2 * PATIENCE.wait_ms, RETRY_MS):
        log.tend()
    assert disk.calls["read"] == tries  # Whoever asks will be told.


def test_a_reader_that_comes_back_for_another_short_error_loses_nothing(tmp_path: Path) -> None:
    disk = FailingDisk(OsDisk())
    log = start(tmp_path, disk=disk).log
    values = filled(log, 50)
    bad = [(log.wal.segments[1].path.name, 1500, 1501)]
    for now_ms in (0, PATIENCE.wait_ms - 1):
        log.now_ms = now_ms
        disk.bad_places = bad
        with pytest.raises(DamagedFrame, match="cannot be read"):
            read(log, 1)
        disk.bad_places = []
        log.now_ms = now_ms + RETRY_MS
        log.tend()
    log.now_ms = 3 * PATIENCE.wait_ms
    assert read(log, 1) == values


@pytest.mark.parametrize("has_failed_before", [False, True])
def test_while_the_process_stands_still_no_page_is_waited_for(
    tmp_path: Path, has_failed_before: bool
) -> None:
    """A failure just after it was dated by the clock of before: the page was lost after 6 s."""
    disk = FailingDisk(OsDisk())
    log = start(tmp_path, disk=disk).log
    values = filled(log, 50)
    log.now_ms = 0
    log.tend()
    disk.bad_places = [(log.wal.segments[1].path.name, 1500, 1501)]
    if has_failed_before:
        with pytest.raises(DamagedFrame, match="cannot be read"):
            read(log, 1)
        log.tend()
    with pytest.raises(DamagedFrame, match="cannot be read"):
        read(log, 1)
    woken_ms = 10 * PATIENCE.wait_ms
    for log.now_ms in range(woken_ms, woken_ms + PATIENCE.wait_ms - RETRY_MS, LOOK_MS):
        log.tend()
        with pytest.raises(DamagedFrame, match="cannot be read"):
            read(log, 1)
    disk.bad_places = []
    wait(log, RETRY_MS)
    assert read(log, 1) == values


def test_many_bad_pages_are_tried_in_turns_and_a_stop_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_tries, "TRIES_MAX", 16)
    disk = FailingDisk(OsDisk())
    log = start(tmp_path, disk=disk).log
    filled(log, 90)
    log.now_ms = 0
    for segment in log.wal.segments:
        segment.bad_pages.note(0, 0, [0])
    count = len(log.wal.segments)
    assert 16 < count < 32
    before = disk.calls.get("read", 0)
    log.tend()
    assert disk.calls["read"] == before + 16
    log.tend()
    assert disk.calls["read"] == before + 16
    log.now_ms += RETRY_MS
    log.tend()
    assert disk.calls["read"] == before + count
    log.own_tries.stop()


def test_of_many_bad_segments_some_are_tried_with_each_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_tries, "LOOKS_MAX", 5 * LOOKS_OF_SEGMENT)
    log = start(tmp_path).log
    filled(log, 90)
    for segment in log.wal.segments:
        segment.bad_pages.note(0, 0, [0])
    left = [len(log.wal.segments)]
    for log.now_ms in range(0, 100 * RETRY_MS, RETRY_MS):
        log.tend()
        left.append(sum(len(segment.bad_pages.failing()) for segment in log.wal.segments))
        assert left[-2] - left[-1] <= 5
    assert left[-1] == 0


def test_a_segment_with_few_bad_pages_does_not_wait_for_those_with_very_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To choose the pages took 2 ms for each of these: of sixteen dead segments 36 in one turn."""
    monkeypatch.setattr(own_tries, "LOOKS_MAX", 2 * LOOKS_OF_SEGMENT + 5)
    log = start(tmp_path, segment_bytes=4 * PAGE_BYTES).log
    filled(log, 400, size=100)
    few, *many = log.wal.segments[:6]
    few.bad_pages.note(0, 0, [0])
    for segment in many:
        segment.bad_pages.note(0, 0, range(4))
    tried = set[int]()

    def try_again(position: int, _: int, done: Callable[[Sequence[int]], None]) -> None:
        tried.add(position)
        done(())

    monkeypatch.setattr(log.wal, "try_again", try_again)
    rounds = []
    for log.now_ms in range(0, 5 * RETRY_MS, RETRY_MS):
        log.tend()
        rounds.append(tried.copy())
        tried.clear()
    assert rounds == [{few.start, segment.start} for segment in many]


def test_no_try_begins_after_a_round_has_lasted_long(tmp_path: Path) -> None:
    held = HeldBackground()
    log = start(tmp_path, background=held).log
    filled(log, 90)
    held.wait()
    for segment in log.wal.segments:
        segment.bad_pages.note(0, 0, [0])
    log.now_ms = 0
    log.own_tries.tend()
    assert len(held.jobs) == 1
    log.now_ms = TRIES_MS + 1
    held.wait()
    failing = sum(len(segment.bad_pages.failing()) for segment in log.wal.segments)
    assert failing == len(log.wal.segments) - 1
    log.now_ms += RETRY_MS - 1
    log.own_tries.tend()
    assert not held.jobs
    log.now_ms += 1
    log.own_tries.tend()
    assert held.jobs
    log.own_tries.stop()
    held.wait()


def test_of_a_dead_segment_each_page_has_failed_for_a_minute_soon_after_the_first(
    tmp_path: Path,
) -> None:
    """A minute passed for each megabyte, one after another."""
    disk, pages = FailingDisk(OsDisk()), 1024
    memory = memory_of(64 * PAGE_BYTES, pages * PAGE_BYTES)
    log = start(tmp_path, disk=disk, memory=memory, segment_bytes=pages * PAGE_BYTES).log
    filled(log, pages * PAGE_BYTES // 30_000 + 10, size=30_000)
    segment, places = log.wal.segments[0], spans(log)
    disk.bad_places = [(segment.path.name, 0, pages * PAGE_BYTES)]
    log.now_ms = 0
    log.tend()
    assert isinstance(collected(log, spans(log)), DamagedFrame)
    assert 0 < len(segment.bad_pages.failing()) < pages
    while segment.bad_pages.to_try(pages, pages, pages):
        log.now_ms += RETRY_MS
        log.tend()
    assert len(segment.bad_pages.failing()) == pages
    assert log.now_ms < 1.5 * PATIENCE.wait_ms
    tries = disk.calls["read"]
    assert collected(log, spans(log)) == b""
    assert log.lookup.behind_damage(1, 0) == np.searchsorted(places[:, 0], segment.end)
    assert sum("are lost" in each for each in log.notices) == 1
    # All of it is tried once more, for all who would read it.
    assert disk.calls["read"] == tries + pages
    assert collected(log, spans(log, offset=log.lookup.behind_damage(1, 0)))


def loaded(log: Log, places: np.ndarray) -> bytes:
    """The first batches, read from the disk."""
    run, got = log.first_run(places), list[np.ndarray]()
    log.load(run, got.append)
    return bytes(log.batches_of(run, got[0]))


def test_a_frame_is_not_lost_if_the_disk_has_healed_since_its_pages_were_last_tried(
    tmp_path: Path,
) -> None:
    """Who came within ten seconds of the last try lost it, and nobody asked the disk."""
    disk = FailingDisk(OsDisk())
    log = start(tmp_path, disk=disk).log
    values = filled(log, 50)
    segment = log.wal.segments[1]
    disk.bad_places = [(segment.path.name, 1500, 1501)]
    log.now_ms = 0
    log.tend()
    with pytest.raises(DamagedFrame, match="cannot be read"):
        read(log, 1)
    while segment.bad_pages.open_max:
        log.now_ms += RETRY_MS
        log.tend()
    disk.bad_places = []
    log.now_ms += 1000
    places = spans(log)
    bad = places[places.sum(axis=1) > segment.start + 1500]
    with pytest.raises(DamagedFrame, match="cannot be read"):
        loaded(log, bad)
    assert loaded(log, bad)
    assert read(log, 1) == values


def test_only_a_page_that_failed_for_long_and_fails_once_more_loses_a_frame(
    tmp_path: Path,
) -> None:
    """Of a frame with two such pages one has healed."""
    disk = FailingDisk(OsDisk())
    memory = memory_of(32 * PAGE_BYTES, 8 * PAGE_BYTES)
    log = start(tmp_path, disk=disk, memory=memory, segment_bytes=8 * PAGE_BYTES).log
    filled(log, 20, size=3 * PAGE_BYTES)
    segment = log.wal.segments[1]  # The value of the first record is zeros.
    pages = [(segment.path.name, at * PAGE_BYTES, at * PAGE_BYTES + 1) for at in (1, 2)]
    disk.bad_places = pages
    log.now_ms = 0
    log.tend()
    for log.now_ms in range(0, 2 * PATIENCE.wait_ms, RETRY_MS):
        log.tend()
        if log.now_ms <= RETRY_MS:
            collected(log, spans(log))
    assert segment.bad_pages.failing().tolist() == [1, 2]
    assert log.lookup.behind_damage(1, 2) == 2
    disk.bad_places = pages[1:]
    with pytest.raises(DamagedFrame, match="cannot be read"):
        loaded(log, spans(log)[2:3])
    assert segment.bad_pages.failing().tolist() == [2]
    assert log.lookup.behind_damage(1, 2) == 3


def test_a_batch_with_many_bad_pages_is_given_up_though_somebody_reads_it_all_the_time(
    tmp_path: Path,
) -> None:
    """What a reader had not come to was set back with each of its reads."""
    disk = SlowlyFailingDisk(OsDisk())
    memory = memory_of(128 * PAGE_BYTES, 64 * PAGE_BYTES)
    log = start(tmp_path, disk=disk, memory=memory, segment_bytes=64 * PAGE_BYTES).log
    filled(log, 10, size=40 * PAGE_BYTES)
    disk.log, log.now_ms = log, 0
    disk.bad_places = [(log.wal.segments[1].path.name, PAGE_BYTES, 40 * PAGE_BYTES)]
    while log.lookup.behind_damage(1, 1) == 1:
        assert log.now_ms < 20 * PATIENCE.wait_ms
        log.now_ms += 1000
        log.tend()
        with suppress(DamagedFrame):
            loaded(log, spans(log)[1:2])


class SlowlyFailingDisk(FailingDisk):
    """Each failure takes a second of the log's time."""

    log: Log | None = None

    def read(self, fd: int, length: int, at: int) -> np.ndarray:
        try:
            return super().read(fd, length, at)
        except OSError:
            if self.log is not None and self.log.now_ms is not None:
                self.log.now_ms += 1000
            raise


def test_a_log_tries_nothing_behind_what_it_has_written(tmp_path: Path) -> None:
    disk = FailingDisk(OsDisk())
    log = start(tmp_path, disk=disk, segment_bytes=16 * PAGE_BYTES).log
    filled(log, 10)
    [segment] = log.wal.segments
    last = log.words[WORD_WRITTEN] // PAGE_BYTES
    segment.bad_pages.note(0, 0, [last, last + 1, 12])
    log.now_ms, before = 0, disk.calls.get("read", 0)
    log.tend()
    assert segment.bad_pages.failing().tolist() == [last + 1, 12]
    assert disk.calls["read"] == before + 1


def test_a_frame_whose_pages_have_not_failed_for_long_is_not_lost(tmp_path: Path) -> None:
    """It had, while space was short."""
    disk = FailingDisk(OsDisk())
    log = start(tmp_path, disk=disk).log
    filled(log, 50)
    segment = log.wal.segments[0]
    disk.bad_places = [(segment.path.name, 0, 1)]
    segment.bad_pages.note(0, 0, [0])
    for log.now_ms in range(0, PATIENCE.wait_ms + 2 * RETRY_MS, RETRY_MS):
        log.own_tries.ask(segment, 0)
        log.own_tries.tend()
        assert (log.lookup.behind_damage(1, 0) > 0) is (log.now_ms >= PATIENCE.wait_ms)
    assert "are lost" in log.notices[-1]
