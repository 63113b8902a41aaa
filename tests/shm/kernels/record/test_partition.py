"""Partitions of keys: compiled and plain agree, and both with what Kafka says."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shm.arrow import read_only
from shm.kernels.record.partition import assign_partitions, murmur2
from shm.kernels.record.records import C_FIELDS, C_KEY_AT, C_KEY_LENGTH
from smq.model import partitioner as plain

KEYLESS = 2


def assigned(keys: list[bytes | None], wanted: list[int], partition_count: int) -> list[int]:
    columns = np.zeros((C_FIELDS, len(keys)), np.int64)
    columns[C_KEY_LENGTH] = [-1 if key is None else len(key) for key in keys]
    columns[C_KEY_AT, 1:] = np.cumsum(np.maximum(columns[C_KEY_LENGTH], 0))[:-1]
    partitions = np.array(wanted, np.int64)
    data = read_only(b"".join(key or b"" for key in keys))
    filled = assign_partitions(columns, data, partition_count, KEYLESS, partitions)
    assert filled == sum(each < 0 for each in wanted)
    found: list[int] = partitions.tolist()
    return found


@settings(deadline=None)
@given(st.binary(max_size=40), st.integers(0, 3))
def test_the_hash_is_that_of_the_twin(key: bytes, shift: int) -> None:
    data = read_only(bytes(shift) + key + b"behind")
    assert murmur2(data, shift, len(key)) == plain.murmur2(key)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.none() | st.binary(max_size=9), st.integers(-1, 6)), min_size=1),
    st.integers(1, 7),
)
def test_a_row_goes_to_its_given_partition_or_to_that_of_its_key(
    rows: list[tuple[bytes | None, int]], partition_count: int
) -> None:
    def expected(key: bytes | None, told: int) -> int:
        if told >= 0:
            return told
        return KEYLESS if key is None else plain.partition_of_key(key, partition_count)

    keys, wanted = [list(each) for each in zip(*rows, strict=True)]
    found = assigned(keys, wanted, partition_count)
    assert found == [expected(key, told) for key, told in rows]


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
    ],
)
def test_the_hash_is_kafkas(key: bytes, hashed: int) -> None:
    """The values of Kafka's own UtilsTest."""
    assert murmur2(read_only(key), 0, len(key)) == hashed & 0xFFFFFFFF


def test_interpreted_it_is_the_same() -> None:
    interpreted: Any = assign_partitions
    columns = np.full((C_FIELDS, 2), -1, np.int64)
    partitions = np.array([-1, 4], np.int64)
    assert interpreted.py_func(columns, read_only(b""), 8, KEYLESS, partitions) == 1
    assert partitions.tolist() == [KEYLESS, 4]
