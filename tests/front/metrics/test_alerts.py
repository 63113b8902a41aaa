"""Rules fire after their time, once, and resolve."""

import pytest

from smq.front.metrics.alerts import Alerts, GroupLag, lags_of
from smq.front.metrics.facts import GroupOffset
from smq.model.lag_rules import parse_lag_rules
from smq.model.now import Now

WALL_MS = 1_700_000_000_000


def offsets(**lags: int) -> list[GroupOffset]:
    return [GroupOffset(group, "t", 0, 0, lag, lag / 10) for group, lag in lags.items()]


def at(monotonic_ms: int, step_ms: int = 0) -> Now:
    return Now(monotonic_ms, WALL_MS + monotonic_ms + step_ms)


def test_a_rule_fires_after_its_time_once_and_resolves() -> None:
    alerts = Alerts(parse_lag_rules("a*: records > 10 for 10s"))
    assert alerts.look(offsets(a=11, b=99), at(0)) == []
    assert alerts.look(offsets(a=11), at(9_999)) == []
    (event,) = alerts.look(offsets(a=20), at(10_000))
    assert event.is_firing
    assert (event.group, event.lag, event.since_ms) == ("a", GroupLag(20, 2.0), WALL_MS)
    assert alerts.look(offsets(a=30), at(60_000)) == []
    (event,) = alerts.look(offsets(a=10), at(70_000))
    assert not event.is_firing
    assert event.as_json()["state"] == "resolved"
    assert "group a has caught up: 10 records" in event.sentence


def test_a_group_that_was_late_only_for_a_moment_begins_anew() -> None:
    alerts = Alerts(parse_lag_rules("a: records > 10 for 10s"))
    alerts.look(offsets(a=11), at(0))
    alerts.look(offsets(a=0), at(5_000))
    assert alerts.look(offsets(a=11), at(10_000)) == []
    assert len(alerts.look(offsets(a=11), at(20_000))) == 1


def test_a_group_that_is_deleted_is_late_no_more() -> None:
    alerts = Alerts(parse_lag_rules("*: seconds > 1 for 0s"))
    assert alerts.look(offsets(a=11), at(0))[0].is_firing
    assert not alerts.look([], at(1000))[0].is_firing
    assert alerts.look([], at(2000)) == []


def test_records_are_summed_and_seconds_are_those_of_the_latest_partition() -> None:
    rows = [GroupOffset("g", "t", 0, 0, 5, None), GroupOffset("g", "t", 1, 0, 7, 3.0)]
    assert lags_of(rows) == {"g": GroupLag(12, 3.0)}


@pytest.mark.parametrize("step_ms", [-3_600_000, 3_600_000])
def test_a_rules_duration_does_not_depend_on_the_wall_clock(step_ms: int) -> None:
    """Data fault 5: after a step back alerts fell silent, after one ahead they came early."""
    alerts = Alerts(parse_lag_rules("a: records > 10 for 10s"))
    assert alerts.look(offsets(a=11), at(0)) == []
    assert alerts.look(offsets(a=11), at(9_999, step_ms)) == []
    (event,) = alerts.look(offsets(a=11), at(10_000, step_ms))
    assert event.since_ms == WALL_MS + step_ms, "as the wall clock is set now"
