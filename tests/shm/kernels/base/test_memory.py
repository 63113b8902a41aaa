"""Kernels and NumPy views find the same words in a log's memory."""

import numpy as np
import pytest

from shm.kernels.base import memory as kernels
from shm.kernels.base.memory import (
    get_partition,
    get_word,
    release_partition,
    release_word,
    ring_at,
    set_partition,
    set_word,
    write_entry,
)
from shm.kernels.base.words import P_EPOCH, WORD_SYNCED, WORD_TAIL
from shm.segment import LogMemory

ENTRY = {
    "position": -(2**62),
    "base_offset": 2**40,
    "max_timestamp": -1,
    "record_count": 2**31 - 1,
    "bytes": 77,
    "attributes": -3,
}


@pytest.fixture
def log() -> LogMemory:
    return LogMemory.in_process(0, 1 << 15, 1 << 14, 3)


@pytest.mark.parametrize("write", [set_word, release_word])
def test_words_of_the_header(log: LogMemory, write: object) -> None:
    assert callable(write)
    write(log.memory, WORD_TAIL, -(2**63))
    write(log.memory, WORD_SYNCED, 5)
    assert log.words[WORD_TAIL] == get_word(log.memory, WORD_TAIL) == -(2**63)
    assert log.words[WORD_SYNCED] == 5


@pytest.mark.parametrize("write", [set_partition, release_partition])
def test_columns_of_partitions(log: LogMemory, write: object) -> None:
    assert callable(write)
    write(log.memory, 2, P_EPOCH, 9)
    assert log.partitions[2, P_EPOCH] == get_partition(log.memory, 2, P_EPOCH) == 9
    assert int(np.count_nonzero(log.partitions)) == 1


def test_the_ring_is_the_end_of_the_memory(log: LogMemory) -> None:
    assert ring_at(log.memory) == log.layout.ring_at


@pytest.mark.parametrize("i", [0, 1, -1])
def test_an_entry_is_in_all_columns_and_in_its_slot_only(log: LogMemory, i: int) -> None:
    slot = i % log.layout.index_capacity
    shape = (ENTRY["record_count"], ENTRY["bytes"], ENTRY["attributes"])
    times = (ENTRY["base_offset"], ENTRY["max_timestamp"])
    write_entry(log.memory, slot, ENTRY["position"], *times, 2**32 - 1, shape)
    assert log.column("partition")[slot] == 2**32 - 1
    for name, value in ENTRY.items():
        assert getattr(kernels, f"entry_{name}")(log.memory, slot) == value
        assert log.column(name)[slot] == value
        assert int(np.count_nonzero(log.column(name))) == 1
    assert not log.ring.any()
    assert not log.partitions.any()
