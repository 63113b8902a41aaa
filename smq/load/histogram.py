"""Latencies in HDR histograms: microseconds, three significant digits, up to an hour."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from hdrh.histogram import HdrHistogram

HIGHEST_US = 3_600_000_000
DIGITS = 3
PERCENTILES = (50.0, 75.0, 90.0, 99.0, 99.9, 99.99)


class Latencies:
    """A histogram that records many values at once."""

    def __init__(self) -> None:
        self._histogram = HdrHistogram(1, HIGHEST_US, DIGITS)

    @property
    def count(self) -> int:
        return int(self._histogram.get_total_count())

    def record(self, values_us: Sequence[int]) -> None:
        """Count each value; clamp values beyond the range."""
        values, counts = np.unique(np.clip(values_us, 1, HIGHEST_US), return_counts=True)
        for value, count in zip(values.tolist(), counts.tolist(), strict=True):
            self._histogram.record_value(int(value), int(count))

    def add_encoded(self, text: str) -> None:
        """Add another histogram from its `encoded` form."""
        self._histogram.add(HdrHistogram.decode(text.encode()))

    def encoded(self) -> str:
        """The V2 compressed format of HDR histogram logs, in base64, which all languages read."""
        return bytes(self._histogram.encode()).decode()

    def at(self, percentile: float) -> int:
        """The value in µs below which that many percent lie."""
        return int(self._histogram.get_value_at_percentile(percentile))

    def summary(self) -> dict[str, Any]:
        """Count, mean, percentiles and maximum in µs, and the histogram itself."""
        if not self.count:
            return {"count": 0}
        return {
            "count": self.count,
            "mean": round(float(self._histogram.get_mean_value()), 1),
            **{f"p{each:g}": self.at(each) for each in PERCENTILES},
            "max": int(self._histogram.get_max_value()),
            "hdr": self.encoded(),
        }
