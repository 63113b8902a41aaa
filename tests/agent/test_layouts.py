"""Ranges on SeaweedMQ's ring: they cover it, and lead back to their partitions."""

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from smq.agent.layouts import (
    CURRENT,
    PARTITIONS_MAX,
    RING_SIZE,
    RingLayout,
    RingRange,
    UnknownRange,
    partition_of,
    range_of,
    ranges_of,
)

counts = st.integers(1, PARTITIONS_MAX)


@given(counts)
def test_the_ranges_of_a_layout_cover_the_ring_in_order(count: int) -> None:
    ranges = [*ranges_of(RingLayout(7, count))]
    assert len(ranges) == count
    assert ranges[0].start == 0
    assert ranges[-1].stop == RING_SIZE
    assert all(one.stop == other.start for one, other in pairwise(ranges))
    assert {each.stop - each.start for each in ranges[:-1]} <= {RING_SIZE // count}


def test_the_last_of_eleven_partitions_takes_the_rest() -> None:
    assert range_of(RingLayout(7, 11), 9) == RingRange(2520, 9 * 229, 10 * 229, 7)
    assert range_of(RingLayout(7, 11), 10) == RingRange(2520, 10 * 229, 2520, 7)


@given(st.lists(counts, min_size=1, max_size=5, unique=True).map(sorted), st.data())
def test_a_range_of_any_layout_leads_to_its_partition(
    found: list[int], data: st.DataObject
) -> None:
    layouts = [RingLayout(100 + at, count) for at, count in enumerate(found)]
    layout = data.draw(st.sampled_from(layouts))
    partition = data.draw(st.integers(0, layout.partition_count - 1))
    assert partition_of(layouts, range_of(layout, partition)) == partition


@given(counts, st.data())
def test_time_zero_is_the_layout_of_now(count: int, data: st.DataObject) -> None:
    now = RingLayout(200, count)
    partition = data.draw(st.integers(0, count - 1))
    wanted = range_of(now, partition)._replace(began_ns=CURRENT)
    assert partition_of([RingLayout(100, 1), now], wanted) == partition


@given(
    st.builds(RingRange, *[st.integers(-(2**31), 2**31 - 1)] * 3, st.integers(-(2**63), 2**63 - 1))
)
def test_any_other_range_is_refused(wanted: RingRange) -> None:
    layouts = [RingLayout(100, 3), RingLayout(200, 7)]
    known = {each for layout in layouts for each in ranges_of(layout)}
    known |= {each._replace(began_ns=CURRENT) for each in ranges_of(layouts[-1])}
    if wanted in known:
        assert partition_of(layouts, wanted) >= 0
    else:
        with pytest.raises(UnknownRange):
            partition_of(layouts, wanted)


def test_a_refusal_names_the_ring_the_layout_or_the_slots() -> None:
    layouts = [RingLayout(100, 2)]
    for wanted, words in (
        (RingRange(4096, 0, 1260, 100), "its ring has 4096 slots"),
        (RingRange(2520, 0, 1260, 99), "no layout of 99"),
        (RingRange(2520, 0, 630, 100), "slots 0 to 630"),
    ):
        with pytest.raises(UnknownRange, match=words):
            partition_of(layouts, wanted)
