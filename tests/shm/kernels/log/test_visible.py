"""High watermarks rise to what has reached a partition's level, and only there."""

import numpy as np
from hypothesis import given, settings, strategies as st

from shm.kernels.base.words import (
    DURABILITY_SHIFT,
    P_DIRTY,
    P_FLAGS,
    P_HIGH_WATERMARK,
    P_LAST_STABLE,
    P_LOG_END,
    P_NUMBER,
)
from shm.kernels.log.visible import publish
from tests.shm.kernels.indexes import SLOTS, Index, appends

LEVELS = {0: 0, 1: 1, 2: 1}


def index_of(batches: list[tuple[int, int, int]]) -> Index:
    """At most as many as the window holds: what is overwritten has been published before."""
    index = Index(batches[:60])
    for slot, level in LEVELS.items():
        index.log.partitions[slot, P_FLAGS] = level << DURABILITY_SHIFT
    return index


def publish_all(index: Index, cursors: np.ndarray, level: int, upto: int, room: int) -> set[int]:
    """The slots touched, however many calls it takes."""
    touched, slots = np.zeros(room, np.int64), set[int]()
    while count := publish(index.log.memory, index.links, cursors, level, upto, touched):
        assert len(set(touched[:count].tolist())) == count
        slots.update(touched[:count].tolist())
    return slots


@settings(deadline=None)
@given(
    appends,
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 60)), max_size=8),
    st.integers(1, 3),
)
def test_watermarks_move_as_in_the_twin(
    batches: list[tuple[int, int, int]], steps: list[tuple[int, int]], room: int
) -> None:
    index, cursors = index_of(batches), np.zeros(3, np.int64)
    reached = dict.fromkeys(LEVELS.values(), 0)
    for level, frames in steps:
        if 128 * frames < reached.get(level, 0):
            continue
        reached[level] = 128 * frames
        before = index.log.partitions[:, P_HIGH_WATERMARK].tolist()
        touched = publish_all(index, cursors, level, 128 * frames, room)
        marks = index.twin.publish(LEVELS, level, 128 * frames)
        for slot in range(SLOTS):
            mark = int(index.log.partitions[slot, P_HIGH_WATERMARK])
            assert mark == marks.get(slot, before[slot])
            assert (slot in touched) == (mark != before[slot])
            assert mark == index.log.partitions[slot, P_LAST_STABLE]
            assert mark <= index.log.partitions[slot, P_LOG_END]
    assert not index.log.partitions[:, P_DIRTY].any()


def test_a_slot_that_another_partition_took_over_is_not_touched() -> None:
    index = index_of([(1, 3, 0)])
    index.log.partitions[1, P_NUMBER] = 99
    assert publish_all(index, np.zeros(3, np.int64), 1, 1 << 20, 4) == set()
    assert index.log.partitions[1, P_HIGH_WATERMARK] == 0


def test_a_watermark_never_moves_back() -> None:
    """A partition's level was changed: it shows more than the cursor of the new level has seen."""
    index = index_of([(1, 3, 0), (1, 2, 0), (1, 4, 0)])
    cursors = np.zeros(3, np.int64)
    assert publish_all(index, cursors, 1, 1 << 20, 4) == {1}
    index.log.partitions[1, P_FLAGS] = 2 << DURABILITY_SHIFT
    assert publish_all(index, cursors, 2, 128, 4) == set()
    assert index.log.partitions[1, P_HIGH_WATERMARK] == 9
    assert index.log.partitions[1, P_LAST_STABLE] == 9
