"""The search for handles: it finds what `bytes.find` finds, wherever it stands."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shm.kernels.record.references import HEADER_KEY, LANES, find_key, may_refer
from smq.testing.payloads import handle_batch, reference_to
from smq.wire.compression import Codec
from smq.wire.records import Record, write_batch

# Bytes that are likely to be nearly the key.
PARTS = [HEADER_KEY, HEADER_KEY[:-1], HEADER_KEY[1:]]
NEARLY = st.lists(st.one_of(st.binary(max_size=LANES), st.sampled_from(PARTS)), max_size=8).map(
    b"".join
)


def array(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


@settings(deadline=None)
@given(NEARLY, st.integers(0, 300), st.integers(0, 300))
def test_it_finds_the_first_of_a_range(data: bytes, at: int, cut: int) -> None:
    end = max(at, len(data) - cut)
    at = min(at, len(data))
    end = min(end, len(data))
    assert find_key(array(data), at, end) == data.find(HEADER_KEY, at, max(at, end - 1))


@pytest.mark.parametrize("at", range(2 * LANES + 2))
def test_it_finds_it_at_every_place(at: int) -> None:
    data = bytes(at) + HEADER_KEY + bytes(2 * LANES + 3 - at)
    assert find_key(array(data), 0, len(data)) == at
    assert find_key(array(data), 0, at + len(HEADER_KEY)) == -1


def test_it_reads_nothing_behind_the_end() -> None:
    data = array(bytes(100) + HEADER_KEY)
    assert find_key(data, 0, 100 + 7) == -1
    assert find_key(data, 0, 0) == -1


def test_a_batch_with_a_handle_may_refer_and_a_plain_one_does_not() -> None:
    for batch, may in (
        (handle_batch([b"plain", reference_to(b"x"), b"plain"]), True),
        (handle_batch([b"plain smq-rex"] * 50), False),
        (handle_batch([b"looks like smq-ref"]), True),
    ):
        data = array(b"before" + batch + b"behind")
        assert bool(may_refer(data, 6, len(batch))) == may


def test_a_compressed_batch_is_not_looked_into() -> None:
    record = Record(0, 0, None, b"\x0esmq-ref" * 10, ((b"smq-ref", b"1"),))
    for codec in Codec:
        batch = array(write_batch([record], compression=codec))
        assert bool(may_refer(batch, 0, len(batch))) == (codec == Codec.NONE)
