"""Searching an index with jumps gives a plain list's results, in few steps."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shm.kernels.base.entries import LINK_JUMP
from shm.kernels.base.words import P_LAST_ENTRY, P_LOG_END, WORD_INDEX_TAIL
from shm.kernels.log import index as kernels
from shm.kernels.log.index import find_entry, find_timestamp, first_entry, window_start
from tests.shm.kernels.indexes import SLOTS, Index, appends

JUMP_FROM: Any = kernels._jump_from
EARLIEST_IN: Any = kernels._earliest_in
FIND_TIMESTAMP: Any = kernels.find_timestamp
JUMPS = [-1, 0, 1, 0, 3, 4, 3, 0, 7, 8, 7, 10, 11, 10, 7, 0]


@settings(deadline=None)
@given(appends)
def test_every_offset_is_found_where_a_plain_list_has_it(
    batches: list[tuple[int, int, int]],
) -> None:
    index = Index(batches)
    for slot in range(SLOTS):
        assert first_entry(index.log.memory, index.links, slot) == index.twin.first(slot)
        for offset in range(-1, int(index.log.partitions[slot, P_LOG_END]) + 2):
            found = find_entry(index.log.memory, index.links, slot, offset)
            assert found == index.twin.find(slot, offset)


@settings(deadline=None)
@given(appends, st.one_of(st.just(2**62), st.integers(-1, 60)), st.integers(-2, 51))
def test_a_timestamp_is_found_from_any_entry_on_as_by_the_twin(
    batches: list[tuple[int, int, int]], limit: int, timestamp: int
) -> None:
    index = Index(batches)
    oldest = window_start(index.log.memory)
    for entry, (slot, _, _) in enumerate(batches):
        if entry >= oldest:
            found = find_timestamp(index.log.memory, index.links, slot, entry, limit, timestamp)
            assert found == index.twin.find_time(slot, entry, limit, timestamp)


def test_a_partition_without_entries_has_no_time() -> None:
    index = Index([(0, 1, 5)])
    for first in (-1, 0):
        args = (index.log.memory, index.links, 1, first, 2**62, 0)
        assert find_timestamp(*args) == FIND_TIMESTAMP.py_func(*args) == -1


class Counted:
    """Links that count how often they are looked at."""

    def __init__(self, links: np.ndarray) -> None:
        self.links, self.looks = links, 0

    def __getitem__(self, place: Any) -> Any:
        self.looks += 1
        return self.links[place]


@pytest.mark.parametrize("first", [0, 1, 31])
@pytest.mark.parametrize("late", range(32, 64, 5))
def test_a_search_for_a_time_takes_a_logarithm_of_steps(
    monkeypatch: pytest.MonkeyPatch, first: int, late: int
) -> None:
    index = Index([(0, 1, 1000 if i == late else i) for i in range(64)])
    links, search = Counted(index.links), FIND_TIMESTAMP.py_func
    monkeypatch.setattr(kernels, "find_entry", lambda *_: 63)
    monkeypatch.setattr(kernels, "_earliest_in", EARLIEST_IN.py_func)
    assert search(index.log.memory, links, 0, first, 2**62, 999) == late
    assert links.looks <= 3 * 2 * 6 + 5 * 6


def test_entries_are_published_whole_and_in_their_columns() -> None:
    index = Index([(0, 2, 5), (2, 1, -1)])
    assert index.log.words[WORD_INDEX_TAIL] == 2
    assert index.log.column("partition")[:2].tolist() == [30, 32]
    assert index.log.column("position")[:2].tolist() == [0, 128]
    assert index.log.column("record_count")[:2].tolist() == [2, 1]
    assert index.log.column("max_timestamp")[:2].tolist() == [5, -1]


def test_the_window_is_the_last_entries() -> None:
    index = Index([(0, 1, 0)] * 70)
    assert index.log.layout.index_capacity == 64
    assert window_start(index.log.memory) == 6


def steps_to(index: Index, offset: int) -> int:
    """How many entries a search looks at."""
    capacity, entry, steps = index.log.layout.index_capacity, 0, 0
    bases = index.log.column("base_offset")
    entry = int(index.log.partitions[0, P_LAST_ENTRY])
    while bases[entry % capacity] > offset:
        jump = int(index.links[LINK_JUMP, entry % capacity])
        entry = jump if jump >= 0 and bases[jump % capacity] > offset else entry - 1
        steps += 1
    return steps


def test_a_search_takes_a_logarithm_of_steps() -> None:
    index = Index([(0, 1, 0)] * 64)
    assert max(steps_to(index, offset) for offset in range(64)) <= 3 * 6


@pytest.mark.parametrize("interpreted", [False, True], ids=["compiled", "interpreted"])
def test_jumps_double_as_in_a_skew_binary_list(interpreted: bool) -> None:
    jump_from = JUMP_FROM.py_func if interpreted else JUMP_FROM
    links = np.full((5, 16), -1, np.int64)
    jumps = [-1]
    links[3, 0] = 0
    for entry in range(1, 16):
        links[3, entry] = entry
        links[LINK_JUMP, entry] = jump_from(links, entry - 1, 0, 16)
        jumps.append(int(links[LINK_JUMP, entry]))
    assert jumps == JUMPS
