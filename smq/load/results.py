"""Stores results, one line of JSON per step in a file, and compares them."""

import json
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from smq.app.process.clock import wall_ms
from smq.model.named_files import read_named

FORMAT = 1
FILE_BYTES_MAX = 256 * 1024 * 1024  # A line has some kilobytes; each run adds a few.
Result = Mapping[str, Any]
HIGHER, LOWER = "higher", "lower"  # Which direction is better.


class BadResults(Exception):
    """A results file that cannot be read; the sentence says why."""


class Figure(NamedTuple):
    """A figure of a result: its name, its path in the result, and which direction is better."""

    words: str
    path: tuple[str, ...]
    better: str


FIGURES = (
    Figure("acknowledged, msg/s", ("rates", "acked_msg_s"), HIGHER),
    Figure("acknowledged, MB/s", ("rates", "acked_mb_s"), HIGHER),
    Figure("read, MB/s", ("rates", "received_mb_s"), HIGHER),
    Figure("sustainable, msg/s", ("search", "sustainable_rate"), HIGHER),
    Figure("publish p50, µs", ("latency_us", "publish", "p50"), LOWER),
    Figure("publish p99, µs", ("latency_us", "publish", "p99"), LOWER),
    Figure("publish p99.9, µs", ("latency_us", "publish", "p99.9"), LOWER),
    Figure("end to end p50, µs", ("latency_us", "end_to_end", "p50"), LOWER),
    Figure("end to end p99, µs", ("latency_us", "end_to_end", "p99"), LOWER),
    Figure("end to end p99.9, µs", ("latency_us", "end_to_end", "p99.9"), LOWER),
    Figure("commit p99, µs", ("latency_us", "commit", "p99"), LOWER),
    Figure("rejoin p50, µs", ("latency_us", "rejoin", "p50"), LOWER),
    Figure("rejoin p99, µs", ("latency_us", "rejoin", "p99"), LOWER),
    Figure("recovery p99, µs", ("latency_us", "recovery", "p99"), LOWER),
    Figure("request on a held connection p99, µs", ("latency_us", "request", "p99"), LOWER),
    Figure("backlog built, s", ("backlog", "built_seconds"), LOWER),
    Figure("backlog drained, s", ("backlog", "drained_seconds"), LOWER),
    Figure("broker's CPU, s", ("cost", "cpu_seconds"), LOWER),
    Figure("broker's memory without rings, MB", ("cost", "memory_mb"), LOWER),
)


def figure_of(result: Result, figure: Figure) -> float | None:
    """The figure, if the result has it."""
    value: Any = result
    for name in figure.path:
        if not isinstance(value, Mapping) or name not in value:
            return None
        value = value[name]
    return float(value)


def stamped(result: Result, name: str, changes: Mapping[str, Any], label: str) -> dict[str, Any]:
    """A result with its origin. `label` names the broker."""
    when = datetime.fromtimestamp(wall_ms() / 1000, UTC).isoformat(timespec="seconds")
    machine = {
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }
    whence = {"workload": name, "step": dict(changes), "broker": label, "when": when}
    return {"format": FORMAT, **whence, "machine": machine, **result}


def append(path: Path, result: Result) -> None:
    """Add a line. Raises OSError."""
    with path.open("a") as file:
        file.write(json.dumps(result) + "\n")


def read(path: Path) -> list[Result]:
    """All results of a file, oldest first. Raises BadResults."""
    try:
        lines = read_named(path, FILE_BYTES_MAX).decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadResults(f"{path} cannot be read: {error}") from error
    results = []
    for number, line in enumerate(lines, 1):
        try:
            result = json.loads(line)
            version = result["format"]
        except (ValueError, KeyError, TypeError) as error:
            raise BadResults(f"{path}, line {number}, is not a result of smq bench") from error
        if version != FORMAT:
            raise BadResults(
                f"{path}, line {number}, has format {version}; this smq knows {FORMAT}"
            )
        results.append(result)
    return results


def title(result: Result) -> str:
    """The workload and the values that define the step."""
    step = ", ".join(f"{name} {spoken(value)}" for name, value in result["step"].items())
    return f"{result['workload']}, {step}" if step else str(result["workload"])


def spoken(value: object) -> str:
    """A value as text; large numbers with separators."""
    return f"{value:,}" if isinstance(value, int | float) else str(value)


class Comparison(NamedTuple):
    """A figure of a step, now and before."""

    step: str
    words: str
    now: float
    before: float
    better: str

    @property
    def ratio(self) -> float | None:
        return self.now / self.before if self.before else None


def compared(results: Sequence[Result], before: Sequence[Result]) -> Iterator[Comparison]:
    """Each figure beside that of the newest earlier result of the same step."""
    earlier = {title(each): each for each in before}  # The last of each title wins.
    for result in results:
        old = earlier.get(title(result))
        if old is None:
            continue
        for figure in FIGURES:
            now, then = figure_of(result, figure), figure_of(old, figure)
            if now is not None and then is not None:
                yield Comparison(title(result), figure.words, now, then, figure.better)


def number(value: float | None) -> str:
    """Format a figure with three significant digits, or all digits of its integer part."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
