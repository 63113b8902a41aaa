"""What a log from elsewhere must not have; what is only damaged stays."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from shm.kernels.base.frames import write_frame_header
from shm.kernels.base.words import (
    BATCH_LEADER_EPOCH_AT,
    BATCH_LENGTH_AT,
    BATCH_MAGIC_AT,
    FRAME_HEADER_BYTES,
    FRAME_KIND_BATCH,
    FRAME_KIND_PADDING,
)
from smq.backup.frames import RestoredFrames
from smq.log.files.checkpoint import RESTORED
from smq.log.files.disk import OsDisk
from smq.model.errors import MadeByNewer, StoreError
from smq.wire.records import crc_of
from tests.log.logs import append, batch, start, turn

GENERATION = 5


def framed(  # noqa: PLR0913  (fields of frame and batch)
    data: bytes,
    position: int = 0,
    *,
    generation: int = 0,
    kind: int = FRAME_KIND_BATCH,
    synced: int = 0,
    epoch: int = 0,
) -> bytes:
    """A frame of any batch; its CRC is right."""
    content = bytearray(data)
    content[BATCH_LEADER_EPOCH_AT : BATCH_LEADER_EPOCH_AT + 4] = epoch.to_bytes(4, signed=True)
    content[17:21] = crc_of(content).to_bytes(4)
    size = -(-(FRAME_HEADER_BYTES + len(content)) // 64) * 64
    frame = np.zeros(size, np.uint8)
    frame[FRAME_HEADER_BYTES:][: len(content)] = content
    write_frame_header(frame, 0, position, (synced, generation), len(content), 1, kind, 0)
    return frame.tobytes()


def padding(size: int, position: int) -> bytes:
    """A padding frame of so many bytes."""
    frame = np.zeros(size, np.uint8)
    write_frame_header(
        frame, 0, position, (0, 0), size - FRAME_HEADER_BYTES, 0, FRAME_KIND_PADDING, 0
    )
    return frame.tobytes()


def with_field(at: int, field: bytes) -> bytes:
    data = batch(b"value")
    return data[:at] + field + data[at + len(field) :]


def judge(*segments: tuple[int, bytes]) -> None:
    frames = RestoredFrames(Path("log"), GENERATION)
    for position, data in segments:
        frames.judge(Path(f"log/{position:020d}.wal"), np.frombuffer(data, np.uint8))


GOOD = framed(batch(b"value"))
LENGTH = len(batch(b"value")) - 12


@pytest.mark.parametrize(
    ("at", "field"),
    [
        *(
            (BATCH_LENGTH_AT, n.to_bytes(4, signed=True))
            for n in (LENGTH - 1, LENGTH + 1, 5000, -5)
        ),
        (BATCH_MAGIC_AT, b"\1"),
        *((0, n.to_bytes(8, signed=True)) for n in (-1, 2**62, 2**63 - 1)),
        (23, (-2).to_bytes(4, signed=True)),
    ],
)
@pytest.mark.parametrize("before", [b"", GOOD])
def test_a_batch_that_no_log_writes_is_refused(at: int, field: bytes, before: bytes) -> None:
    """The restored shard ended at each start, or the clients that read the batch."""
    made_up = framed(with_field(at, field), len(before))
    with pytest.raises(StoreError, match=f"the frame at position {len(before)} is none: no log"):
        judge((0, before + made_up))


def test_offsets_that_leave_no_room_are_refused() -> None:
    """The broker's own next checkpoint counted as damaged."""
    judge((0, framed(with_field(0, RESTORED.place_max.to_bytes(8)))))
    with pytest.raises(StoreError, match=f"it has a batch at offset {RESTORED.place_max + 1}:"):
        judge((0, framed(with_field(0, (RESTORED.place_max + 1).to_bytes(8)))))


@pytest.mark.parametrize("generation", [GENERATION + 1, 2**31, 2**32 - 1])
def test_a_generation_that_the_snapshot_has_not_taken_is_refused(generation: int) -> None:
    judge((0, framed(batch(b"value"), generation=GENERATION)))
    with pytest.raises(StoreError, match=f"its frames are of up to generation {generation}, and"):
        judge((0, framed(batch(b"value"), generation=generation)))


@pytest.mark.parametrize("epoch", [GENERATION + 1, 2**31 - 1, -1, -(2**31)])
def test_a_leader_epoch_below_0_or_above_the_snapshots_generation_is_refused(epoch: int) -> None:
    """The restored shard's own epoch, its generation, was below it. That of a partition that has
    moved is above the generation of its log."""
    data = batch(b"value")
    judge((0, framed(data, generation=GENERATION - 1, epoch=GENERATION)))
    with pytest.raises(StoreError, match=f"it has a batch of leader epoch {epoch}: no log"):
        judge((0, framed(data, generation=GENERATION - 1, epoch=epoch)))


@pytest.mark.parametrize("size", [48, 63, 65, 100, 129])
def test_padding_that_ends_between_two_lines_is_refused(size: int) -> None:
    """The restored shard ended at each start: its log ended between two lines."""
    at, more = len(GOOD), bytes(64 - size % 64)
    judge((0, GOOD + padding(64, at) + padding(size + len(more), at + 64)))
    with pytest.raises(StoreError, match=f"the frame at position {at} is none: no log writes"):
        judge((0, GOOD + padding(size, at) + more))


@pytest.mark.parametrize(
    "synced", [1, 63, len(GOOD) - 1, len(GOOD) + 1, len(GOOD) + 64, 2**62, -1, -64, -(2**63)]
)
def test_a_synced_position_that_no_log_notes_is_refused(synced: int) -> None:
    """What was damaged before it ended between two lines, and so did the log."""
    for fits in (0, 64, len(GOOD)):
        judge((0, GOOD + framed(batch(b"value"), len(GOOD), synced=fits)))
    with pytest.raises(StoreError, match=f"one of its frames calls position {synced} synced: no"):
        judge((0, GOOD + framed(batch(b"value"), len(GOOD), synced=synced)))


def test_segments_that_overlap_are_refused() -> None:
    judge((0, GOOD), (len(GOOD), framed(batch(b"value"), len(GOOD))))
    judge((0, GOOD), (1 << 40, framed(batch(b"value"), 1 << 40)))
    with pytest.raises(StoreError, match=f"it begins below position {len(GOOD)}, where the one"):
        judge((0, GOOD), (64, framed(batch(b"value"), 64)))


def test_a_frame_that_must_be_known_is_refused() -> None:
    with pytest.raises(MadeByNewer, match="is of kind 17"):
        judge((0, framed(batch(b"value"), kind=17)))


@pytest.mark.parametrize("at", [3, 20, FRAME_HEADER_BYTES + 11, len(GOOD) - 60])
def test_damage_and_torn_ends_are_left_to_a_start(at: int) -> None:
    """What a broker has put aside stays in its segment, and so does an earlier life's tail."""
    damaged = bytearray(GOOD)
    damaged[at] ^= 1
    behind = framed(batch(b"value"), len(GOOD), generation=2)
    stale = framed(batch(b"value"), 2 * len(GOOD), generation=1)
    judge((0, bytes(damaged)))
    judge((0, bytes(damaged) + behind + stale + bytes(640)))
    judge((0, GOOD[:64] + bytes(128)), (1 << 20, os.urandom(6400)))
    judge((0, b""), (0, GOOD))


def test_a_made_up_batch_behind_damage_is_found() -> None:
    damaged = bytes([GOOD[0] ^ 1]) + GOOD[1:]
    good = framed(batch(b"value"), len(GOOD))
    made_up = framed(with_field(BATCH_MAGIC_AT, b"\1"), 2 * len(GOOD))
    with pytest.raises(StoreError, match="is none: no log"):
        judge((0, damaged + good + made_up))


def test_a_file_that_cannot_be_mapped_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> np.ndarray:
        raise OSError(errno.ENODEV, "no maps here")

    monkeypatch.setattr(OsDisk, "map", fail)
    path = tmp_path / f"{0:020d}.wal"
    path.write_bytes(framed(with_field(BATCH_MAGIC_AT, b"\1")))
    frames = RestoredFrames(tmp_path, GENERATION)
    with path.open("rb") as file, pytest.raises(StoreError, match="is none: no log writes that"):
        frames.judge_file(path, file.fileno(), path.stat().st_size)


def test_the_log_of_a_broker_is_accepted_from_its_files(tmp_path: Path) -> None:
    log = start(tmp_path, generation=GENERATION).log
    for i in range(40):
        append(log, 1, batch(b"%d" % i * 200, producer_id=7, epoch=0, sequence=i))
        assert turn(log)
    assert len(log.wal.segments) > 2
    frames = RestoredFrames(tmp_path, GENERATION)
    for segment in log.wal.segments:
        with segment.path.open("rb") as file:
            frames.judge_file(segment.path, file.fileno(), segment.end - segment.start)
    frames.judge_file(tmp_path / f"{1 << 40:020d}.wal", -1, 0)
