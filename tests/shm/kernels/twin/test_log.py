"""The plain twin is right by itself: against tables of others, and by hand."""

import pytest

from shm.kernels.base.words import FRAME_KIND_BATCH, FRAME_KIND_PADDING
from shm.kernels.twin.log import (
    PlainEntry,
    PlainFrame,
    PlainIndex,
    Tail,
    batch_is_good,
    crc32c,
    read_frame,
    scan,
)
from tests.oracle.batches import batch


def test_the_check_of_nine_digits_is_the_one_everybody_has() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"56789", crc32c(b"1234")) == 0xE3069283


def test_a_batch_written_by_another_code_has_a_good_check() -> None:
    assert batch_is_good(batch(b"value"))
    assert not batch_is_good(batch(b"value")[:-1] + b"\x01")


def test_a_frame_lies_as_the_layout_draws_it() -> None:
    content = (49).to_bytes(12) + bytes(4) + b"\2" + bytes(range(44))
    frame = PlainFrame(64, 8, 3, 5, FRAME_KIND_BATCH, 2, content)
    data = frame.encode()
    assert data[:4] == b"SMQF"
    assert data[8:16] == (64).to_bytes(8, "little")
    assert data[16:24] == (8).to_bytes(8, "little")
    assert [data[at] for at in (24, 28, 32, 36, 40)] == [3, 61, 5, FRAME_KIND_BATCH, 2]
    assert data[4:8] == crc32c(data[8:48] + content).to_bytes(4, "little")
    assert data[48 : 48 + 61] == content
    assert len(data) == frame.frame_bytes == 128
    assert read_frame(data, 64) == frame
    assert read_frame(data, 0) is None


def test_a_scan_ends_at_a_frame_of_an_earlier_life() -> None:
    good = batch(b"v")
    frames = [
        PlainFrame(0, 0, 4, 1, FRAME_KIND_BATCH, 1, good),
        PlainFrame(192, 0, 4, 0, FRAME_KIND_PADDING, 0, bytes(16)),
        PlainFrame(256, 0, 3, 1, FRAME_KIND_BATCH, 1, good),
    ]
    assert frames[0].frame_bytes == 128
    wal = frames[0].encode() + PlainFrame(128, 0, 4, 0, FRAME_KIND_PADDING, 0, bytes(16)).encode()
    wal += frames[1].encode()
    read, end, generation = scan(wal + frames[2].encode(), 0, 0)
    assert ([frame.position for frame in read], end, generation) == ([0, 128, 192], 256, 4)


@pytest.mark.parametrize(
    ("tail", "size", "expected"),
    [
        pytest.param(Tail(1024, 512), 512, ([], 0), id="the whole of a segment"),
        pytest.param(Tail(1024, 512, 448, 512), 128, ([(448, 512)], 512), id="over its end"),
        pytest.param(Tail(1024, 4096, 960, 4096), 128, ([(960, 1024)], None), id="over the ring"),
        pytest.param(Tail(1024, 512, 1024, 1024), 64, ([], None), id="not written yet"),
        pytest.param(Tail(1024, 512, 1024, 1024, 64), 64, ([], 1024), id="written"),
    ],
)
def test_frames_are_placed(
    tail: Tail, size: int, expected: tuple[list[tuple[int, int]], int | None]
) -> None:
    assert tail.place(size) == expected


def test_an_index_finds_only_its_last_entries() -> None:
    entries = [PlainEntry(0, 128 * i, 2 * i, 2, 70, 10 - i) for i in range(5)]
    index = PlainIndex(3, entries)
    assert [index.find(0, offset) for offset in (3, 4, 5, 9, 99)] == [-1, 2, 2, 4, 4]
    assert index.first(0) == 2
    assert index.first(1) == -1
    assert index.choose(0, 3, 99, 1000, 9) is None
    assert index.choose(0, 5, 99, 0, 9) == [(2 * 128 + 48, 70)]
    assert index.choose(0, 5, 8, 1000, 9) == [(304, 70), (432, 70)]
    assert index.choose(0, 5, 99, 140, 9) == [(304, 70), (432, 70)]
    assert index.find_time(0, 2, 99, 8) == 2
    assert index.find_time(0, 3, 99, 8) == -1
    assert index.publish({0: 1}, 1, 256) == {0: 4}
    assert index.publish({0: 1}, 2, 256) == {}
