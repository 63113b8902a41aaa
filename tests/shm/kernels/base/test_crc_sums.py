"""The check of a part by sums is the one by reading it."""

import random

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shm.kernels.base.crc32c import crc32c_update
from shm.kernels.base.crc_sums import (
    CHUNK_BYTES,
    LONG_BYTES,
    crc32c_update_by_sums,
    new_sums,
)

DATA = np.random.default_rng(1).integers(0, 256, 1 << 17, np.uint8)
KERNELS = [crc32c_update_by_sums, getattr(crc32c_update_by_sums, "py_func")]  # noqa: B009
places = st.one_of(
    st.integers(0, len(DATA)),
    st.integers(0, len(DATA) // CHUNK_BYTES).map(lambda chunk: chunk * CHUNK_BYTES),
)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(places, places, st.integers(0, 2**32 - 1)), max_size=6))
def test_parts_in_any_order_have_the_check_that_reading_gives(
    parts: list[tuple[int, int, int]],
) -> None:
    for kernel in KERNELS:
        sums = new_sums(len(DATA))
        for a, b, crc in parts:
            start, end = sorted((a, b))
            plain = crc32c_update(DATA, start, end, np.uint32(crc))
            assert kernel(DATA, start, end, np.uint32(crc), sums) == plain


@pytest.mark.parametrize("size", [0, 1, LONG_BYTES - 1, LONG_BYTES, LONG_BYTES + 1, len(DATA)])
@pytest.mark.parametrize("start", [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES])
def test_parts_at_the_edges_have_the_check_that_reading_gives(start: int, size: int) -> None:
    data = DATA[: start + size]
    sums = new_sums(len(data))
    plain = crc32c_update(data, start, len(data), np.uint32(7))
    assert crc32c_update_by_sums(data, start, len(data), np.uint32(7), sums) == plain


def test_each_chunk_is_read_once_and_no_further_than_is_needed() -> None:
    data, sums = DATA.copy(), new_sums(len(DATA))
    end = 9 * CHUNK_BYTES + 5
    plain = crc32c_update_by_sums(data, 64, end, np.uint32(0), sums)
    assert sums[0] == 9
    assert not sums[11:].any()
    data[2 * CHUNK_BYTES : 9 * CHUNK_BYTES] = 0
    assert crc32c_update_by_sums(data, 64, end, np.uint32(0), sums) == plain


def test_bytes_that_were_passed_may_change() -> None:
    """A snapshot of some topics blanks the frames of others while it walks."""
    data, sums, chance = DATA.copy(), new_sums(len(DATA)), random.Random(3)
    crc32c_update_by_sums(data, 0, 50_000, np.uint32(0), sums)
    at = 0
    while at < len(data):
        data[:at] = 0
        plain = crc32c_update(data, at, len(data), np.uint32(1))
        assert crc32c_update_by_sums(data, at, len(data), np.uint32(1), sums) == plain
        at += chance.randrange(1, 5000)


def test_without_room_for_sums_a_part_is_read() -> None:
    plain = crc32c_update(DATA, 1, len(DATA), np.uint32(0))
    for room in (0, 1, 2, len(new_sums(len(DATA))) - 1):
        sums = np.zeros(room, np.int64)
        assert crc32c_update_by_sums(DATA, 1, len(DATA), np.uint32(0), sums) == plain
        assert not sums.any()
