"""A partition's turn of a worker, while others wait."""

from smq.app.process.clock import awake_ms, monotonic_ms
from smq.app.sealer.pause import Pause


class Turn:
    """Is over after some time. The time that the worker waits for a core, or pauses, does not
    count: it would write many small files."""

    def __init__(self, length_ms: int, pause: Pause) -> None:
        self._length_ms, self._pause = length_ms, pause
        self._begun_ms, self._begun_awake_ms = monotonic_ms(), awake_ms()

    def is_over(self) -> bool:
        """Whether it is others' turn. It is asked for between two steps, so the worker pauses."""
        paused_ms = self._pause.wait()
        self._begun_ms += paused_ms
        self._begun_awake_ms += paused_ms
        if monotonic_ms() - self._begun_ms < self._length_ms:  # The other clock is slow to read.
            return False
        return awake_ms() - self._begun_awake_ms >= self._length_ms
