"""Torn end or damage: decided by what follows a bad frame."""

from pathlib import Path

import pytest

from shm.kernels.base.words import FRAME_ALIGNMENT_BYTES
from smq.log.files.start_reads import StartReads
from smq.log.log import Log
from smq.log.losses import BOOT_FILE, Losses
from smq.log.torn import Evidence
from tests.log.logs import BOOT, OTHER_BOOT, append, batch, start, turn


def bad_frame(log: Log, count: int, bad: int, *, syncs: bool = False) -> tuple[int, int]:
    """Append frames, make one bad; its place in the first segment, and that of the next one."""
    places = []
    for _ in range(count):
        places.append(log.tail)
        append(log, 1, batch(b"x" * 500))
        turn(log, syncs=syncs)
    places.append(log.tail)
    segment = log.wal.segments[0]
    with segment.path.open("r+b") as file:
        file.seek(places[bad])
        file.write(bytes(FRAME_ALIGNMENT_BYTES))
    return places[bad], places[bad + 1]


def verdict(log: Log, at: int, boot: bytes, synced: int = 0) -> int:
    is_same_boot = Losses(log.directory, boot).is_same_boot
    evidence = Evidence(log, StartReads(log.disk), is_same_boot=is_same_boot)
    evidence.synced = synced
    segment = log.wal.segments[0]
    data = log.disk.map(segment.fd, segment.end - segment.start)
    return evidence.after_damage(data, at, segment, 0)


def test_a_bad_last_frame_is_the_torn_end(tmp_path: Path) -> None:
    log = start(tmp_path).log
    at, _ = bad_frame(log, 3, 2)
    assert verdict(log, at, BOOT) == -1


def test_on_the_same_boot_a_good_frame_behind_it_makes_it_damage(tmp_path: Path) -> None:
    log = start(tmp_path).log
    at, following = bad_frame(log, 4, 1)
    assert verdict(log, at, BOOT) == following
    assert verdict(log, at, OTHER_BOOT) == -1
    (tmp_path / BOOT_FILE).unlink()
    assert verdict(log, at, BOOT) == -1


def test_below_what_the_checkpoint_knows_to_be_synced_it_is_damage(tmp_path: Path) -> None:
    log = start(tmp_path).log
    at, following = bad_frame(log, 4, 1)
    assert verdict(log, at, OTHER_BOOT, synced=following) == following
    assert verdict(log, at, OTHER_BOOT, synced=at) == -1


def test_below_what_a_later_frame_knows_to_be_synced_it_is_damage(tmp_path: Path) -> None:
    log = start(tmp_path).log
    at, following = bad_frame(log, 4, 1, syncs=True)
    assert verdict(log, at, OTHER_BOOT) == following


def test_the_proof_may_lie_in_a_later_segment(tmp_path: Path) -> None:
    log = start(tmp_path).log
    size = log.wal.files.segment_bytes
    at, _ = bad_frame(log, 1, 0, syncs=True)
    while log.tail < size + 2000:
        append(log, 1, batch(b"x" * 500))
        turn(log, syncs=True)
    with log.wal.segments[0].path.open("r+b") as file:
        file.seek(at)
        file.write(bytes(size - at))
    assert verdict(log, at, OTHER_BOOT) == size
    log.wal.segments.pop()
    assert verdict(log, at, OTHER_BOOT) == -1


@pytest.mark.parametrize("synced", [1024, 2048])
def test_synced_frames_that_are_missing_are_damage(tmp_path: Path, synced: int) -> None:
    log = start(tmp_path).log
    at, _ = bad_frame(log, 1, 0)
    assert verdict(log, at, OTHER_BOOT, synced) == synced


def test_a_stale_frame_of_an_earlier_generation_proves_nothing(tmp_path: Path) -> None:
    log = start(tmp_path).log
    at, _ = bad_frame(log, 4, 1, syncs=True)
    segment = log.wal.segments[0]
    data = log.disk.map(segment.fd, segment.end)
    evidence = Evidence(log, StartReads(log.disk), is_same_boot=True)
    assert evidence.after_damage(data, at, segment, 1) == -1
