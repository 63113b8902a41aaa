"""The setting lag.alert.rules: when a consumer group is too far behind.

    rules = rule, rule, …        rule = GROUP: records|seconds > NUMBER for DURATION

GROUP is a name or a pattern with `*`; DURATION a number and s, m or h:

    billing: records > 10000 for 1m, *: seconds > 300 for 5m
"""

import re
from fnmatch import fnmatchcase
from typing import NamedTuple

_RULE = re.compile(
    r"(?P<group>\S+):\s+(?P<measure>records|seconds)\s*>\s*(?P<limit>[0-9]{1,15})"
    r"\s+for\s+(?P<number>[0-9]{1,6})(?P<unit>[smh])"
)
_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000}
RULES_MAX = 100  # Each is evaluated for each group, every few seconds.


class LagRule(NamedTuple):
    """A matching group is too late if its lag stays above the limit for this long."""

    text: str
    group: str
    is_seconds: bool
    limit: int
    for_ms: int

    def matches(self, group: str) -> bool:
        """Whether the rule is about this group."""
        return fnmatchcase(group, self.group)


def parse_lag_rules(text: str) -> list[LagRule]:
    """The rules. Raises ValueError with a sentence."""
    rules = [_rule(each.strip()) for each in text.split(",") if each.strip()]
    if len(rules) > RULES_MAX:
        raise ValueError(f"{len(rules)} rules are more than {RULES_MAX}")
    return rules


def _rule(text: str) -> LagRule:
    found = _RULE.fullmatch(text)
    if found is None:
        raise ValueError(
            f"{text!r} is no rule such as `billing: records > 10000 for 1m` or "
            "`*: seconds > 300 for 5m`"
        )
    for_ms = int(found["number"]) * _UNITS_MS[found["unit"]]
    is_seconds = found["measure"] == "seconds"
    return LagRule(text, found["group"], is_seconds, int(found["limit"]), for_ms)
