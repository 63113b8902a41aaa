"""Starts of a log with frames that no log writes, all checks right: a snapshot comes from anywhere,
and an earlier SMQ restored it unseen."""

from pathlib import Path

import pytest

from shm.kernels.base.words import P_LOG_END, WORD_SYNCED
from smq.log.files.disk import OsDisk
from smq.log.files.newer import refuse_newer
from smq.log.files.segment_files import QUARANTINE
from tests.backup.test_frames import framed, padding, with_field
from tests.log.logs import (
    BOOT,
    OTHER_BOOT,
    SEGMENT_BYTES,
    append,
    batch,
    high_watermark,
    read,
    row,
    start,
    turn,
)

LENGTH = len(batch(b"value")) - 12
FIRST = framed(batch(b"first"))


def lives(directory: Path, *values: bytes, boot: bytes = BOOT) -> None:
    """Start a log with these records again and again, each time with more."""
    have = [*values]
    for generation in range(4):
        log = start(directory, generation=generation, boot=boot).log
        assert [*read(log, 1).values()] == have
        assert log.words[WORD_SYNCED] % 64 == log.tail % 64 == 0
        for i in range(9):
            have.append(b"%d" % i * 200)
            append(log, 1, batch(have[-1]))
            assert turn(log)
        log.wal.close()


@pytest.mark.parametrize("more", [13, SEGMENT_BYTES // 2 - 1])
def test_a_log_goes_on_behind_a_segment_that_ends_between_two_lines(
    tmp_path: Path, more: int
) -> None:
    """The first start served and acked records, and each later one ended with an assertion."""
    (tmp_path / f"{0:020d}.wal").write_bytes(FIRST + bytes(more))
    lives(tmp_path, b"first")


@pytest.mark.parametrize("boot", [BOOT, OTHER_BOOT])
@pytest.mark.parametrize("size", [48, 63, 65, 100, 1000])
@pytest.mark.parametrize("follows", [False, True])
def test_padding_that_ends_between_two_lines_is_damage_or_the_end(
    tmp_path: Path, size: int, boot: bytes, *, follows: bool
) -> None:
    """Each start of the shard ended with an assertion."""
    at = len(FIRST)
    data = FIRST + padding(size, at)
    data += bytes(-len(data) % 64)
    if follows:
        second = framed(with_field(0, (1).to_bytes(8)), len(data), synced=len(FIRST) + 64)
        data += second
    (tmp_path / f"{0:020d}.wal").write_bytes(data.ljust(SEGMENT_BYTES, b"\0"))
    lives(tmp_path, b"first", *([b"value"] if follows else []), boot=boot)


@pytest.mark.parametrize("synced", [len(FIRST) + 1, len(FIRST) + 100, 2**62 + 1, 2**63 - 1])
@pytest.mark.parametrize("boot", [BOOT, OTHER_BOOT])
def test_a_log_goes_on_behind_damage_up_to_a_place_between_two_lines(
    tmp_path: Path, synced: int, boot: bytes
) -> None:
    """A frame before it has called that synced. Each start ended with an assertion."""
    data = framed(batch(b"first"), synced=synced)
    (tmp_path / f"{0:020d}.wal").write_bytes(data.ljust(SEGMENT_BYTES, b"\0"))
    lives(tmp_path, b"first", boot=boot)


@pytest.mark.parametrize("start_at", [4, 100, 64, SEGMENT_BYTES // 2, 2**63, 10**25])
def test_a_segment_that_begins_where_no_log_begins_one_is_set_aside(
    tmp_path: Path, start_at: int
) -> None:
    """Between two lines, within the one before, or beyond all positions. Each start ended."""
    path = tmp_path / f"{start_at:020d}.wal"
    (tmp_path / f"{0:020d}.wal").write_bytes(FIRST.ljust(SEGMENT_BYTES, b"\0"))
    path.write_bytes(framed(batch(b"another"), min(start_at, 2**63 - 1)).ljust(640, b"\0"))
    refuse_newer(tmp_path, OsDisk(), 0)
    log, recovered = start(tmp_path)
    aside = tmp_path / QUARANTINE / path.name
    assert recovered.damaged == [
        f"{path} begins where no segment of this log can, and is set aside as {aside}"
    ]
    assert aside.exists()
    log.wal.close()
    lives(tmp_path, b"first")


@pytest.mark.parametrize(
    ("at", "field"),
    [
        *((8, n.to_bytes(4, signed=True)) for n in (LENGTH - 1, LENGTH + 1, 5000, -5)),
        (16, b"\1"),
        *((0, n.to_bytes(8, signed=True)) for n in (-1, 2**62, 2**63 - 1)),
    ],
)
@pytest.mark.parametrize("attributes", [b"\0", b"\x10", b"\x30"])
def test_a_batch_that_no_log_writes_counts_as_damage(
    tmp_path: Path, at: int, field: bytes, attributes: bytes
) -> None:
    """The shard ended at each start, or clients that read the batch."""
    log = start(tmp_path).log
    append(log, 1, batch(b"before"))
    assert turn(log)
    path, tail = log.wal.segments[0].path, log.tail
    log.wal.close()
    made_up = bytearray(with_field(at, field))
    made_up[22:23] = attributes
    frame = framed(bytes(made_up), tail)
    good = framed(with_field(0, (5).to_bytes(8)), tail + len(frame))
    data = path.read_bytes()
    behind = data[tail + len(frame) + len(good) :]
    path.write_bytes(data[:tail] + frame + good + behind)
    log, recovered = start(tmp_path, generation=1)
    assert [str(tail) in each for each in recovered.damaged] == [True]
    assert read(log, 1) == {0: b"before", 5: b"value"}
    assert row(log)[P_LOG_END] == high_watermark(log, 1) == 6
    append(log, 1, batch(b"after"))
    assert turn(log)
    log.wal.close()
    assert read(start(tmp_path, generation=2).log, 1)[6] == b"after"
