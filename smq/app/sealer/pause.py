"""A byte that the sealer and a worker share: whether the worker waits between two steps."""

import mmap

from smq.app.process.clock import monotonic_ms, sleep

LOOK_SECONDS = 0.02


class Pause:
    """Set by the sealer. A worker waits where it holds nothing that others want."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 1)

    @property
    def is_on(self) -> bool:
        return self._memory[0] != 0

    def set(self, *, is_on: bool) -> None:
        """Whether the worker waits."""
        self._memory[0] = is_on

    def wait(self) -> int:
        """Return when the worker may go on; for how many ms it waited."""
        begun_ms = monotonic_ms()
        while self.is_on:
            sleep(LOOK_SECONDS)
        return monotonic_ms() - begun_ms


NEVER = Pause()  # Nobody sets it.
