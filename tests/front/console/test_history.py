"""Rates and lags of the charts."""

from typing import ClassVar

import numpy as np

from smq.front.console.history import COUNTER_SAMPLES_MAX, LAG_SAMPLES_MAX, History


def test_a_rate_is_what_was_counted_over_the_time_between_two_samples() -> None:
    history = History()
    assert history.rates(["in"]) == [[], []]
    for time_ms, count in ((1000, 10), (3000, 30), (5000, 30)):
        history.add_counters(time_ms, {"in": count})
    assert history.rates(["in", "unknown"]) == [[3.0, 5.0], [10.0, 0.0], [0.0, 0.0]]
    assert history.rates(["in"], since_ms=3000) == [[5.0], [0.0]]


def test_a_broker_that_started_again_has_no_negative_rate() -> None:
    history = History()
    history.add_counters(1000, {"in": 100})
    history.add_counters(2000, {"in": 1})
    assert history.rates(["in"])[1] == [0.0]


def test_a_clock_that_was_set_back_begins_anew() -> None:
    history = History()
    history.add_counters(2000, {"in": 1})
    history.add_counters(1000, {"in": 5})
    history.add_counters(2000, {"in": 7})
    assert history.rates(["in"]) == [[2.0], [2.0]]
    history.add_lags(2000, ("a",), np.array([1]))
    history.add_lags(1000, ("a",), np.array([2]))
    assert history.lag("a") == [[1.0], [2.0]]


def test_a_group_has_a_lag_at_the_times_when_it_was_known() -> None:
    history = History()
    history.add_lags(1000, ("a",), np.array([5]))
    history.add_lags(2000, ("a", "b"), np.array([4, 9]))
    assert history.lag("a") == [[1.0, 2.0], [5.0, 4.0]]
    assert history.lag("b") == [[2.0], [9.0]]
    assert history.lag("c") == [[], []]


class Counted(tuple[str, ...]):
    """Groups that count how often one is looked for."""

    __slots__ = ()
    looks: ClassVar[int] = 0

    def __contains__(self, group: object) -> bool:
        Counted.looks += 1
        return super().__contains__(group)


def test_a_group_is_looked_for_once_in_samples_of_the_same_groups() -> None:
    """Ten thousand groups in 360 samples held the loop for a tenth of a second."""
    history = History()
    for number in range(5):
        history.add_lags(1000 * (number + 1), Counted(("a", "b")), np.array([number, 9]))
    assert history.lag("a")[1] == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert Counted.looks == 1


def test_samples_are_bounded() -> None:
    history = History()
    for number in range(COUNTER_SAMPLES_MAX + 5):
        history.add_counters(number + 1, {"in": number})
        history.add_lags(number + 1, ("a",), np.array([number]))
    assert len(history.rates(["in"])[0]) == COUNTER_SAMPLES_MAX - 1
    assert len(history.lag("a")[0]) == LAG_SAMPLES_MAX
