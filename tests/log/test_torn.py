"""Torn end or damage: decided by what follows a bad frame."""

from pathlib import Path
from typing import Any

import pytest

from shm.kernels.base.crc_sums import new_sums
from shm.kernels.base.words import FRAME_ALIGNMENT_BYTES
from shm.kernels.log.recover import scan_frames
from smq.log.files.start_reads import StartReads
from smq.log.log import Log
from smq.log.losses import BOOT_FILE, Losses
from smq.log.torn import Evidence
from tests.log.logs import BOOT, OTHER_BOOT, append, batch, memory_of, read, start, turn


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
    return evidence.after_damage(data, at, segment, 0, new_sums(len(data)))


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


def test_each_frame_behind_damage_is_looked_at_once_however_much_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest of the segment was, for each damaged frame."""
    ring_bytes, segment_bytes, places = 1 << 17, 1 << 16, list[int]()
    memory = memory_of(ring_bytes, segment_bytes)
    log = start(tmp_path, segment_bytes=segment_bytes, memory=memory).log
    while len(log.wal.segments) < 3:
        places.append(log.tail)
        append(log, 1, batch(b"x" * 200))
        assert turn(log, syncs=False)
    log.wal.close()
    for path in tmp_path.glob("*.wal"):
        data = bytearray(path.read_bytes())
        for at in (place - int(path.stem) for place in places[1:-1:2]):
            if 0 <= at < len(data) - 200:
                data[at + 200] ^= 1
        path.write_bytes(data)
    for path in (*tmp_path.glob("*.index"), *tmp_path.glob("checkpoint*")):
        path.unlink()  # All is scanned.
    looked_at = [0]

    def scan(*given: Any) -> Any:
        found = scan_frames(*given)
        looked_at[0] += int(found[0])
        return found

    monkeypatch.setattr("smq.log.torn.scan_frames", scan)
    memory = memory_of(ring_bytes, segment_bytes)
    log, recovered = start(tmp_path, segment_bytes=segment_bytes, generation=1, memory=memory)
    assert len(recovered.damaged) > len(places) / 3
    assert len(read(log, 1)) == len(places) - len(recovered.damaged)
    assert looked_at[0] <= len(places)


def test_a_stale_frame_of_an_earlier_generation_proves_nothing(tmp_path: Path) -> None:
    log = start(tmp_path).log
    at, _ = bad_frame(log, 4, 1, syncs=True)
    segment = log.wal.segments[0]
    data = log.disk.map(segment.fd, segment.end)
    evidence = Evidence(log, StartReads(log.disk), is_same_boot=True)
    assert evidence.after_damage(data, at, segment, 1, new_sums(len(data))) == -1
