"""The plan that `smq group reset` shows or commits: where each offset moves.

The functions compute a plan from offsets that the caller has read; they do no IO.
"""

import csv
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from smq.client.names import TopicPartition
from smq.model.config import INT32_MAX
from smq.model.setting import INT64_MAX

UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """A partition's offsets: `first` to `end` (exclusive)."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Move:
    """A partition's committed offset before (None: there was none) and after a reset."""

    name: TopicPartition
    before: int | None
    after: int
    end: int

    @property
    def lag(self) -> int:
        return self.end - self.after

    def as_json(self) -> dict[str, Any]:
        return {
            "topic": self.name.topic,
            "partition": self.name.partition,
            "before": self.before,
            "offset": self.after,
            "lag": self.lag,
        }


def plan(
    wanted: Mapping[TopicPartition, int],
    committed: Mapping[TopicPartition, int],
    ranges: Mapping[TopicPartition, PartitionRange],
) -> list[Move]:
    """The moves to these offsets, each brought into its partition's range."""
    return [
        Move(
            name,
            committed.get(name),
            min(max(wanted[name], ranges[name].first), ranges[name].end),
            ranges[name].end,
        )
        for name in sorted(wanted)
    ]


def shifted(
    committed: Mapping[TopicPartition, int], names: Iterable[TopicPartition], by: int
) -> dict[TopicPartition, int]:
    """Committed offsets moved by a number of offsets. Raises ValueError where there is none."""
    missing = [name for name in names if name not in committed]
    if missing:
        topic, partition = missing[0]
        raise ValueError(
            f"the group has no committed offset in {topic}-{partition} to shift; use --to"
        )
    return {name: committed[name] + by for name in names}


def duration_ms(text: str) -> int:
    """The milliseconds of a duration such as 90s, 15m, 2h or 7d. Raises ValueError."""
    found = re.fullmatch(r"([0-9]{1,12})(ms|s|m|h|d)", text)
    if found is None:
        raise ValueError(f"a duration is a number and ms, s, m, h or d, not {text!r}")
    return int(found[1]) * UNITS_MS[found[2]]


def read_offsets(text: str) -> dict[TopicPartition, int]:
    """Offsets from a file: CSV lines `topic,partition,offset`, as Kafka's own tool takes them, or
    what `smq group reset --json` and `smq group describe --json` print. Raises ValueError.
    """
    rows = _rows_of_json(text) if text.lstrip()[:1] in {"{", "["} else _rows_of_csv(text)
    offsets: dict[TopicPartition, int] = {}
    for number, (topic, partition, offset) in enumerate(rows, 1):
        if not (isinstance(topic, str) and topic):
            raise ValueError(f"entry {number} names no topic")
        name = TopicPartition(topic, _whole(partition, INT32_MAX, f"the partition of {number}"))
        if name in offsets:
            raise ValueError(f"entry {number} names {topic}-{name.partition} a second time")
        offsets[name] = _whole(offset, INT64_MAX, f"the offset of entry {number}")
    if not offsets:
        raise ValueError("the file has no offsets")
    return offsets


def _rows_of_csv(text: str) -> list[tuple[object, object, object]]:
    rows: list[tuple[object, object, object]] = []
    for fields in csv.reader(text.splitlines()):
        if not fields:
            continue
        if len(fields) != 3:
            raise ValueError(f"a line is topic,partition,offset, not {','.join(fields)!r}")
        rows.append((fields[0], fields[1].strip(), fields[2].strip()))
    return rows


def _rows_of_json(text: str) -> list[tuple[object, object, object]]:
    try:
        found = json.loads(text)
    except RecursionError:
        raise ValueError("its JSON is nested too deeply") from None
    entries = found.get("offsets") if isinstance(found, dict) else found
    if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
        raise ValueError('JSON must be a list of {"topic", "partition", "offset"}')
    return [(each.get("topic"), each.get("partition"), each.get("offset")) for each in entries]


def _whole(value: object, most: int, what: str) -> int:
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,19}", value):
        value = int(value)
    if type(value) is int and 0 <= value <= most:
        return value
    raise ValueError(f"{what} must be a whole number from 0 to {most}, not {value!r}")
