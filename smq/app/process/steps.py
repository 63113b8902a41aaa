"""Work in steps: one step per turn of the loop, in rotation over all pieces of work.

A large request waits longer; every other request waits one step longer at most.
"""

from collections import deque
from collections.abc import Callable

from smq.app.process.loop import Loop

Work = Callable[[], bool]  # One step; False if it was the last or the work continues by itself.


class Steps:
    """All work that a loop does in steps."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._waiting: deque[Work] = deque()
        self._is_due = False

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, work: Work) -> None:
        """Schedule some work; its first step runs in a later turn."""
        self._waiting.append(work)
        self._call()

    def clear(self) -> None:
        """Drop all work."""
        self._waiting.clear()

    def _call(self) -> None:
        if self._waiting and not self._is_due:
            self._is_due = True
            self._loop.call_later(0, self._step)

    def _step(self) -> None:
        self._is_due = False
        if not self._waiting:
            return
        work = self._waiting.popleft()
        if work():
            self._waiting.append(work)
        self._call()
