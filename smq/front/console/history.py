"""What the charts show: counters and lags at past moments.

A broker counts from its start; a rate is the difference of two samples over their distance.
Counters are sampled every few seconds for some minutes, lags of groups less often and for longer.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

COUNTER_SAMPLES_MAX = 450  # 15 minutes at one every 2 s.
LAG_SAMPLES_MAX = 360  # One hour at one every 10 s: 8 bytes each for every group.


class History:
    """Samples of one broker. Times are the wall clock's, in milliseconds."""

    def __init__(self) -> None:
        self._counters: deque[tuple[int, dict[str, int]]] = deque(maxlen=COUNTER_SAMPLES_MAX)
        self._lags: deque[tuple[int, tuple[str, ...], np.ndarray]] = deque(maxlen=LAG_SAMPLES_MAX)

    def add_counters(self, now_ms: int, counters: Mapping[str, int]) -> None:
        """Note the broker's counters."""
        if self._counters and now_ms <= self._counters[-1][0]:
            self._counters.clear()  # The clock was set back: no rate spans that.
        self._counters.append((now_ms, dict(counters)))

    def add_lags(self, now_ms: int, groups: tuple[str, ...], lags: np.ndarray) -> None:
        """Note the lag of each group, int64 in the order of the names, which should be shared."""
        if self._lags and now_ms <= self._lags[-1][0]:
            self._lags.clear()
        if self._lags and self._lags[-1][1] == groups:
            groups = self._lags[-1][1]
        self._lags.append((now_ms, groups, lags))

    def rates(self, names: Sequence[str], since_ms: int = 0) -> list[list[float]]:
        """Times in seconds after `since_ms`, then for each name its rate per second up to then."""
        times: list[float] = []
        series: list[list[float]] = [[] for _ in names]
        samples = list(self._counters)
        for (from_ms, before), (to_ms, after) in pairwise(samples):
            if to_ms <= since_ms:
                continue
            times.append(to_ms / 1000)
            for values, name in zip(series, names, strict=True):
                # A broker that has started again counts from zero.
                grown = max(0, after.get(name, 0) - before.get(name, 0))
                values.append(round(grown * 1000 / (to_ms - from_ms), 1))
        return [times, *series]

    def lag(self, group: str) -> list[list[float]]:
        """Times in seconds, and a group's lag in records then."""
        times: list[float] = []
        lags: list[float] = []
        for now_ms, groups, values in list(self._lags):
            if group in groups:
                times.append(now_ms / 1000)
                lags.append(float(values[groups.index(group)]))
        return [times, lags]
