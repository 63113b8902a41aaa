"""The two ways of assigning offsets that `bench.offsets` compares give the same offsets."""

from hypothesis import given, strategies as st

from bench.offsets import BatchOffsets, TimestampOffsets, _counted


@given(st.lists(st.lists(st.integers(0, 50), max_size=5), max_size=20))
def test_both_ways_give_each_batch_the_offset_behind_the_last_one(batches: list[list[int]]) -> None:
    ours, theirs, end = BatchOffsets(), TimestampOffsets(), 0
    for batch in batches:
        assert ours.assign(batch) == theirs.assign(batch) == end
        end += len(batch)
    assert theirs.end == end


@given(st.lists(st.integers(0, 50), min_size=1))
def test_records_of_one_nanosecond_are_moved_apart(times_ns: list[int]) -> None:
    offsets, seen = TimestampOffsets(), set[int]()
    for each in times_ns:
        offsets.assign([each])
        assert offsets.last_ns >= each
        seen.add(offsets.last_ns)
    assert len(seen) == len(times_ns)


def test_records_behind_a_checkpoint_are_counted() -> None:
    assert _counted(100) > 0
