"""A partition's turn of a worker, while others wait."""

from smq.app.process.clock import awake_ms, monotonic_ms


class Turn:
    """Is over after some time. What the worker waits for a core does not count: it would write many
    small files."""

    def __init__(self, length_ms: int) -> None:
        self._length_ms = length_ms
        self._begun_ms, self._begun_awake_ms = monotonic_ms(), awake_ms()

    def is_over(self) -> bool:
        """Whether it is others' turn."""
        if monotonic_ms() - self._begun_ms < self._length_ms:  # The other clock is slow to read.
            return False
        return awake_ms() - self._begun_awake_ms >= self._length_ms
