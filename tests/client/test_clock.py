"""Both clocks keep the same contract; one runs by itself, the other one is stepped."""

from datetime import UTC, datetime

import pytest

from smq.client.clock import SYSTEM_CLOCK, Clock
from smq.testing.stepped_clock import SteppedClock


@pytest.mark.parametrize("clock", [SYSTEM_CLOCK, SteppedClock(7, 8)], ids=["system", "stepped"])
def test_monotonic_time_only_grows_and_its_units_agree(clock: Clock) -> None:
    first_ns, ms, s, last_ns = (
        clock.monotonic_ns(),
        clock.monotonic_ms(),
        clock.monotonic_s(),
        clock.monotonic_ns(),
    )
    assert first_ns // 1_000_000 <= ms <= last_ns // 1_000_000
    assert first_ns / 1e9 <= s <= last_ns / 1e9


@pytest.mark.parametrize("clock", [SYSTEM_CLOCK, SteppedClock()], ids=["system", "stepped"])
def test_sleep_takes_at_least_the_given_time(clock: Clock) -> None:
    start_s = clock.monotonic_s()
    clock.sleep(-1)
    clock.sleep(0.01)
    assert clock.monotonic_s() - start_s >= 0.01


def test_the_systems_wall_time_is_milliseconds_since_1970() -> None:
    assert abs(SYSTEM_CLOCK.wall_ms() - datetime.now(UTC).timestamp() * 1000) < 1000


def test_a_stepped_clock_moves_by_its_steps_alone() -> None:
    clock = SteppedClock(monotonic_ns=5_000_000, wall_ms=1000)
    assert (clock.monotonic_s(), clock.monotonic_ms(), clock.wall_ms()) == (0.005, 5, 1000)
    clock.step(1.5)
    assert (clock.monotonic_s(), clock.monotonic_ms(), clock.wall_ms()) == (1.505, 1505, 2500)
