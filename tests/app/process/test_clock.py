"""The clocks count in the units their names say."""

from datetime import UTC, datetime

from smq.app.process.clock import (
    ahead_ms,
    awake_ms,
    begin_at,
    monotonic_ms,
    monotonic_ns,
    replaced,
    wall_ms,
)
from tests.app.busy_core import busy_core


def test_wall_time_is_milliseconds_since_1970() -> None:
    assert abs(wall_ms() - datetime.now(UTC).timestamp() * 1000) < 1000


def test_monotonic_time_does_not_go_back_and_its_units_agree() -> None:
    first_ns, between_ms, second_ns = monotonic_ns(), monotonic_ms(), monotonic_ns()
    assert first_ns // 1_000_000 <= between_ms <= second_ns // 1_000_000


def test_a_time_line_goes_on_from_where_it_begins() -> None:
    monotonic = [9_500_000]
    with replaced(lambda: 7_000_000, lambda: monotonic[0]):
        begin_at(1_000_000)
        assert (monotonic_ms(), ahead_ms()) == (1_000_000, 999_991)
        monotonic[0] += 3_000_000
        assert monotonic_ms() == 1_000_003
    assert ahead_ms() == 0


def test_another_clock_stands_in_for_a_block() -> None:
    with replaced(lambda: 7_000_000, lambda: 9_500_000):
        assert (wall_ms(), monotonic_ms(), monotonic_ns()) == (7, 9, 9_500_000)
    assert monotonic_ms() > 9


def test_a_thread_that_waits_for_a_core_is_not_awake() -> None:
    with busy_core():
        begun_ms, begun_awake_ms = monotonic_ms(), awake_ms()
        while monotonic_ms() - begun_ms < 300:
            pass
        assert awake_ms() - begun_awake_ms < monotonic_ms() - begun_ms - 50
