"""A start's reads: they are tried again for a while, and then nothing is given up."""

import errno
from pathlib import Path

import pytest

from smq.log.files.disk import OsDisk
from smq.log.files.segment import WalSegment
from smq.log.files.start_reads import TRIES_MIN, WAIT_MS, StartReads, UnreadableFile
from smq.testing.disk import PAGE_BYTES, FailingDisk

CONTENT = bytes(range(256)) * 64
SIZE, START = len(CONTENT), 1_000_000


@pytest.fixture
def disk() -> FailingDisk:
    return FailingDisk(OsDisk())


@pytest.fixture
def segment(tmp_path: Path, disk: FailingDisk) -> WalSegment:
    path = tmp_path / "1.wal"
    path.write_bytes(CONTENT)
    return WalSegment(START, START + SIZE, disk.open(path), path)


class Watch:
    """A clock that each pause moves on."""

    def __init__(self, step_ms: int) -> None:
        self.step_ms, self.now_ms, self.pauses = step_ms, 50_000, 0

    def pause(self) -> int:
        self.now_ms += self.step_ms
        self.pauses += 1
        return self.now_ms


def test_a_segment_and_its_head_are_read(disk: FailingDisk, segment: WalSegment) -> None:
    reads = StartReads(disk)
    assert reads.segment(segment).tobytes() == CONTENT
    assert reads.head(segment, 100).tobytes() == CONTENT[:100]
    assert reads.head(segment, 2 * SIZE).tobytes() == CONTENT
    disk.fail("map")  # Not every file system can.
    assert reads.segment(segment).tobytes() == CONTENT


@pytest.mark.parametrize(
    ("step_ms", "pauses"),
    [(WAIT_MS // 10, 11), (WAIT_MS, TRIES_MIN - 1), (10 * WAIT_MS, TRIES_MIN - 1)],
)
def test_a_start_tries_what_fails_for_a_while_and_some_times_then_names_it(
    disk: FailingDisk, segment: WalSegment, step_ms: int, pauses: int
) -> None:
    disk.bad_places = [(segment.path.name, 2 * PAGE_BYTES, 2 * PAGE_BYTES + 1)]
    watch = Watch(step_ms)
    reads = StartReads(disk, watch.pause)
    with pytest.raises(UnreadableFile, match=f"^{segment.path} cannot be read: ") as failure:
        reads.segment(segment)
    assert failure.value.errno == errno.EIO
    assert watch.pauses == pauses
    watch.pauses = 0
    with pytest.raises(UnreadableFile):  # Its patience is that of the whole start.
        reads.segment(segment)
    assert watch.pauses == TRIES_MIN - 1
    assert reads.head(segment, 2 * PAGE_BYTES).tobytes() == CONTENT[: 2 * PAGE_BYTES]


def test_a_head_that_is_not_insisted_on_is_tried_once(
    disk: FailingDisk, segment: WalSegment
) -> None:
    disk.bad_places = [(segment.path.name, 0, 1)]
    watch = Watch(WAIT_MS)
    assert StartReads(disk, watch.pause).head_now(segment, 100) is None
    assert not watch.pauses
    with pytest.raises(UnreadableFile):
        StartReads(disk, watch.pause).head(segment, 100)


@pytest.mark.parametrize("written", [0, 1, PAGE_BYTES - 1, PAGE_BYTES, PAGE_BYTES + 1, SIZE])
def test_bytes_that_a_dead_shard_had_not_written_count_as_zeros(
    disk: FailingDisk, segment: WalSegment, written: int
) -> None:
    reads = StartReads(disk, written=START + written)
    assert reads.segment(segment).tobytes() == CONTENT
    disk.bad_places = [(segment.path.name, PAGE_BYTES, 2 * PAGE_BYTES)]
    if written > PAGE_BYTES:
        with pytest.raises(UnreadableFile):
            reads.segment(segment)
        return
    assert reads.segment(segment).tobytes() == CONTENT[:written] + bytes(SIZE - written)
    disk.bad_places = [(segment.path.name, 0, SIZE)]
    before = StartReads(disk, written=START - 1)
    assert before.segment(segment).tobytes() == bytes(SIZE)
    assert before.head(segment, 10).tobytes() == bytes(10)


def test_a_file_that_has_become_shorter_is_not_read(disk: FailingDisk, segment: WalSegment) -> None:
    segment.path.write_bytes(CONTENT[:-1])
    with pytest.raises(UnreadableFile, match="shorter"):
        StartReads(disk).segment(segment)
