"""CRC-32C by the processor's instruction, by tables, and a bit at a time."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shm.kernels.base.crc32c import (
    HAS_INSTRUCTION,
    STREAM_BYTES,
    STREAM_BYTES_SMALL,
    crc32c,
    crc32c_update,
    update_by_table,
)
from shm.kernels.twin import log as reference

SIZES = [0, 1, 7, 8, 9, 63, 64, *(3 * STREAM_BYTES_SMALL + i for i in (-1, 0, 1, 8))]
SIZES += [3 * STREAM_BYTES + i for i in (-8, -1, 0, 5)]
SIZES += [6 * STREAM_BYTES + 3 * STREAM_BYTES_SMALL + 13]
ONES = np.uint32(0xFFFFFFFF)


def array(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


@pytest.mark.parametrize(
    ("data", "check"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),  # This and the next: RFC 3720, appendix B.4.
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
    ],
)
def test_known_checks(data: bytes, check: int) -> None:
    assert crc32c(array(data), 0, len(data)) == check
    assert reference.crc32c(data) == check


def test_this_machine_has_the_instruction_that_the_speed_is_promised_with() -> None:
    assert HAS_INSTRUCTION


@pytest.mark.parametrize("size", SIZES)
def test_every_way_through_the_streams_agrees_with_bit_by_bit(size: int) -> None:
    data = np.random.default_rng(size).integers(0, 256, size + 3, np.uint8)
    plain = reference.crc32c(data[3:].tobytes())
    assert crc32c(data, 3, size + 3) == plain
    assert update_by_table(data, 3, size + 3, ONES) ^ ONES == plain


@settings(deadline=None)
@given(st.binary(max_size=700), st.integers(0, 700), st.integers(0, 700))
def test_a_check_goes_on_where_another_ended(data: bytes, a: int, b: int) -> None:
    first, second = sorted((a % (len(data) + 1), b % (len(data) + 1)))
    running = crc32c_update(array(data), first, second, ONES)
    running = crc32c_update(array(data), second, len(data), running)
    assert running ^ ONES == reference.crc32c(data[first:])
    assert reference.crc32c(data[second:], reference.crc32c(data[first:second])) == running ^ ONES
