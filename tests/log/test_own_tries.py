"""A log reads by itself again what the disk could not read, until that is given up or whole."""

from collections.abc import Callable
from pathlib import Path

import pytest

from smq.log import reading
from smq.log.files.bad_pages import PATIENCE
from smq.log.files.disk import OsDisk
from smq.log.files.salvage import READ_FAILURES_MAX
from smq.log.reading import LOOKS_OF_SEGMENT, RETRY_MS, RUN_BYTES_MAX, TRIES_MS, DamagedFrame
from smq.testing.disk import PAGE_BYTES, FailingDisk
from tests.log.files.wals import HeldBackground
from tests.log.logs import high_watermark, memory_of, read, start
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
        for log.now_ms in range(max(0, i - 1) * every_ms, i * every_ms, RETRY_MS):
            log.tend()
        log.now_ms = i * every_ms
        with pytest.raises(DamagedFrame, match="lost" if i == times - 1 else "cannot be read"):
            read(log, 1)
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


def test_many_bad_pages_are_tried_in_turns_and_a_stop_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "TRIES_MAX", 16)
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
    log.stop_trying()


def test_of_many_bad_segments_some_are_tried_with_each_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "LOOKS_MAX", 5 * LOOKS_OF_SEGMENT)
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
    monkeypatch.setattr(reading, "LOOKS_MAX", 2 * LOOKS_OF_SEGMENT + 5)
    log = start(tmp_path, segment_bytes=4 * PAGE_BYTES).log
    filled(log, 400, size=100)
    few, *many = log.wal.segments[:6]
    few.bad_pages.note(0, 0, [0])
    for segment in many:
        segment.bad_pages.note(0, 0, range(4))
    tried = set[int]()

    def try_again(position: int, _: int, done: Callable[[], None]) -> None:
        tried.add(position)
        done()

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
    log.try_bad_pages()
    assert len(held.jobs) == 1
    log.now_ms = TRIES_MS + 1
    held.wait()
    failing = sum(len(segment.bad_pages.failing()) for segment in log.wal.segments)
    assert failing == len(log.wal.segments) - 1
    log.now_ms += RETRY_MS - 1
    log.try_bad_pages()
    assert not held.jobs
    log.now_ms += 1
    log.try_bad_pages()
    assert held.jobs
    log.stop_trying()
    held.wait()


def test_of_a_dead_segment_each_page_has_failed_for_a_minute_soon_after_the_first(
    tmp_path: Path,
) -> None:
    """A minute passed for each megabyte, one after another."""
    disk, pages = FailingDisk(OsDisk()), 1024
    memory = memory_of(64 * PAGE_BYTES, pages * PAGE_BYTES)
    log = start(tmp_path, disk=disk, memory=memory, segment_bytes=pages * PAGE_BYTES).log
    filled(log, pages * PAGE_BYTES // 30_000 + 10, size=30_000)
    segment = log.wal.segments[0]
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
    tries, end = disk.calls["read"], high_watermark(log, 1)
    for _ in range(2 * pages * PAGE_BYTES // RUN_BYTES_MAX):  # Each attempt gives up a run.
        found = log.find(1, 0, end, 1 << 30)
        assert found is not None
        if found.spans[0, 0] >= segment.end:
            break
        assert isinstance(collected(log, found.spans), DamagedFrame)
    else:
        raise AssertionError("some of it is never given up")
    # Nobody waits for the disk any more, but who comes late to those that failed first.
    assert disk.calls["read"] <= tries + 1 + READ_FAILURES_MAX
