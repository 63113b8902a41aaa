"""Damaged frames whose headers are good: markers are restored, other batches are not."""

import shutil
from pathlib import Path

import pytest

from shm.kernels.base.words import BATCH_HEADER_BYTES, FRAME_HEADER_BYTES
from smq.log.files.checkpoint import FILE_NAME, FILE_NAME_BEFORE, Aborted
from smq.log.files.disk import OsDisk
from smq.log.files.segment_files import QUARANTINE
from smq.wire.markers import write_marker
from tests.backup.test_frames import framed, with_field
from tests.log.logs import SEGMENT_BYTES, batch, read, start
from tests.log.test_transactions import NUMBER, A, abort, commit, facts
from tests.shard.shard_bench import new_log, new_shard, topic
from tests.shard.transactional_bench import Producers

HEADERS = FRAME_HEADER_BYTES + BATCH_HEADER_BYTES
ABORTED = [Aborted(NUMBER, *A, 2, 3)]
RESTORED = "its checksum has restored it"


@pytest.fixture
def places(tmp_path: Path) -> list[int]:
    """The frames of a committed, an aborted and a committed transaction of one producer, each a
    record and a marker, and of an open one."""
    shard = new_shard(tmp_path / "log", topic("one"))
    producers = Producers(shard)
    for sequence, end in enumerate([commit(A), abort(A), commit(A)]):
        producers.write([b"v"], A, sequence)
        producers.end(NUMBER, end)
    producers.write([b"what follows tells damage from a torn end"], (9, 0))
    log = shard.logs[0]
    found: list[int] = log.memory.column("position")[:7].tolist()
    return found


def damaged(tmp_path: Path, changed: list[int]) -> Path:
    """A copy of the log with these bytes changed, and without what a checkpoint knows."""
    copy = tmp_path / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(tmp_path / "log", copy)
    for name in (FILE_NAME, FILE_NAME_BEFORE):
        (copy / "0" / name).unlink(missing_ok=True)
    [segment] = (copy / "0").glob(f"{0:020d}.wal")
    data = bytearray(segment.read_bytes())
    for at in changed:
        data[at] ^= 0x41
    segment.write_bytes(data)
    return segment


def test_a_marker_whose_record_is_damaged_ends_its_transaction_as_it_did(
    tmp_path: Path, places: list[int]
) -> None:
    """A committed transaction was aborted, an aborted one ended as the producer's next did."""
    whole = damaged(tmp_path, []).read_bytes()
    markers = [[*range(at + HEADERS, at + HEADERS + 17)] for at in places[1::2]]
    cases = [[at] for each in markers for at in each[::4]] + markers
    cases.append([at for each in markers for at in each])
    for case in cases:
        segment = damaged(tmp_path, case)
        log = new_log(tmp_path / "copy", generation=1)
        log.invariants()
        opened, aborted, *_ = facts(log)
        assert [each.producer_id for each in opened] == [9], case
        assert aborted == ABORTED, case
        assert any(RESTORED in each for each in log.notices)
        assert segment.read_bytes()[: places[-1]] == whole[: places[-1]]
        assert not (tmp_path / "copy" / "0" / QUARANTINE).exists()
        log.close()


def test_a_whole_marker_of_an_earlier_life_is_skipped(tmp_path: Path) -> None:
    """A start restored it, and again, without end: it was whole before."""
    data = b""
    for content, generation in (
        (batch(b"first"), 2),
        (write_marker(commit(A), 0), 1),
        (with_field(0, (1).to_bytes(8)), 2),
    ):
        data += framed(content, len(data), generation=generation, synced=len(data))
    (tmp_path / f"{0:020d}.wal").write_bytes(data.ljust(SEGMENT_BYTES, b"\0"))
    log, recovered = start(tmp_path, generation=3)
    assert len(recovered.damaged) == 1
    assert read(log, 1) == {0: b"first", 1: b"value"}


def test_other_batches_are_set_aside_and_markers_that_cannot_be_written(
    tmp_path: Path, places: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_disk: OsDisk, _fd: int, data: memoryview, _at: int) -> None:
        raise OSError(f"{len(data)} bytes")

    quarantine = tmp_path / "copy" / "0" / QUARANTINE
    damaged(tmp_path, [places[2] + HEADERS])
    new_log(tmp_path / "copy", generation=1).close()
    assert [each.name for each in quarantine.iterdir()] == [f"{places[2]:020d}.frame"]
    damaged(tmp_path, [places[3] + HEADERS])
    with monkeypatch.context() as patch:
        patch.setattr(OsDisk, "write", refuse)
        log = new_log(tmp_path / "copy", generation=1)
    assert [each.name for each in quarantine.iterdir()] == [f"{places[3]:020d}.frame"]
    assert not any(RESTORED in each for each in log.notices)
