"""Moments on the time line are shown by the wall clock as it is set now."""

import pytest

from smq.model.now import Now


@pytest.mark.parametrize("wall_ms", [0, 1_700_000_000_000])
def test_an_age_counts_back_from_the_wall_clock_of_now(wall_ms: int) -> None:
    now = Now(monotonic_ms=10_000, wall_ms=wall_ms)
    assert now.wall_of(10_000) == wall_ms
    assert now.wall_of(4_000) == wall_ms - 6_000
