"""Differences between two brokers' answers, and the table of those that stay.

A difference is at a place: `<dialogue> v<version> / <step> / <path in the answer>`. The table in
docs/deviations.md names places, with `*` for any text, and why we differ there.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

DEVIATIONS = Path(__file__).parents[2] / "docs" / "deviations.md"
ABSENT = "(nothing)"
_ROW = re.compile(r"\| `(?P<dialogue>\S+) (?P<rest>v\S+ / [^`]+)` \| (?P<why>.+) \|$")


class Difference(NamedTuple):
    """Two answers that are not the same at one place."""

    place: str
    kafka: Any
    smq: Any


class Deviation(NamedTuple):
    """A row of the table: a pattern of places where we differ, and why."""

    dialogue: str
    pattern: str
    why: str

    def is_about(self, dialogue: str) -> bool:
        return _matches(self.dialogue, dialogue)

    def covers(self, difference: Difference) -> bool:
        return _matches(self.pattern, difference.place)


def _matches(pattern: str, text: str) -> bool:
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), text) is not None


def read_deviations() -> list[Deviation]:
    """The rows of the table. What looks like a row and is none is an error."""
    rows = []
    for line in DEVIATIONS.read_text().splitlines():
        if not line.startswith("| `"):
            continue
        found = _ROW.match(line)
        assert found, f"not a row of deviations: {line}"
        pattern = f"{found['dialogue']} {found['rest']}"
        rows.append(Deviation(found["dialogue"], pattern, found["why"]))
    return rows


def differences(
    played: str, kafka: Mapping[str, Any], smq: Mapping[str, Any]
) -> Iterator[Difference]:
    """What differs between the steps of two brokers; `played` names dialogue and version."""
    for step in {**kafka, **smq}:
        one, other = kafka.get(step, ABSENT), smq.get(step, ABSENT)
        for path, here, there in _within("", one, other):
            yield Difference(f"{played} / {step} / {path or '.'}", here, there)


def _within(path: str, one: Any, other: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in {**one, **other}:
            below = f"{path}.{key}" if path else key
            yield from _within(below, one.get(key, ABSENT), other.get(key, ABSENT))
    elif isinstance(one, list) and isinstance(other, list):
        for index in range(max(len(one), len(other))):
            pair = (each[index] if index < len(each) else ABSENT for each in (one, other))
            yield from _within(f"{path}[{index}]", *pair)
    elif one != other:
        yield path, one, other
