"""What becomes of the frames that are given up: their bytes, and what is known of their offsets."""

from pathlib import Path

import numpy as np
import pytest

from shm.kernels.base.words import FRAME_HEADER_BYTES, P_OPEN_FROM
from smq.log.files.bad_pages import PATIENCE
from smq.log.files.disk import OsDisk
from smq.log.log import Log
from smq.log.own_tries import RETRY_MS
from smq.log.reading import QUARANTINE, DamagedFrame
from smq.testing.disk import PAGE_BYTES, FailingDisk
from tests.log.logs import read, start
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
    assert sum("cannot be read: offsets" in each for each in log.notices) == is_lost.sum() - 1


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
