"""Lost offsets: joined, passed over, forgotten; compared with a set."""

import numpy as np
from hypothesis import given, strategies as st

from smq.log.lost import LostOffsets

END = 40
RANGES = st.lists(st.tuples(st.integers(0, END), st.integers(1, 8)), max_size=12)


@given(RANGES, st.integers(0, END))
def test_ranges_answer_as_a_set_of_offsets_does(ranges: list[tuple[int, int]], below: int) -> None:
    lost, known = LostOffsets(), set[int]()
    for base, count in ranges:
        lost.add(base, base + count)
        known |= {*range(base, base + count)}
        lost.invariants()
    for _ in range(2):
        starts = sorted(each for each in known if each - 1 not in known)
        assert len(lost) == len(starts)
        for offset in range(END + 10):
            behind = offset
            while behind in known:
                behind += 1
            assert lost.behind(offset) == behind
            assert lost.next_from(offset) == min((s for s in starts if s >= offset), default=None)
            assert lost.reach_beyond(offset) == (max(known, default=-1) >= offset)
        for first in (0, below):
            offsets = np.arange(first, END + 10)
            assert lost.among(offsets).tolist() == [each in known for each in offsets.tolist()]
        ends = [each + 1 for each in known if each + 1 not in known]
        lost.forget_below(below)
        lost.invariants()
        gone = max((end for end in ends if end <= below), default=0)
        known = {each for each in known if each >= gone}


def test_a_range_that_fills_a_gap_joins_both_sides() -> None:
    lost = LostOffsets()
    for base in (0, 2, 1):
        lost.add(base, base + 1)
    assert len(lost) == 1
    assert lost.behind(0) == 3
