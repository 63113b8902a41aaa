"""Offsets by time."""

from pathlib import Path

import pytest

from smq.log.log import Log
from smq.log.reading import DamagedFrame
from smq.log.times import first_batch_at
from smq.wire.records import Record, read_batches, write_batch
from tests.log.logs import append, high_watermark, read_batch, start, turn


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """Forty batches of one record; offset i has time 100 * i, but 17 lies in the past."""
    log = start(tmp_path).log
    for i in range(40):
        time = 5 if i == 17 else 100 * i
        append(log, 1, bytes(write_batch([Record(0, time, None, bytes(600), ())])))
        turn(log)
    return log


def offset_at(log: Log, timestamp: int, offset: int = 0, limit: int = 40) -> int | None:
    place = first_batch_at(log, 1, offset, limit, timestamp)
    if place is None:
        return None
    return next(iter(read_batches(bytes(read_batch(log, *place))))).base_offset


@pytest.mark.parametrize(
    ("timestamp", "offset"), [(0, 0), (1, 1), (100, 1), (1650, 18), (1700, 18), (3900, 39)]
)
def test_the_first_batch_that_reaches_a_time(log: Log, timestamp: int, offset: int) -> None:
    assert high_watermark(log, 1) == 40
    assert offset_at(log, timestamp) == offset


def test_nothing_reaches_a_time_beyond_all_or_outside_of_the_range(log: Log) -> None:
    assert offset_at(log, 4000) is None
    assert offset_at(log, 2000, limit=20) is None
    assert offset_at(log, 0, offset=30) == 30
    assert offset_at(log, 0, offset=39) == 39
    assert offset_at(log, 0, offset=40, limit=41) is None


def test_a_damaged_batch_is_passed_over(log: Log) -> None:
    place = first_batch_at(log, 1, 2, 40, 0)
    assert place is not None
    segment = log.wal.find(place.position)
    assert segment is not None
    with segment.path.open("r+b") as file:
        file.seek(place.position - segment.start + 5)
        file.write(b"xx")
    with pytest.raises(DamagedFrame):
        offset_at(log, 200)
    assert offset_at(log, 200) == 3
    assert offset_at(log, 200, offset=2) == 3
