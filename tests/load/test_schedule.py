"""When messages are due, and the search for a rate."""

from hypothesis import given, strategies as st

from smq.load.schedule import NS, RateSearch, Schedule, is_kept


def test_messages_are_due_at_their_rate_whenever_they_are_sent() -> None:
    schedule = Schedule(start_ns=7, rate=4)
    assert [schedule.take() for _ in range(5)] == [7 + i * NS // 4 for i in range(5)]


def test_a_stall_makes_messages_late_but_leaves_none_out() -> None:
    schedule = Schedule(start_ns=0, rate=1000)
    now_ns, late_ms = 2 * NS, []  # Nothing could be sent for two seconds.
    while schedule.due_ns() <= now_ns:
        late_ms.append((now_ns - schedule.take()) / 1e6)
    assert len(late_ms) == 2001
    assert max(late_ms) == 2000
    assert min(late_ms) == 0


def test_no_rounding_adds_up() -> None:
    schedule = Schedule(0, 3)
    for _ in range(3_000_000):
        schedule.sent += 1
    assert schedule.due_ns() == 1_000_000 * NS


@given(limit=st.floats(0.02, 1.0), highest=st.floats(1e3, 1e7))
def test_the_search_finds_what_is_kept_within_some_percent(limit: float, highest: float) -> None:
    search, trials = RateSearch(highest), 0
    while (rate := search.next_rate()) is not None:
        search.tell(rate, kept=rate <= limit * highest)
        trials += 1
        assert trials < 30
    assert limit * highest / 1.11 <= search.found <= limit * highest


def test_a_search_that_keeps_nothing_ends() -> None:
    search, trials = RateSearch(1e6), 0
    while (rate := search.next_rate()) is not None:
        search.tell(rate, kept=False)
        trials += 1
    assert search.found == 0
    assert trials < 30


def test_a_rate_is_kept_when_acks_and_readers_keep_up() -> None:
    assert is_kept(100, 99, 99)
    assert is_kept(100, 99, None)
    assert not is_kept(100, 90, 99)
    assert not is_kept(100, 99, 90)
