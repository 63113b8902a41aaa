"""Frames as the twin writes and reads them; no flip goes unseen."""

import struct

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shm.kernels.base.crc_sums import LONG_BYTES, new_sums
from shm.kernels.base.frames import (
    OFFSETS_END,
    batch_crc_is_good,
    batch_crc_is_good_by_sums,
    frame_bytes,
    frame_check,
    frame_is_good,
    frame_is_good_by_sums,
    frame_is_made_up,
    frame_is_whole,
    write_frame_header,
)
from shm.kernels.base.words import (
    BATCH_LENGTH_AT,
    BATCH_OVERHEAD_BYTES,
    FRAME_KIND_BATCH,
    FRAME_KIND_PADDING,
    FRAME_KIND_SKIPPABLE,
)
from shm.kernels.twin.log import PlainFrame, batch_is_good, read_frame
from tests.oracle.batches import batch

BATCH = batch(b"value")
FRAME = PlainFrame(640, 128, 2**32 - 1, 7, FRAME_KIND_BATCH, 2, BATCH)
PADDING = PlainFrame(640, 128, 3, 0, FRAME_KIND_PADDING, 0, bytes(80))
UNKNOWN = PlainFrame(640, 128, 3, 9, FRAME_KIND_SKIPPABLE | 17, 1, b"what a later version says")
KINDS = [FRAME_KIND_BATCH, FRAME_KIND_PADDING, 3, FRAME_KIND_SKIPPABLE | 1, 2**31 - 1]
FRAMES, IDS = [FRAME, PADDING, UNKNOWN], ["batch", "padding", "unknown"]


def array(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


def fitting(content: bytes, base_offset: int = 0, delta: int = 0) -> bytes:
    """A batch of this content whose header fits its frame."""
    length = len(content) - BATCH_OVERHEAD_BYTES
    head = struct.pack(">qiib", base_offset, length, 0, 2) + content[17:23]
    return head + struct.pack(">i", delta) + content[27:]


def aligned(frame: PlainFrame) -> PlainFrame:
    """The frame; shortened if it is padding that ends where no frame may begin."""
    if frame.kind != FRAME_KIND_PADDING:
        return frame
    size = 48 + len(frame.content)
    return frame._replace(content=frame.content[: size - size % 64 - 48])


frames = st.builds(
    PlainFrame,
    position=st.integers(0, 2**50),
    synced=st.integers(0, 2**50),
    generation=st.integers(0, 2**32 - 1),
    partition=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(KINDS),
    level=st.integers(0, 2),
    content=st.binary(min_size=61, max_size=200).map(fitting),
).map(aligned)


@settings(deadline=None)
@given(frames)
def test_a_header_is_written_as_the_twin_writes_it(frame: PlainFrame) -> None:
    position, synced, generation, partition, kind, level, data = frame
    memory = np.zeros(3 + 48 + len(data), np.uint8)
    memory[51:] = array(data)
    stamps = (synced, generation)
    write_frame_header(memory, 3, position, stamps, len(data), partition, kind, level)
    assert memory[3:].tobytes() == frame.header() + data
    assert frame_check(memory, 3) == int.from_bytes(frame.header()[4:8], "little")
    whole = frame.encode()
    assert frame_is_good(array(whole), 0, len(whole), position)
    assert read_frame(whole, position) == frame


@pytest.mark.parametrize("size", [0, 1, 16, 17, 61, 80, 81, 1 << 20])
def test_a_frame_takes_whole_lines_and_not_one_more(size: int) -> None:
    assert frame_bytes(size) % 64 == 0
    assert 0 <= frame_bytes(size) - 48 - size < 64


@pytest.mark.parametrize("frame", FRAMES, ids=IDS)
def test_no_flip_of_a_bit_goes_unseen_and_the_twin_agrees(frame: PlainFrame) -> None:
    whole = frame.encode()
    checked = {FRAME: 48 + 61, PADDING: 48, UNKNOWN: 48 + len(UNKNOWN.content)}[frame]
    for bit in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        good = frame_is_good(array(bytes(flipped)), 0, len(flipped), 640)
        assert good == (bit >= 8 * checked)
        assert good == (read_frame(bytes(flipped), 640) is not None)


@pytest.mark.parametrize("bit", range(8 * 17, 8 * len(BATCH), 5))
def test_flips_behind_the_header_are_seen_by_the_batchs_own_crc(bit: int) -> None:
    flipped = bytearray(BATCH)
    flipped[bit // 8] ^= 1 << bit % 8
    assert not batch_crc_is_good(array(bytes(flipped)), 0, len(flipped))
    assert not batch_is_good(bytes(flipped))


def test_a_good_batch_has_a_good_crc() -> None:
    assert batch_crc_is_good(array(BATCH), 0, len(BATCH))
    assert batch_is_good(BATCH)


@pytest.mark.parametrize("frame", FRAMES, ids=IDS)
def test_a_frame_that_is_cut_or_elsewhere_is_none(frame: PlainFrame) -> None:
    whole = frame.encode()
    for end in range(len(whole)):
        assert not frame_is_good(array(whole), 0, end, 640)
        assert read_frame(whole[:end], 640) is None
    assert not frame_is_good(array(whole), 0, len(whole), 704)
    assert not frame_is_good(array(b"\0" + whole), 0, len(whole) + 1, 640)


@pytest.mark.parametrize("kind", [*KINDS, 0, -1, -(2**31)])
@pytest.mark.parametrize("size", [-(2**31), -64, -1, 0, 60, 80, 81, 2**31 - 1])
def test_a_size_that_cannot_be_makes_no_frame_though_the_check_is_right(
    kind: int, size: int
) -> None:
    low = 61 if kind == FRAME_KIND_BATCH else 0
    fits = kind > 0 and low <= size <= 80 and (kind != FRAME_KIND_PADDING or size == 80)
    data = np.zeros(128, np.uint8)
    data[48:] = array(fitting(bytes(80)))
    data[48 + BATCH_LENGTH_AT :][:4] = array(((size - 12) & 2**32 - 1).to_bytes(4))
    if kind in {FRAME_KIND_BATCH, FRAME_KIND_PADDING} or kind <= 0 or fits:
        write_frame_header(data, 0, 0, (0, 0), size, 0, kind, 0)
    else:  # The check of what is not there cannot be right.
        data[:48] = array(PlainFrame(0, 0, 0, 0, kind, 0, b"").header())
        data[28:32] = array(size.to_bytes(4, "little", signed=True))
    assert frame_is_good(data, 0, 128, 0) == fits
    assert (read_frame(data.tobytes(), 0) is not None) == fits


@pytest.mark.parametrize(
    ("changed", "fits"),
    [
        (fitting(BATCH), True),
        (fitting(BATCH, OFFSETS_END - 1), True),
        (fitting(BATCH, OFFSETS_END - 2**31, 2**31 - 1), True),
        (fitting(BATCH, OFFSETS_END), False),
        (fitting(BATCH, OFFSETS_END - 2**31 + 1, 2**31 - 1), False),
        (fitting(BATCH, 2**63 - 1, 2**31 - 1), False),
        (fitting(BATCH, -1), False),
        (fitting(BATCH, -(2**63)), False),
        (fitting(BATCH, 0, -1), False),
        (fitting(BATCH, 0, -(2**31)), False),
        *((BATCH[:8] + struct.pack(">i", n) + BATCH[12:], False) for n in (-(2**31), 49, 5000)),
        (BATCH[:16] + b"\x01" + BATCH[17:], False),
    ],
)
def test_a_batch_that_no_log_writes_makes_no_frame_though_the_check_is_right(
    changed: bytes, *, fits: bool
) -> None:
    """Of a restored snapshot: a batch longer than its frame ended each start of the shard, a
    shorter one ended clients."""
    whole = FRAME._replace(content=changed).encode()
    assert frame_is_whole(array(whole), 0, len(whole), 640)
    assert frame_is_good(array(whole), 0, len(whole), 640) == fits
    assert (read_frame(whole, 640) is not None) == fits
    assert frame_is_good_by_sums(array(whole), 0, len(whole), 640, new_sums(len(whole))) == fits
    assert frame_is_made_up(array(whole), 0, len(whole), 640) == (not fits)


@pytest.mark.parametrize("size", range(200))
def test_padding_ends_where_a_frame_may_begin(size: int) -> None:
    """Behind other padding of a restored snapshot each start of the shard ended."""
    whole = PADDING._replace(content=bytes(size)).encode()
    fits = (48 + size) % 64 == 0
    assert frame_is_whole(array(whole), 0, len(whole), 640)
    assert frame_is_good(array(whole), 0, len(whole), 640) == fits
    assert (read_frame(whole, 640) is not None) == fits
    assert frame_is_good_by_sums(array(whole), 0, len(whole), 640, new_sums(len(whole))) == fits
    assert frame_is_made_up(array(whole), 0, len(whole), 640) == (not fits)


@pytest.mark.parametrize(
    "frame", [FRAME._replace(content=fitting(BATCH, -1)), PADDING._replace(content=bytes(81))]
)
def test_only_a_whole_frame_of_a_known_kind_counts_as_made_up(frame: PlainFrame) -> None:
    made_up = frame.encode()
    for good in (FRAME, PADDING, UNKNOWN):
        assert not frame_is_made_up(array(good.encode()), 0, len(good.encode()), 640)
    assert not frame_is_made_up(array(made_up), 0, len(made_up), 704)
    for end in range(len(made_up)):
        assert not frame_is_made_up(array(made_up), 0, end, 640)
    damaged = made_up[:40] + bytes([made_up[40] ^ 1]) + made_up[41:]
    assert not frame_is_made_up(array(damaged), 0, len(damaged), 640)


@pytest.mark.parametrize("size", [61, LONG_BYTES, 5 * LONG_BYTES + 7])
@pytest.mark.parametrize("kind", KINDS)
def test_by_sums_a_frame_is_as_good_as_by_reading(kind: int, size: int) -> None:
    content = np.random.default_rng(size).integers(0, 256, size, np.uint8).tobytes()
    whole = FRAME._replace(kind=kind, content=fitting(content)).encode()
    for flipped in (None, 5, 40, 48 + 30, len(whole) // 2, 48 + size - 1):
        data = array(whole).copy()
        if flipped is not None:
            data[flipped] ^= 4
        sums = new_sums(len(data))
        plain = frame_is_good(data, 0, len(data), 640)
        assert frame_is_good_by_sums(data, 0, len(data), 640, sums) == plain


@pytest.mark.parametrize("size", [1, LONG_BYTES, 5 * LONG_BYTES])
def test_by_sums_a_batchs_crc_is_as_good_as_by_reading(size: int) -> None:
    good = batch(bytes(size))
    for flipped in (None, 17, 30, len(good) // 2, len(good) - 1):
        data = array(good).copy()
        if flipped is not None:
            data[flipped] ^= 4
        assert batch_crc_is_good_by_sums(data, 0, len(data), new_sums(len(data))) == (
            flipped is None
        )
