"""The bit of a partition, compiled, interpreted and in plain Python."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from shm.kernels.log.bitmaps import NOBODYS, READS, WRITES, bitmap_at, is_set
from shm.kernels.twin.bitmaps import is_allowed

SIZE = 3  # Words of a bitmap.
slots = st.integers(0, 64 * SIZE - 1)
codes = st.one_of(
    st.builds(lambda log, slot: log << 32 | slot, st.integers(0, 3), slots),
    st.sampled_from([-1, -3]),
)


def bitmaps_of(row: int, operation: int, allowed: set[int]) -> np.ndarray:
    """Four rows, of which one bitmap has bits."""
    bitmaps = np.zeros(4 * 2 * SIZE, np.uint64)
    at = SIZE * (2 * row + operation)
    for slot in allowed:
        bitmaps[at + slot // 64] |= np.uint64(1) << np.uint64(slot % 64)
    return bitmaps.view(np.int64)


@given(allowed=st.sets(slots), code=codes, row=st.integers(1, 3), operation=st.integers(0, 1))
def test_a_bit_says_what_the_twin_says(
    allowed: set[int], code: int, row: int, operation: int
) -> None:
    bitmaps = bitmaps_of(row, operation, allowed)
    for get_at, look in ((bitmap_at, is_set), (bitmap_at.py_func, is_set.py_func)):  # type: ignore[attr-defined]
        at = get_at(SIZE, row, operation)
        assert bool(look(bitmaps, at, code)) == is_allowed(allowed, code)


@pytest.mark.parametrize("operation", [WRITES, READS])
def test_bitmaps_do_not_overlap_and_the_first_row_has_no_bit(operation: int) -> None:
    bitmaps = bitmaps_of(1, operation, set(range(64 * SIZE)))
    for row in (NOBODYS, 1, 2):
        for other in (WRITES, READS):
            at = bitmap_at(SIZE, row, other)
            has_bits = [bool(is_set(bitmaps, at, slot)) for slot in (0, 63, 64, 64 * SIZE - 1)]
            assert has_bits == [(row, other) == (1, operation)] * 4
