"""The counts of all workers, second by second, and their summary."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from smq.load.histogram import Latencies

BACKLOG, WARM_UP, TEST, END = "backlog", "warm-up", "test", "end"
SHOWN = ("p50", "p99", "max")
LATENCIES = {
    "publish": "from the moment a message is due to its acknowledgement",
    "end_to_end": "from the moment a message is due to a consumer",
    "commit": "an offset commit",
    "rejoin": "from subscribing again to partitions",
    "recovery": "from subscribing again to the first message",
    "request": "a request on one of many connections",
}


class Timeline:
    """Counts and latencies of each second since the run's start."""

    def __init__(self) -> None:
        self._counts: defaultdict[int, Counter[str]] = defaultdict(Counter)
        self._latencies: defaultdict[int, dict[str, Latencies]] = defaultdict(dict)
        self.totals: Counter[str] = Counter()

    def add(self, told: Mapping[str, Any]) -> None:
        """Add a worker's report."""
        second = told["second"]
        for name, encoded in told["latencies"].items():
            self._latencies[second].setdefault(name, Latencies()).add_encoded(encoded)
        counts = {
            name: count for name, count in told.items() if name not in {"second", "latencies"}
        }
        self._counts[second].update(counts)
        self.totals.update(counts)

    def counts(self, seconds: Iterable[int]) -> Counter[str]:
        """The total counts of some seconds."""
        total: Counter[str] = Counter()
        for second in seconds:
            total.update(self._counts.get(second, {}))
        return total

    def latencies(self, seconds: Iterable[int]) -> dict[str, Any]:
        """The combined latencies of some seconds, by name."""
        merged: dict[str, Latencies] = {}
        for second in seconds:
            for name, each in self._latencies.get(second, {}).items():
                merged.setdefault(name, Latencies()).add_encoded(each.encoded())
        return {name: each.summary() for name, each in merged.items()}

    def row(self, second: int, phase: str) -> dict[str, Any]:
        """A second's row for the results."""
        summaries = self.latencies([second])
        return {
            "second": second,
            "phase": phase,
            **self._counts.get(second, {}),
            **{
                f"{name}_{shown}": summary[shown]
                for name, summary in summaries.items()
                for shown in SHOWN
                if shown in summary
            },
        }
