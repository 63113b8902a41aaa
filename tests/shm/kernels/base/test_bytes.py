"""Numbers in bytes, at any place, in both orders."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shm.kernels.base import bytes as kernels
from tests.shm.kernels.byte_kernels import LOADS, STORES, copied

PAD = 9


@settings(deadline=None)
@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 8))
@pytest.mark.parametrize("order", ["big", "little"])
@pytest.mark.parametrize("bits", [16, 32, 64])
def test_a_number_is_stored_and_loaded_as_python_does(
    order: str, bits: int, value: int, at: int
) -> None:
    data = np.full(8 + PAD, 0xAB, np.uint8)
    STORES[order, bits](data, at, value)
    low = (value & (1 << bits) - 1).to_bytes(bits // 8, order)  # type: ignore[arg-type]
    expected = bytearray(b"\xab" * (8 + PAD))
    expected[at : at + bits // 8] = low
    assert data.tobytes() == bytes(expected)
    signed = int.from_bytes(low, order, signed=True)  # type: ignore[arg-type]
    assert LOADS[order, bits](data, at) == signed


def test_an_unsigned_word_is_not_negative() -> None:
    data = np.full(8, 0xFF, np.uint8)
    assert kernels.load_u32(data, 1) == 0xFFFFFFFF


@settings(deadline=None)
@given(st.binary(max_size=50), st.integers(0, 50), st.integers(0, 20))
def test_bytes_are_copied_and_none_beside_them(data: bytes, start: int, at: int) -> None:
    start = min(start, len(data))
    target = np.full(80, 1, np.uint8)
    copied(target, at, np.frombuffer(data, np.uint8), start, len(data) - start)
    expected = bytearray(b"\1" * 80)
    expected[at : at + len(data) - start] = data[start:]
    assert target.tobytes() == bytes(expected)


@settings(deadline=None)
@given(st.integers(0, 300), st.integers(0, 40), st.integers(0, 40), st.integers(0, 40))
def test_short_bytes_are_copied_whole_and_none_is_touched_before_or_far_behind(
    length: int, at: int, start: int, more: int
) -> None:
    source = np.arange(start + length + more).astype(np.uint8)
    target = np.full(at + length + more, 255, np.uint8)
    kernels.copy_short(target, at, source, start, length)
    assert (target[:at] == 255).all()
    assert target[at : at + length].tobytes() == source[start : start + length].tobytes()
    assert (target[at + length + kernels.BLOCK_BYTES :] == 255).all()


def test_a_kernel_compiles_for_read_only_bytes_too() -> None:
    assert LOADS["big", 32](np.frombuffer(b"\0\0\1\0", np.uint8), 0) == 256
