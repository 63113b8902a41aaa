"""The first rebalance waits while members join, up to the rebalance timeout."""

from smq.coordinator.initial_rebalance import InitialRebalance


def test_an_initial_rebalance_is_not_extended_without_new_members() -> None:
    assert InitialRebalance.begin(3000, 60_000).extended(3000) is None


def test_it_goes_on_while_somebody_comes_until_its_time_is_over() -> None:
    waits = InitialRebalance.begin(3000, 10_000)
    delays = [waits.delay_ms]
    while True:
        waits.member_added = True
        longer = waits.extended(3000)
        if longer is None:
            break
        assert not longer.member_added
        waits = longer
        delays.append(waits.delay_ms)
    assert delays == [3000, 3000, 3000, 1000]
    assert sum(delays) == 10_000


def test_a_timeout_below_the_delay_is_over_after_the_delay() -> None:
    waits = InitialRebalance.begin(3000, 100)
    waits.member_added = True
    assert (waits.delay_ms, waits.extended(3000)) == (3000, None)
