"""The history for the charts: samples of counters and lags.

Counters start at zero with the broker; a rate is the difference of two samples over their distance.
Counters are sampled every few seconds and kept for minutes; lags less often, and kept longer.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

COUNTER_SAMPLES_MAX = 450  # 15 minutes at one every 2 s.
LAG_SAMPLES_MAX = 360  # One hour at one every 10 s: 8 bytes each for every group.


class History:
    """Samples of one broker. Times are wall-clock milliseconds."""

    def __init__(self) -> None:
        self._counters: deque[tuple[int, dict[str, int]]] = deque(maxlen=COUNTER_SAMPLES_MAX)
        self._lags: deque[tuple[int, tuple[str, ...], np.ndarray]] = deque(maxlen=LAG_SAMPLES_MAX)

    def add_counters(self, wall_ms: int, counters: Mapping[str, int]) -> None:
        """Record the broker's counters."""
        if self._counters and wall_ms <= self._counters[-1][0]:
            self._counters.clear()  # The clock was set back: no rate may span that.
        self._counters.append((wall_ms, dict(counters)))

    def add_lags(self, wall_ms: int, groups: tuple[str, ...], lags: np.ndarray) -> None:
        """Record the lag of each group: int64 in the order of `groups`. Equal tuples are shared."""
        if self._lags and wall_ms <= self._lags[-1][0]:
            self._lags.clear()
        if self._lags and self._lags[-1][1] == groups:
            groups = self._lags[-1][1]
        self._lags.append((wall_ms, groups, lags))

    def rates(self, names: Sequence[str], since_ms: int = 0) -> list[list[float]]:
        """The sample times after `since_ms` in seconds, then the rates of each name per second."""
        times: list[float] = []
        series: list[list[float]] = [[] for _ in names]
        samples = list(self._counters)
        for (from_ms, before), (to_ms, after) in pairwise(samples):
            if to_ms <= since_ms:
                continue
            times.append(to_ms / 1000)
            for values, name in zip(series, names, strict=True):
                # A restarted broker counts from zero.
                grown = max(0, after.get(name, 0) - before.get(name, 0))
                values.append(round(grown * 1000 / (to_ms - from_ms), 1))
        return [times, *series]

    def lag(self, group: str) -> list[list[float]]:
        """The sample times in seconds, then the group's lag in records at each."""
        times: list[float] = []
        lags: list[float] = []
        looked_at, at = None, -1
        for wall_ms, groups, values in list(self._lags):
            if groups is not looked_at:  # There may be many thousands, mostly the same.
                looked_at, at = groups, groups.index(group) if group in groups else -1
            if at >= 0:
                times.append(wall_ms / 1000)
                lags.append(float(values[at]))
        return [times, lags]
