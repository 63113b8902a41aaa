"""A log reads by itself again what the disk could not read, until that is given up or whole."""

from pathlib import Path

import pytest

from smq.log.files.bad_pages import PATIENCE
from smq.log.files.disk import OsDisk
from smq.log.reading import RETRY_MS, TRIES_MAX, DamagedFrame
from smq.testing.disk import FailingDisk
from tests.log.logs import read, start
from tests.log.test_reading import filled


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


def test_many_bad_pages_are_tried_a_few_at_once_and_a_stop_ends_it(tmp_path: Path) -> None:
    disk = FailingDisk(OsDisk())
    log = start(tmp_path, disk=disk).log
    filled(log, 90)
    log.now_ms = 0
    for segment in log.wal.segments:
        segment.bad_pages.note(0, 0, [0])
    assert len(log.wal.segments) > TRIES_MAX
    before = disk.calls.get("read", 0)
    log.tend()
    assert disk.calls["read"] == before + TRIES_MAX
    log.tend()
    assert disk.calls["read"] == before + TRIES_MAX
    log.now_ms += RETRY_MS
    log.tend()
    assert disk.calls["read"] == before + len(log.wal.segments)
    log.stop_trying()
