"""A log's files in a snapshot: below the cut, without sealed ones, of some partitions only."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from smq.app.backup.wal import LogFiles, blank_others
from smq.log.log import Log
from smq.model.errors import StoreError
from tests.log.logs import (
    NOW_MS,
    OS,
    SEGMENT_BYTES,
    append,
    batch,
    fill,
    high_watermark,
    read,
    start,
    started,
    turn,
)

LEVELS = {1: OS, 2: OS}
LIMIT = 8 * SEGMENT_BYTES


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    for log in started:
        log.close()
    started.clear()


def opened(directory: Path, generation: int = 0) -> Log:
    return start(directory, generation=generation, levels=LEVELS, bytes_max=LIMIT).log


def seal(log: Log, number: int) -> None:
    log.sealing.advance(number, high_watermark(log, number), NOW_MS)
    log.checkpoint()
    log.set_space_end()


def test_the_cut_is_kept_while_the_log_goes_on_and_uses_its_files_again(tmp_path: Path) -> None:
    log = opened(tmp_path / "log")
    fill(log, 1)
    fill(log, 2, count=3)
    files = LogFiles(log.directory, tmp_path / "pins")
    files.pin()
    fill(log, 2, count=7)
    end, before = log.tail, read(log, 1) | {}
    for number in (1, 2):  # What was linked is freed now, and the files would be written again.
        seal(log, number)
    for _ in range(20):
        fill(log, 1)
        seal(log, 1)
    files.pin_new()
    files.write(tmp_path / "copy", end, {1, 2}, only=False)
    restored = opened(tmp_path / "copy", generation=5)
    assert not restored.notices
    assert read(restored, 1) == before
    assert len(read(restored, 2)) == 10
    assert high_watermark(restored, 1) == len(before) == 40


def test_what_is_sealed_in_whole_is_left_out(tmp_path: Path) -> None:
    log = start(tmp_path / "log", levels=LEVELS, bytes_max=LIMIT * 2, keep_bytes_max=LIMIT * 2).log
    fill(log, 1)
    fill(log, 2, count=1)
    before = len(log.wal.segments)
    seal(log, 1)
    fill(log, 2, count=1)
    for known, some in (({1}, True), ({1, 2}, True), ({2}, False)):
        files = LogFiles(log.directory, tmp_path / f"pins{len(known)}{some}")
        files.pin()
        target = tmp_path / f"copy{len(known)}{some}"
        files.write(target, log.tail, known, only=False)
        assert 0 < len([*target.glob("*.wal")]) < before
    restored = opened(target, generation=5)
    assert len(read(restored, 2)) == 2


def test_of_other_partitions_there_is_no_byte(tmp_path: Path) -> None:
    log = opened(tmp_path / "log")
    for i in range(30):
        append(log, 1, batch(b"wanted" + b"%d" % i))
        append(log, 2, batch(b"secret" * 60))
        assert turn(log)
    files = LogFiles(log.directory, tmp_path / "pins")
    files.pin()
    files.write(tmp_path / "copy", log.tail, {1}, only=True)
    paths = [*(tmp_path / "copy").glob("*.wal")]
    assert len(paths) > 1
    assert not [path for path in paths if b"secret" in path.read_bytes()]
    restored = start(tmp_path / "copy", generation=5).log
    assert not restored.notices
    assert [*read(restored, 1).values()] == [b"wanted%d" % i for i in range(30)]


def test_whose_frames_are_behind_damage_is_not_guessed(tmp_path: Path) -> None:
    log = opened(tmp_path / "log")
    fill(log, 1, count=3)
    data = np.fromfile(log.wal.segments[0].path, np.uint8)
    assert len(log.wal.segments) == 1
    data[300] ^= 1
    with pytest.raises(StoreError, match="take a snapshot of all topics"):
        blank_others(data, log.tail, 0, {2}, tmp_path)


def test_a_log_that_nobody_serves_is_linked_where_it_is_full(tmp_path: Path) -> None:
    log = opened(tmp_path / "log")
    fill(log, 1)
    log.close()
    files = LogFiles(log.directory, tmp_path / "pins")
    files.pin()
    files.write(tmp_path / "copy", None, {1}, only=False)
    linked = [path.stat().st_nlink > 2 for path in sorted((tmp_path / "copy").glob("*.wal"))]
    assert linked[0]
    assert not linked[-1]
    again = opened(tmp_path / "log", generation=6)
    fill(again, 1, count=4)
    restored = opened(tmp_path / "copy", generation=6)
    assert sorted(read(restored, 1)) == list(range(40))
