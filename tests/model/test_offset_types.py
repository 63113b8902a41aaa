"""Where subscribers start: every offset type, with and without a commit, and beyond the ends."""

import pytest
from hypothesis import given, strategies as st

from smq.model.offset_types import (
    LogEnds,
    OffsetType,
    OutOfRange,
    Start,
    WantedPlace,
    problem_of,
    resumes,
    start_of,
    timestamp_ms,
)

ENDS = LogEnds(10, 20)
T = OffsetType


@pytest.mark.parametrize(
    ("wanted", "committed", "start"),
    [
        (WantedPlace(T.RESUME_OR_EARLIEST), None, Start(10)),
        (WantedPlace(T.RESUME_OR_EARLIEST), 15, Start(15)),
        (WantedPlace(T.RESUME_OR_EARLIEST), 20, Start(20)),
        (WantedPlace(T.RESUME_OR_EARLIEST), 9, Start(10)),
        (WantedPlace(T.RESUME_OR_LATEST), None, Start(20)),
        (WantedPlace(T.RESUME_OR_LATEST), 15, Start(15)),
        (WantedPlace(T.RESUME_OR_LATEST), 21, Start(20)),
        (WantedPlace(T.RESET_TO_EARLIEST), 15, Start(10, resets=True)),
        (WantedPlace(T.RESET_TO_LATEST), 15, Start(20, resets=True)),
        (WantedPlace(T.EXACT_OFFSET, 12), 15, Start(12)),
        (WantedPlace(T.EXACT_OFFSET, 20), 15, Start(20)),
        (WantedPlace(T.RESET_TO_OFFSET, 12), 15, Start(12, resets=True)),
    ],
    ids=[
        *("earliest", "committed", "committed at the end", "commit below the log", "latest"),
        *("committed, not latest", "commit above the log", "reset to earliest", "reset to latest"),
        *("exact", "exact at the end", "reset to an offset"),
    ],
)
def test_each_type_has_its_place(wanted: WantedPlace, committed: int | None, start: Start) -> None:
    assert start_of(wanted, ENDS, committed=committed) == start


def test_an_exact_offset_out_of_range_is_refused_with_the_range() -> None:
    for offset in (9, 21):
        with pytest.raises(OutOfRange, match=f"offset {offset} is out of range: .* 10 to 20"):
            start_of(WantedPlace(T.EXACT_OFFSET, offset), ENDS)


def test_a_reset_out_of_range_goes_to_the_nearest_end_and_says_so() -> None:
    below = start_of(WantedPlace(T.RESET_TO_OFFSET, 3), ENDS)
    above = start_of(WantedPlace(T.RESET_TO_OFFSET, 30), ENDS)
    assert (below.offset, above.offset) == (10, 20)
    assert below.resets
    assert above.resets
    assert "offset 3 is out of range" in below.note
    assert "begins at 20" in above.note


@given(st.integers(0, 2**62))
def test_a_time_is_that_of_the_first_millisecond_at_or_after_it(ts_ns: int) -> None:
    found = timestamp_ms(WantedPlace(T.EXACT_TS_NS, ts_ns=ts_ns))
    assert found is not None
    assert found * 10**6 >= ts_ns > (found - 1) * 10**6


def test_a_time_without_a_later_record_is_the_end() -> None:
    assert start_of(WantedPlace(T.EXACT_TS_NS, ts_ns=5), ENDS, by_time=13) == Start(13)
    assert start_of(WantedPlace(T.EXACT_TS_NS, ts_ns=5), ENDS, by_time=3) == Start(10)
    assert start_of(WantedPlace(T.EXACT_TS_NS, ts_ns=5), ENDS, by_time=None) == Start(20)


@given(st.sampled_from([*T]), st.integers(0, 40), st.none() | st.integers(0, 40))
def test_every_start_lies_within_the_log(
    kind: OffsetType, offset: int, committed: int | None
) -> None:
    wanted = WantedPlace(kind, offset)
    try:
        start = start_of(wanted, ENDS, committed=committed, by_time=offset if offset < 20 else None)
    except OutOfRange:
        assert kind == T.EXACT_OFFSET
    else:
        assert ENDS.earliest <= start.offset <= ENDS.latest
        assert start.resets == (kind.name.startswith("RESET"))


def test_unknown_types_and_negative_offsets_are_refused() -> None:
    assert problem_of(WantedPlace(7)) == "there is no offset type 7"
    assert "offsets begin with 0" in problem_of(WantedPlace(T.EXACT_OFFSET, -1))
    assert problem_of(WantedPlace(T.RESET_TO_EARLIEST, -1)) == ""
    assert [each for each in [*T] if resumes(WantedPlace(each))] == [0, 20]
