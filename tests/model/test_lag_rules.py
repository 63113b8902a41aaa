"""Rules of late groups."""

import pytest

from smq.model.lag_rules import RULES_MAX, LagRule, parse_lag_rules


def test_rules_name_a_group_a_measure_a_limit_and_a_time() -> None:
    one, other = parse_lag_rules(" billing: records > 10000 for 1m, *:  seconds>300  for 5m ")
    assert one == LagRule("billing: records > 10000 for 1m", "billing", False, 10_000, 60_000)
    assert (other.is_seconds, other.limit, other.for_ms) == (True, 300, 300_000)
    assert one.matches("billing")
    assert not one.matches("billing-2")
    assert other.matches("anything")
    assert parse_lag_rules("") == parse_lag_rules(" , ") == []


@pytest.mark.parametrize(
    "text",
    [
        "billing",
        "billing: records > x for 1m",
        "billing: bytes > 1 for 1m",
        "billing: records > 1",
        "billing: records > 1 for 1d",
        ": records > 1 for 1m",
        "billing: records > 1 for 1m *: records > 1 for 1m",
        "billing: records > 9999999999999999 for 1m",
    ],
)
def test_an_invalid_lag_rule_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no rule such as"):
        parse_lag_rules(text)


def test_there_are_not_too_many() -> None:
    with pytest.raises(ValueError, match=f"are more than {RULES_MAX}"):
        parse_lag_rules(",".join(["g: records > 1 for 1s"] * (RULES_MAX + 1)))
