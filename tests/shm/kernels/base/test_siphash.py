"""SipHash under a key: the kernels, compiled and interpreted, say what the twins say."""

from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shm.arrow import read_only
from shm.kernels.base.siphash import KEY_BYTES, sip_hash, sip_hash_128
from shm.kernels.twin.keys import sip_hash_128 as plain_128
from shm.kernels.twin.produce import sip_hash as plain

keys = st.binary(min_size=KEY_BYTES, max_size=KEY_BYTES)


@settings(deadline=None)
@given(key=keys, data=st.binary(max_size=80), shift=st.integers(0, 3))
def test_hashes_are_those_of_the_twins(key: bytes, data: bytes, shift: int) -> None:
    k0, k1 = np.frombuffer(key, np.uint64)
    array = read_only(bytes(shift) + data + b"behind")
    assert int(sip_hash(k0, k1, array, shift, len(data))) == plain(key, data)
    found = sip_hash_128(k0, k1, array, shift, len(data))
    assert tuple(map(int, found)) == plain_128(key, data)


@pytest.mark.parametrize("size", [0, 7, 300])
def test_lengths_beyond_a_byte_and_other_keys_give_other_hashes(size: int) -> None:
    array, words = read_only(bytes(size + 256)), np.arange(2, dtype=np.uint64)
    hashes = {
        int(cast("Any", sip_hash)(words[0], words[key], array, 0, length))
        for key in (0, 1)
        for length in (size, size + 1, size + 256)
    }
    assert len(hashes) == 6
