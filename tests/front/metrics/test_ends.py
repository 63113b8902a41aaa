"""Lag in seconds, from samples of the past."""

import numpy as np
import pytest

from smq.front.metrics.ends import SAMPLES_MAX, Ends


def ends_of(*samples: tuple[int, int]) -> Ends:
    ends = Ends()
    for time_ms, end in samples:
        ends.add(time_ms, np.array([1]), np.array([end]))
    return ends


@pytest.mark.parametrize(
    ("offset", "lag_s"),
    [
        (300, 0.0),  # The end.
        (250, 3.0 + 5.0),  # Between the last two samples.
        (200, 3.0 + 10.0),
        (150, 3.0 + 15.0),
        (100, 3.0 + 20.0),
        (7, 3.0 + 20.0),  # Older than all that is known: at least so late.
    ],
)
def test_a_committed_offset_was_the_end_some_time_ago(offset: int, lag_s: float) -> None:
    ends = ends_of((10_000, 100), (20_000, 200), (30_000, 300))
    assert ends.lag_s(1, offset, 33_000) == pytest.approx(lag_s)


def test_a_partition_without_samples_has_no_lag_in_seconds() -> None:
    ends = ends_of((10_000, 100))
    assert ends.lag_s(0, 5, 11_000) is None
    assert ends.lag_s(99, 5, 11_000) is None
    assert Ends().lag_s(0, 5, 11_000) is None


def test_a_partition_that_stood_still_is_not_later_than_its_last_record() -> None:
    ends = ends_of((10_000, 100), (20_000, 200), (30_000, 200), (40_000, 200))
    assert ends.lag_s(1, 150, 41_000) == pytest.approx(26.0)


def test_many_samples_reach_far_back_and_stay_few() -> None:
    ends = Ends()
    for number in range(2000):
        ends.add(1000 * number, np.array([0]), np.array([number]))
    assert len(ends._times_ms) <= SAMPLES_MAX
    assert ends.lag_s(0, 1990, 2_000_000) == pytest.approx(10.0, abs=1)
    assert ends.lag_s(0, 1500, 2_000_000) == pytest.approx(500.0, abs=100)
    assert ends.lag_s(0, 0, 2_000_000) == pytest.approx(2000.0, abs=1)


def test_a_clock_that_is_set_back_gives_no_negative_lag() -> None:
    ends = ends_of((10_000, 100), (20_000, 200), (5_000, 300))
    assert ends.lag_s(1, 150, 4_000) == 0.0


def test_the_lag_of_a_partition_is_found_by_its_number() -> None:
    """Numbers are never used again: those of a broker that is years old are large."""
    ends, high = Ends(), 2**40
    ends.add(10_000, np.array([3, high]), np.array([5, 100]))
    ends.add(20_000, np.array([3, 7, high]), np.array([5, 1, 200]))
    assert ends.lag_s(high, 150, 20_000) == pytest.approx(5.0)
    assert ends.lag_s(7, 0, 21_000) == pytest.approx(1.0)
    assert ends.lag_s(4, 0, 21_000) is None
