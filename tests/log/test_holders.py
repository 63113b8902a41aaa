"""Each seal asks which full segments are needed; each partition is examined once."""

from pathlib import Path

import pytest

from smq.log import holders as module
from smq.log.files.segment import WalSegment
from smq.log.log import Log
from smq.log.lookup import IndexedBatch
from tests.log.logs import NOW_MS, OS, append, batch, fill, memory_of, start, turn

COUNT = 1000
SEGMENT_BYTES = 1 << 18


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """One whose first segment has a record of each partition, and that is sealed nowhere."""
    memory = memory_of(1 << 20, SEGMENT_BYTES, 2000)
    levels = dict.fromkeys(range(1, COUNT + 1), OS)
    log = start(tmp_path, memory=memory, segment_bytes=SEGMENT_BYTES, levels=levels).log
    for number in levels:
        append(log, number, batch(b"v"))
    while len(log.wal.segments) < 2:
        append(log, 1, batch(b"w" * 10_000))
        turn(log)
    return log


def first(log: Log) -> WalSegment:
    return log.wal.segments[0]


def end_of(log: Log, number: int) -> int:
    index = first(log).index
    assert index is not None
    return int(index.ends[number])


def test_sealing_every_partition_looks_at_each_once_or_twice(log: Log) -> None:
    segment, looks = first(log), 0
    for number in range(1, COUNT + 1):
        assert log.wal.segments[0] is segment
        assert log.freeing.freeable() == []
        looks += log.freeing.holders.looks
        log.sealing.advance(number, end_of(log, number), NOW_MS)
        log.invariants()
    assert log.freeing.freeable() == [segment]
    assert looks + log.freeing.holders.looks <= 2 * COUNT + 1
    log.checkpoint()
    assert log.wal.segments[0] is not segment


@pytest.mark.parametrize("how", ["sealed", "gone", "retained"])
def test_the_last_that_needs_it_decides(log: Log, how: str) -> None:
    segment = first(log)
    for number in range(1, COUNT):
        log.sealing.advance(number, end_of(log, number), NOW_MS)
    assert log.freeing.freeable() == []
    if how == "sealed":
        log.sealing.advance(COUNT, 1, NOW_MS)
    elif how == "gone":
        log.drop_partitions([COUNT])
    else:
        log.sealing.set_log_start(COUNT, 1)
    assert log.freeing.freeable() == [segment]


def test_a_partition_needs_nothing_that_it_lost(log: Log) -> None:
    segment, end = first(log), end_of(log, 1)
    for number in range(2, COUNT + 1):
        log.sealing.advance(number, end_of(log, number), NOW_MS)
    for base in range(1, end):
        log.lookup.lose(IndexedBatch(1, base, base + 1))
        assert log.freeing.freeable() == []
        log.invariants()
    log.sealing.advance(1, 1, NOW_MS)
    assert log.freeing.freeable() == [segment]


def test_a_partition_holds_no_segment_by_what_it_lost_behind_a_gap(tmp_path: Path) -> None:
    """No segment has what a start found damaged, and no look-up knows it as lost."""
    log = start(tmp_path).log
    log.partitions.extend(1, 10)
    fill(log, count=40)
    segment, end = first(log), end_of(log, 1)
    for base in range(10, end):
        assert log.freeing.freeable() == []
        log.lookup.lose(IndexedBatch(1, base, base + 1))
    assert log.freeing.freeable() == [segment]
    log.checkpoint()
    log.invariants()


def test_no_step_looks_at_more_than_its_share(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    segment = first(log)
    for number in range(1, COUNT + 1):
        log.sealing.advance(number, end_of(log, number), NOW_MS)
    monkeypatch.setattr(module, "LOOKS_MAX", 300)
    for _ in range(3):
        assert log.freeing.freeable() == []
        assert log.freeing.holders.looks == 300
    assert log.freeing.freeable() == [segment]


def test_a_freed_segment_is_no_longer_found(log: Log) -> None:
    segment = first(log)
    index = segment.index
    assert log.lookup.filed_of(7) == [(0, segment)]
    assert log.filed_indexes(7) == [index]
    for number in range(1, COUNT + 1):
        log.sealing.advance(number, end_of(log, number), NOW_MS)
    log.checkpoint()
    assert log.lookup.filed_of(7) == []
    assert log.filed_indexes(7) == []
    assert log.lookup.place_of(7, 0) is None
    log.invariants()
