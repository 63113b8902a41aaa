"""Reading from ring and WAL; damage met while reading is reported once and skipped."""

from pathlib import Path

import numpy as np
import pytest

from shm.kernels.base.words import FRAME_HEADER_BYTES, WORD_SPACE_END
from smq.log import reading
from smq.log.files.background import BackgroundThread, JobLane
from smq.log.files.bad_pages import PATIENCE, PATIENCE_SHORT
from smq.log.files.disk import OsDisk
from smq.log.files.segment_files import QUARANTINE
from smq.log.log import Log
from smq.log.own_tries import RETRY_MS
from smq.log.reading import RUN_BYTES_MAX, DamagedFrame
from smq.testing.disk import PAGE_BYTES, FailingDisk, SlowDisk
from smq.wire.records import read_batches
from tests.log.logs import (
    LEVELS,
    MEMORY,
    OS,
    SEGMENT_BYTES,
    append,
    batch,
    high_watermark,
    read,
    read_batch,
    show,
    start,
    turn,
    wait,
)

ALL = 1 << 30


def filled(log: Log, count: int, number: int = 1, size: int = 700) -> dict[int, bytes]:
    """Append so many batches of one record each, with others of partition 2 between them."""
    values = {}
    for i in range(count):
        value = bytes([i % 256]) * size
        values[append(log, number, batch(value))] = value
        if 2 in log.partitions.slots:
            append(log, 2, batch(b"between"))
        assert turn(log)
    return values


def spans(log: Log, number: int = 1, offset: int = 0) -> np.ndarray:
    """The places of all batches, each of one record, from an offset on."""
    pieces, end = list[np.ndarray](), high_watermark(log, number)
    while offset < end:
        found = log.find(number, offset, end, ALL)
        assert found is not None
        pieces.append(found.spans)
        offset += len(found.spans)
    return np.concatenate(pieces)


def flip(log: Log, position: int) -> None:
    """Flip a bit of the WAL, behind the log's back."""
    segment = log.wal.find(position)
    assert segment is not None
    data = bytearray(segment.path.read_bytes())
    data[position - segment.start] ^= 16
    with segment.path.open("r+b") as file:
        file.write(data)


def test_old_batches_come_from_the_wal_and_new_ones_from_the_ring(tmp_path: Path) -> None:
    log = start(tmp_path, levels={1: OS, 2: OS}).log
    values = filled(log, 60)
    assert read(log, 1) == values
    assert read(log, 1, bytes_max=1) == values
    places = spans(log)
    assert not log.in_ring(int(places[0, 0]))
    assert log.view(*places[0].tolist()) is None
    assert log.in_ring(int(places[-1, 0]))


def test_gathering_gives_the_same_bytes_as_reading_one_by_one(tmp_path: Path) -> None:
    log = start(tmp_path, levels={1: OS, 2: OS}).log
    filled(log, 60)
    for first in range(0, 60, 7):
        places = spans(log)[first:]
        expected = b"".join(bytes(read_batch(log, *each)) for each in places.tolist())
        assert in_runs(log, places) == expected


def in_runs(log: Log, places: np.ndarray) -> bytes:
    """The bytes of batches, read as they are for a socket: runs of the WAL, then the ring."""
    data, runs = b"", 0
    while len(places) and not log.in_ring(int(places[0, 0])):
        run = log.first_run(places)
        cached = log.read_cached(run)
        assert cached is not None
        data += log.batches_of(run, cached)
        places = places[len(run.spans) :]
        runs += 1
    out = np.zeros(int(places[:, 1].sum()), np.uint8)
    assert log.gather(places, out) == len(out)
    assert bytes(out) == b"".join(log.views(places))
    return data + bytes(out)


def read_far_apart(log: Log, places: np.ndarray) -> tuple[bytes, int]:
    """The first batches that an answer takes, and how many they are."""
    room, out = np.empty(1 << 20, np.uint8), np.empty(RUN_BYTES_MAX, np.uint8)
    found = log.read_runs(places, RUN_BYTES_MAX, room, out)
    assert found is not None
    return bytes(found[0]), found[1]


def test_an_answer_takes_what_lies_far_apart_in_one_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "READ_GAP_BYTES_MAX", 0)
    log = start(tmp_path, levels={1: OS, 2: OS}).log
    filled(log, 60)
    places = spans(log)
    runs = log.runs(places)
    assert len(runs) > 3
    assert all(len(run.spans) == 1 for run in runs)
    segment = log.wal.segments[0]
    assert all(run.position + run.length <= segment.end for run in runs)
    data, count = read_far_apart(log, places)
    assert count == len(runs)
    assert data == b"".join(bytes(read_batch(log, *each)) for each in places[:count].tolist())
    monkeypatch.setattr(reading, "RUNS_MAX", 2)
    assert read_far_apart(log, places)[1] == 2


def test_damage_behind_the_first_batch_ends_an_answer_and_is_met_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "READ_GAP_BYTES_MAX", 0)
    log = start(tmp_path, levels={1: OS, 2: OS}).log
    filled(log, 60)
    places = spans(log)
    flip(log, int(places[2, 0]) + 100)
    data, count = read_far_apart(log, places)
    assert count == 2
    assert data == b"".join(bytes(read_batch(log, *each)) for each in places[:2].tolist())
    assert not log.notices
    with pytest.raises(DamagedFrame):
        read_far_apart(log, places[2:])
    assert log.notices


def test_one_read_brings_what_lies_close_together_in_one_segment(tmp_path: Path) -> None:
    log = start(tmp_path, levels={1: OS, 2: OS}).log
    filled(log, 60)
    places = spans(log)
    run = log.first_run(places)
    segment = log.wal.segments[0]
    assert segment.start <= run.position < run.position + run.length
    assert [bool(each < segment.end) for each in places[: len(run.spans) + 1, 0]] == [
        *[True] * len(run.spans),
        False,
    ]


def test_a_run_of_few_bytes_has_one_batch_at_least(tmp_path: Path) -> None:
    log = start(tmp_path, levels={1: OS, 2: OS}).log
    filled(log, 60)
    places = spans(log)
    one = log.first_run(places, 1)
    assert one.spans.tolist() == places[:1].tolist()
    two = log.first_run(places, int(places[:2, 1].sum()))
    assert two.spans.tolist() == places[:2].tolist()


def test_a_segment_being_loaded_in_the_background_is_held(tmp_path: Path) -> None:
    disk = SlowDisk()
    log = start(tmp_path, disk=disk, background=BackgroundThread(lambda: None)).log
    values = filled(log, 60)
    log.background.wait()
    run = log.first_run(spans(log))
    assert log.read_cached(run) is None
    got: list[np.ndarray] = []
    with disk.waiting():
        log.load(run, got.append)
        log.sealing.advance(1, 50, 1)
        log.checkpoint()
        log.background.wait_a_job(JobLane.TABLES)
        assert log.wal.segments[0].pins == 1
        assert not got
    log.background.wait()
    records = list(next(iter(read_batches(log.batches_of(run, got[0])))).records())
    assert [each.value for each in records] == [values[0]]
    assert log.wal.segments[0].pins == 0


def test_frames_that_only_the_ring_has_are_read_like_others(tmp_path: Path) -> None:
    log = start(tmp_path, levels={1: MEMORY}).log
    values = filled(log, 30)
    last = append(log, 1, batch(b"not written"))
    log.publish(MEMORY)
    assert read(log, 1) == {**values, last: b"not written"}


@pytest.mark.parametrize("gathers", [False, True])
def test_a_damaged_batch_is_reported_once_quarantined_and_skipped(
    tmp_path: Path, gathers: bool
) -> None:
    log = start(tmp_path, levels={1: OS, 2: OS}).log
    values = filled(log, 60)
    position, length = spans(log)[5].tolist()
    flip(log, position + length - 1)
    places = spans(log)
    with pytest.raises(DamagedFrame, match=str(position - FRAME_HEADER_BYTES)):
        in_runs(log, places) if gathers else read(log, 1)
    assert len(log.notices) == 1
    assert "offsets 5 to 5 of partition 1" in log.notices[0]
    kept = list((tmp_path / QUARANTINE).iterdir())
    assert [path.name for path in kept] == [f"{position - FRAME_HEADER_BYTES:020d}.frame"]
    assert read(log, 1) == {k: v for k, v in values.items() if k != 5}
    assert read(log, 1, 5) == {k: v for k, v in values.items() if k > 5}
    assert len(read(log, 2)) == 60
    assert len(log.notices) == 1


def test_every_flipped_bit_of_a_frame_is_found_and_costs_that_batch_only(tmp_path: Path) -> None:
    log = start(tmp_path, levels={1: OS, 2: OS}).log
    values = filled(log, 60, size=40)
    values |= filled(log, 30)
    position, length = spans(log)[3].tolist()
    for at in range(position - FRAME_HEADER_BYTES, position + length):
        flip(log, at)
        with pytest.raises(DamagedFrame):
            read_batch(log, position, length)
        flip(log, at)
    assert read(log, 1) == {k: v for k, v in values.items() if k != 3}


def test_damage_behind_damage_is_passed_over_too_and_an_end_is_waited_for(tmp_path: Path) -> None:
    log = start(tmp_path).log
    values = filled(log, 50)
    for i in (3, 4, 0):
        flip(log, int(spans(log, offset=i)[0, 0]) + 70)
        with pytest.raises(DamagedFrame):
            read(log, 1, i)
    assert read(log, 1) == {k: v for k, v in values.items() if k not in {0, 3, 4}}
    found = log.find(1, 3, 5, ALL)
    assert found is not None
    assert not len(found.spans)


def test_damage_does_not_pin_a_segment(tmp_path: Path) -> None:
    log = start(tmp_path, levels={1: OS, 2: OS}).log
    filled(log, 4)
    end = high_watermark(log, 1)
    for _ in range(60):
        append(log, 2, batch(b"x" * 700))
        turn(log)
    position = int(spans(log)[-1, 0])
    flip(log, position + 70)
    log.sealing.advance(2, high_watermark(log, 2), 1)
    log.sealing.advance(1, end - 1, 1)
    with pytest.raises(DamagedFrame):
        read(log, 1)
    log.tend()
    assert len(log.wal.segments) == 1


def test_an_unreadable_page_is_given_up_like_damage_after_a_while(tmp_path: Path) -> None:
    disk = FailingDisk(OsDisk())
    log = start(tmp_path, disk=disk).log
    values = filled(log, 50)
    segment = log.wal.segments[1]
    disk.bad_places = [(segment.path.name, 1500, 1501)]
    places = spans(log)
    [lost] = np.flatnonzero(places[:, 0] + places[:, 1] > segment.start + 1500)[:1]
    log.now_ms = 0
    for _ in range(5):
        assert not any("are lost" in each for each in log.notices)
        with pytest.raises(DamagedFrame, match="cannot be read"):
            read(log, 1)
        wait(log, PATIENCE.wait_ms // 4)
    assert sum("is tried again" in each for each in log.notices) == 1
    assert len(log.readable(spans(log)[lost:])) > 0  # Others whose time is over do not wait.
    kept = read(log, 1)  # All but a page: not all that is read with it.
    assert {k: v for k, v in values.items() if k not in kept}.keys() >= {int(lost)}
    assert len(kept) >= len(values) - PAGE_BYTES // 700 - 1
    assert all(values[k] == v for k, v in kept.items())


@pytest.mark.parametrize("is_dropped", [False, True])
def test_a_read_error_that_ends_loses_nothing(tmp_path: Path, is_dropped: bool) -> None:
    disk = FailingDisk(OsDisk())
    log = start(tmp_path, disk=disk).log
    if is_dropped:
        log.wal.files.footprint.bytes_max = 3 * SEGMENT_BYTES
    values = filled(log, 60)
    assert log.wal.segments[0].is_cached is not is_dropped
    disk.bad_places = [(segment.path.name, 0, SEGMENT_BYTES) for segment in log.wal.segments]
    for now_ms in (None, 0, 4_000_000):  # Twice is no minute of failures.
        log.now_ms = now_ms
        with pytest.raises(DamagedFrame, match="cannot be read"):
            read(log, 1)
    disk.bad_places.clear()
    assert read(log, 1) == values


def test_an_unreadable_page_is_given_up_sooner_while_space_is_short(tmp_path: Path) -> None:
    disk = FailingDisk(OsDisk())
    log = start(tmp_path, disk=disk, bytes_max=16 * SEGMENT_BYTES).log
    filled(log, 50)
    disk.bad_places = [(log.wal.segments[0].path.name, 0, SEGMENT_BYTES)]
    for ms, left, is_lost in ((0, 6, False), (PATIENCE_SHORT.wait_ms, 7, False), (0, 5, True)):
        wait(log, ms)
        log.words[WORD_SPACE_END] = log.tail + left * SEGMENT_BYTES
        with pytest.raises(DamagedFrame, match="cannot be read"):
            read(log, 1)
        assert any("are lost" in each for each in log.notices) is is_lost


def test_a_page_that_fails_once_is_tried_again_though_its_neighbour_was_given_up(
    tmp_path: Path,
) -> None:
    """Failures counted for the segment: what could be read a moment later was lost."""
    disk = FailingDisk(OsDisk())
    log = start(tmp_path, disk=disk, segment_bytes=4 * PAGE_BYTES).log
    values = filled(log, 80)
    segment = log.wal.segments[1]
    bad = (segment.path.name, 1500, 1501)
    disk.bad_places = [bad]
    log.now_ms = 0
    for _ in range(PATIENCE.wait_ms // RETRY_MS + 1):
        assert not any("are lost" in each for each in log.notices)
        with pytest.raises(DamagedFrame, match="cannot be read"):
            read(log, 1)
        wait(log, RETRY_MS)
    kept = read(log, 1)
    disk.bad_places = [bad, (segment.path.name, 10_000, 10_001)]
    with pytest.raises(DamagedFrame, match="cannot be read"):
        read(log, 1)
    disk.bad_places = [bad]
    wait(log, PATIENCE.wait_ms)
    assert read(log, 1) == kept
    assert len(kept) < len(values)


def test_damage_in_a_page_that_could_not_be_read_once_is_met_after_a_while(tmp_path: Path) -> None:
    disk = FailingDisk(OsDisk())
    log = start(tmp_path, disk=disk).log
    values = filled(log, 50)
    flip(log, int(spans(log)[1, 0]) + 70)
    segment = log.wal.segments[0]
    disk.bad_places = [(segment.path.name, 0, SEGMENT_BYTES)]
    for ms, why in ((0, "cannot"), (RETRY_MS, "cannot"), (PATIENCE.wait_ms, "lost")):
        wait(log, ms)
        with pytest.raises(DamagedFrame, match=why):
            read(log, 1)
        disk.bad_places.clear()
    assert read(log, 1) == {k: v for k, v in values.items() if k != 1}


def collected(log: Log, places: np.ndarray) -> bytes | DamagedFrame:
    """What sealing is given of batches."""
    got = list[bytes | DamagedFrame]()
    log.collect(places, got.append)
    [data] = got
    return data


def test_a_page_that_cannot_be_read_is_left_to_the_log_which_tries_it_from_time_to_time(
    tmp_path: Path,
) -> None:
    disk = FailingDisk(OsDisk())
    log = start(tmp_path, disk=disk).log
    filled(log, 50)
    places = spans(log)
    log.now_ms = 1000
    log.tend()
    assert log.readable(places) is places
    bad = log.wal.segments[1]
    disk.bad_places = [(bad.path.name, 0, SEGMENT_BYTES)]
    first, end = np.searchsorted(places[:, 0], (bad.start, bad.end)).tolist()
    before = in_runs(log, places[:first])
    assert collected(log, places) == before
    tries = disk.calls["read"]
    for _ in range(3):
        assert collected(log, places) == before
        assert collected(log, places[first:]) == b""
    assert disk.calls["read"] <= tries + 3
    for _ in range(2):
        assert len(log.readable(places)) == first
        assert len(log.readable(places[:first])) == first
        assert len(log.readable(places[first:])) == 0
        assert len(log.readable(places[end:])) == len(places) - end
        assert len(log.readable(places[-1:])) == 1  # The ring has it.
        log.now_ms += RETRY_MS
        log.tend()
    disk.bad_places.clear()
    assert collected(log, places) == before
    log.now_ms += RETRY_MS
    log.tend()
    assert collected(log, places) == in_runs(log, places)


def test_a_kept_segment_that_cannot_be_read_is_freed_at_once(tmp_path: Path) -> None:
    """Nobody tries its pages."""
    disk = FailingDisk(OsDisk())
    log = start(tmp_path, disk=disk, keep_bytes_max=1 << 20).log
    filled(log, 50)
    places, segment = spans(log), log.wal.segments[0]
    disk.bad_places = [(segment.path.name, 0, SEGMENT_BYTES)]
    log.now_ms = 1000
    log.tend()
    assert isinstance(collected(log, places), DamagedFrame)
    assert collected(log, places) == b""
    log.sealing.advance(1, 40, 1)
    log.checkpoint()
    assert segment.is_kept
    assert isinstance(collected(log, places), DamagedFrame)
    assert segment not in log.wal.segments
    assert log.find(1, 0, 50, ALL) is None


def test_one_attempt_meets_all_damaged_frames_that_are_read_with_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = start(tmp_path).log
    values = filled(log, 60, size=400)
    places = spans(log)
    for i in (1, 2, 4):
        flip(log, int(places[i, 0]) + 70)
    with pytest.raises(DamagedFrame, match="offsets 1 to 1 "):
        in_runs(log, places)
    assert len(log.notices) == 3
    assert read(log, 1) == {k: v for k, v in values.items() if k not in {1, 2, 4}}
    monkeypatch.setattr(reading, "DAMAGES_MAX", 2)
    for i in (5, 6, 7):
        flip(log, int(places[i, 0]) + 70)
    with pytest.raises(DamagedFrame, match="offsets 5 to 5 "):
        in_runs(log, places[5:])
    assert len(log.notices) == 5


def test_a_read_that_fails_once_loses_nothing(tmp_path: Path) -> None:
    disk = FailingDisk(OsDisk())
    log = start(tmp_path, disk=disk).log
    values = filled(log, 50)
    disk.fail("read", 1)
    assert read(log, 1) == values


def test_a_freed_position_is_not_damage(tmp_path: Path) -> None:
    log = start(tmp_path).log
    filled(log, 50)
    place = spans(log)[0].tolist()
    log.sealing.advance(1, 40, 1)
    log.checkpoint()
    with pytest.raises(DamagedFrame, match="freed"):
        read_batch(log, *place)
    assert log.notices == []
    assert log.find(1, 0, 50, ALL) is None
    assert not (tmp_path / QUARANTINE).exists()


def test_spans_end_before_a_freed_segment(tmp_path: Path) -> None:
    log = start(tmp_path, levels={1: OS, 3: OS}).log
    append(log, 3, batch(b"idle"))
    filled(log, 40)
    log.sealing.advance(1, 30, 1)
    log.checkpoint()
    assert [s.start // s.path.stat().st_size for s in log.wal.segments[:2]] == [0, 7]
    first = log.find(1, 0, 40, ALL)
    assert first is not None
    assert first.total_bytes == first.spans[:, 1].sum()
    assert (first.spans[:, 0] < log.wal.segments[0].end).all()
    assert log.find(1, len(first.spans), 40, ALL) is None
    assert sorted(read(log, 1, 30)) == list(range(30, 40))


def test_nothing_is_visible_before_its_level(tmp_path: Path) -> None:
    log = start(tmp_path, levels={1: LEVELS[0], 2: LEVELS[1], 3: LEVELS[2]}).log
    for number in (1, 2, 3):
        append(log, number, batch(b"v"))
    show(log)
    assert [high_watermark(log, n) for n in (1, 2, 3)] == [1, 0, 0]
    log.write()
    show(log)
    assert [high_watermark(log, n) for n in (1, 2, 3)] == [1, 1, 0]
    log.want_sync()
    show(log)
    assert [high_watermark(log, n) for n in (1, 2, 3)] == [1, 1, 1]
