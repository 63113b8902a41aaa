"""The ends that partitions had in the past: what turns a lag in records into one in seconds.

    lag in seconds = now - the time when the committed offset was the partition's end

found between two samples by interpolation. A sample is taken now and then; when there are too many,
every second of the older half goes, so that the past is known for ever longer times, and the recent
past well.
"""

import numpy as np

SAMPLES_MAX = 64  # 8 bytes each for every partition: 5 MB for 10,000.


class Ends:
    """Samples of the end offsets of partitions, by partition number."""

    def __init__(self) -> None:
        self._times_ms: list[int] = []
        self._samples: list[np.ndarray] = []

    def add(self, now_ms: int, ends: np.ndarray) -> None:
        """Take a sample: int64 by partition number, -1 where there is no partition."""
        if self._times_ms and now_ms <= self._times_ms[-1]:
            return  # The clock was set back: what follows it is taken when time has passed.
        self._times_ms.append(now_ms)
        self._samples.append(ends)
        if len(self._times_ms) > SAMPLES_MAX:
            half = SAMPLES_MAX // 2
            self._times_ms[:half] = self._times_ms[:half:2]
            self._samples[:half] = self._samples[:half:2]

    def lag_s(self, number: int, offset: int, now_ms: int) -> float | None:
        """How long ago a committed offset was the end; 0 if it is the end; None: not known.

        An offset that is older than all samples is at least as late as the first of them.
        """
        later: tuple[int, int] | None = None
        for time_ms, ends in zip(reversed(self._times_ms), reversed(self._samples), strict=True):
            end = int(ends[number]) if number < len(ends) else -1
            if end < 0:
                break
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
