"""Records by time inside batches: from ring and WAL, compressed, damaged, lying, far too large."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smq.log import record_search
from smq.log.files.background import InlineBackground, JobLane
from smq.log.files.bad_pages import PATIENCE
from smq.log.files.disk import OsDisk
from smq.log.log import Log
from smq.log.own_tries import RETRY_MS
from smq.log.reading import DamagedFrame, WalRange
from smq.log.record_search import search_batch
from smq.log.times import BatchPlace, first_batch_at
from smq.testing.disk import FailingDisk
from smq.wire.batch_search import Searched, WantedRecord
from smq.wire.compression import Codec
from tests.log.files.wals import HeldBackground
from tests.log.logs import SEGMENT_BYTES, append, start, turn
from tests.wire.test_batch_search import batch_at

MiB = 1024 * 1024
TIMES = [5, 3, 9, 9, 20, 1]
ALL = 2**40
codecs = pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.name)


def searched_in(log: Log, timestamp: int) -> Searched | DamagedFrame:
    """What a search in a log's first batch of that time gives."""
    place = first_batch_at(log, 1, 0, ALL, timestamp)
    assert isinstance(place, BatchPlace)
    results: list[Searched | DamagedFrame] = []
    search_batch(log, place, WantedRecord(timestamp, 0, ALL), MiB, results.append)
    log.background.wait()
    [result] = results
    return result


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """Forty batches of a record each, of which the ring has the last ones; offset i has time i."""
    log = start(tmp_path).log
    for i in range(40):
        append(log, 1, batch_at(i, offset=0, size=600))
        turn(log)
    return log


def test_batches_in_ring_and_wal_are_searched_alike(log: Log) -> None:
    assert not log.in_ring(0)
    for i in (0, 3, 38, 39):
        assert searched_in(log, i) == Searched((i, i), i + 1, 2 * 670 - 61)
    assert all(segment.pins == 0 for segment in log.wal.segments)


def test_a_large_batch_is_read_from_the_wal_and_not_copied_in_the_loop(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_search, "COPIED_BYTES_MAX", 10)
    loaded: list[int] = []
    load = log.load

    def counted(run: WalRange, done: Callable[[np.ndarray], None]) -> None:
        loaded.append(1)
        load(run, done)

    monkeypatch.setattr(log, "load", counted)
    found = searched_in(log, 39)
    assert isinstance(found, Searched)
    assert (found.found, loaded) == ((39, 39), [1])


def test_a_damaged_batch_says_so_and_is_passed_over_then(log: Log) -> None:
    place = first_batch_at(log, 1, 0, ALL, 2)
    assert place is not None
    segment = log.wal.find(place.position)
    assert segment is not None
    with segment.path.open("r+b") as file:
        file.seek(place.position - segment.start + 5)
        file.write(b"xx")
    assert isinstance(searched_in(log, 2), DamagedFrame)
    found = searched_in(log, 2)
    assert isinstance(found, Searched)
    assert found.found == (3, 3)


def test_pages_that_fail_are_not_tried_for_each_search(tmp_path: Path) -> None:
    """Each request paid the failure of the disk, in the lane of all reads."""
    disk = FailingDisk(OsDisk())
    log = start(tmp_path, disk=disk).log
    for i in range(40):
        append(log, 1, batch_at(i, offset=0, size=600))
        turn(log)
    log.now_ms = 0
    log.tend()
    segment = log.wal.segments[0]
    disk.bad_places = [(segment.path.name, 0, SEGMENT_BYTES)]
    assert isinstance(searched_in(log, 0), DamagedFrame)
    before = disk.calls["read"]
    for _ in range(10):
        assert isinstance(searched_in(log, 0), DamagedFrame)
    assert disk.calls["read"] == before
    found = searched_in(log, 10)
    assert isinstance(found, Searched)
    assert found.found == (10, 10)
    disk.bad_places.clear()
    log.now_ms += RETRY_MS
    log.tend()
    healed = searched_in(log, 0)
    assert isinstance(healed, Searched)
    assert healed.found == (0, 0)


class HeldSearches(InlineBackground):
    """Holds the jobs of the lane of searches."""

    def __init__(self) -> None:
        self.jobs: list[Callable[[], None]] = []

    def submit(self, lane: JobLane, job: Callable[[], Any], done: Callable[[Any], None]) -> None:
        run = partial(super().submit, lane, job, done)
        if lane is JobLane.SEARCHES:
            self.jobs.append(run)
        else:
            run()


def test_a_page_that_has_healed_since_it_was_loaded_is_not_damage(tmp_path: Path) -> None:
    """The zeros of then were judged by what was known of the page now: a record was dropped."""
    disk, held = FailingDisk(OsDisk()), HeldSearches()
    log = start(tmp_path, disk=disk, background=held).log
    for i in range(40):
        append(log, 1, batch_at(i, offset=0, size=600))
        turn(log)
    log.now_ms = 0
    log.tend()
    place, results = first_batch_at(log, 1, 0, ALL, 2), list[Searched | DamagedFrame]()
    assert place is not None
    disk.bad_places = [(log.wal.segments[0].path.name, 0, SEGMENT_BYTES)]
    search_batch(log, place, WantedRecord(2, 0, ALL), MiB, results.append)
    disk.bad_places.clear()
    for log.now_ms in range(0, 2 * PATIENCE.wait_ms, RETRY_MS):
        log.tend()
    while held.jobs:
        held.jobs.pop()()
    assert not log.lookup.has_damage_from(1, 0)
    [found] = results
    assert isinstance(found, Searched)
    assert found.found == (2, 2)


def test_a_search_that_is_refused_goes_on_in_another_turn(tmp_path: Path) -> None:
    held = HeldBackground()
    log = start(tmp_path, background=held).log
    for i in range(40):
        append(log, 1, batch_at(i, offset=0, size=600))
        turn(log)
    held.wait()
    segment = log.wal.segments[0]
    segment.bad_pages.note(0, 0, [0])
    segment.bad_tried_ms = log.bad_tried_ms = log.now_ms = 0
    place, results = first_batch_at(log, 1, 0, ALL, 0), list[Searched | DamagedFrame]()
    assert place is not None
    search_batch(log, place, WantedRecord(0, 0, ALL), MiB, results.append)
    assert not results
    held.wait()
    assert isinstance(results[0], DamagedFrame)
