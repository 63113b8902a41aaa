"""Evaluates lag rules for consumer groups, and reports changes since the last evaluation.

quiet ─above the limit→ pending ─for long enough→ firing ─below, or gone→ resolved = quiet
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from smq.front.metrics.facts import GroupOffset
from smq.model.lag_rules import LagRule
from smq.model.now import Now


class GroupLag(NamedTuple):
    """A group's lag: the sum of records over partitions, the maximum of seconds."""

    records: int
    seconds: float


class Event(NamedTuple):
    """A rule starts or stops firing for a group."""

    is_firing: bool
    rule: LagRule
    group: str
    lag: GroupLag
    since_ms: int

    @property
    def sentence(self) -> str:
        state = "is behind" if self.is_firing else "has caught up"
        return (
            f"group {self.group} {state}: {self.lag.records} records, "
            f"{self.lag.seconds:.0f} s (rule: {self.rule.text})"
        )

    def as_json(self) -> dict[str, Any]:
        """The webhook's request body."""
        return {
            "event": "lag",
            "state": "firing" if self.is_firing else "resolved",
            "rule": self.rule.text,
            "group": self.group,
            "records": self.lag.records,
            "seconds": round(self.lag.seconds, 3),
            "since_ms": self.since_ms,
            "sentence": self.sentence,
        }


class Alerts:
    """The state of each rule for each group."""

    def __init__(self, rules: Sequence[LagRule]) -> None:
        self.rules = rules
        self._above: dict[tuple[int, str], int] = {}  # Since when.
        self._firing: dict[tuple[int, str], int] = {}

    def look(self, offsets: Iterable[GroupOffset], now: Now) -> list[Event]:
        """The alerts that began or ended. Their events say wall time."""
        now_ms = now.monotonic_ms
        lags = lags_of(offsets)
        above = {
            (number, group)
            for number, rule in enumerate(self.rules)
            for group, lag in lags.items()
            if rule.matches(group)
            and (lag.seconds if rule.is_seconds else lag.records) > rule.limit
        }
        self._above = {each: self._above.get(each, now_ms) for each in above}
        events = [
            self._event(each, lags, now.wall_of(self._firing[each]), is_firing=False)
            for each in self._firing.keys() - above
        ]
        self._firing = {each: since for each, since in self._firing.items() if each in above}
        for each, since_ms in self._above.items():
            late = now_ms - since_ms >= self.rules[each[0]].for_ms
            if late and each not in self._firing:
                self._firing[each] = since_ms
                events.append(self._event(each, lags, now.wall_of(since_ms), is_firing=True))
        return sorted(events, key=lambda event: (event.group, event.rule.text))

    def _event(
        self, of: tuple[int, str], lags: dict[str, GroupLag], since_ms: int, *, is_firing: bool
    ) -> Event:
        number, group = of
        return Event(
            is_firing, self.rules[number], group, lags.get(group, GroupLag(0, 0)), since_ms
        )


def lags_of(offsets: Iterable[GroupOffset]) -> dict[str, GroupLag]:
    """The lag of each group."""
    lags: dict[str, GroupLag] = {}
    for each in offsets:
        records, seconds = lags.get(each.group, GroupLag(0, 0.0))
        lags[each.group] = GroupLag(records + each.lag, max(seconds, each.lag_s or 0.0))
    return lags
