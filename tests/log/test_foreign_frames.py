"""Starts of a log with frames that no log writes, all checks right: a snapshot comes from anywhere,
and an earlier SMQ restored it unseen."""

from pathlib import Path

import pytest

from shm.kernels.base.words import P_LOG_END
from tests.backup.test_frames import framed, with_field
from tests.log.logs import SEGMENT_BYTES, append, batch, high_watermark, read, row, start, turn

LENGTH = len(batch(b"value")) - 12


@pytest.mark.parametrize("more", [13, SEGMENT_BYTES // 2 - 1])
def test_a_log_goes_on_behind_a_segment_that_ends_between_two_lines(
    tmp_path: Path, more: int
) -> None:
    """The first start served and acked records, and each later one ended with an assertion."""
    frame = framed(batch(b"first"))
    (tmp_path / f"{0:020d}.wal").write_bytes(frame + bytes(more))
    values = [b"first"]
    for generation in range(4):
        log = start(tmp_path, generation=generation).log
        assert [*read(log, 1).values()] == values
        for i in range(9):
            values.append(b"%d" % i * 200)
            append(log, 1, batch(values[-1]))
            assert turn(log)
        log.wal.close()


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
