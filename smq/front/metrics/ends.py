"""The past ends of partitions, which convert a lag in records to a lag in seconds.

    lag in seconds = now - the time when the committed offset was the partition's end

That time is interpolated between two samples. When there are too many samples, every second one of
the older half is dropped: the history covers ever longer times, and is precise for recent ones.
"""

import numpy as np

SAMPLES_MAX = 64  # 8 bytes each for every partition: 5 MB for 10,000.


class Ends:
    """Samples of end offsets, by partition number."""

    def __init__(self) -> None:
        self._times_ms: list[int] = []
        self._samples: list[tuple[np.ndarray, np.ndarray]] = []

    def add(self, now_ms: int, numbers: np.ndarray, ends: np.ndarray) -> None:
        """Add a sample: the numbers of partitions, ascending, and their ends; int64."""
        if self._times_ms and now_ms <= self._times_ms[-1]:
            return
        if self._samples and np.array_equal(numbers, self._samples[-1][0]):
            numbers = self._samples[-1][0]  # Mostly so: samples share them.
        self._times_ms.append(now_ms)
        self._samples.append((numbers, ends))
        if len(self._times_ms) > SAMPLES_MAX:
            half = SAMPLES_MAX // 2
            self._times_ms[:half] = self._times_ms[:half:2]
            self._samples[:half] = self._samples[:half:2]

    def lag_s(self, number: int, offset: int, now_ms: int) -> float | None:
        """How long ago a committed offset was the end; 0 if it still is; None if unknown.

        For an offset older than all samples, the age of the oldest sample is a lower bound.
        """
        later: tuple[int, int] | None = None
        samples = zip(reversed(self._times_ms), reversed(self._samples), strict=True)
        for time_ms, (numbers, ends) in samples:
            at = int(np.searchsorted(numbers, number))
            if at == len(numbers) or numbers[at] != number:
                break
            end = int(ends[at])
            if end <= offset:
                return _between((time_ms, end), later, offset, now_ms)
            later = time_ms, end
        return None if later is None else max(0.0, (now_ms - later[0]) / 1000)


def _between(
    earlier: tuple[int, int], later: tuple[int, int] | None, offset: int, now_ms: int
) -> float:
    if later is None:
        return 0.0
    (from_ms, first), (to_ms, last) = earlier, later
    assert first <= offset < last
    reached_ms = from_ms + (to_ms - from_ms) * (offset - first) / (last - first)
    return max(0.0, (now_ms - reached_ms) / 1000)
