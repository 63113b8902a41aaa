"""Fetches that wait in the kernel's table, until the loop must answer one.

A kernel parks a fetch there, and answers it when its records arrive. The loop takes a fetch over
when the kernel cannot continue: the client sends another request, the catalog changes, the shard
takes turns itself, or the fetch's deadline passes.
"""

from collections.abc import Callable, Iterable

import numpy as np

from shm.kernels.turn.parked import NEVER_NS
from smq.app.process.clock import monotonic_ns
from smq.app.process.loop import Loop, Timer
from smq.app.shard.quick_turns import QuickTurns

NS = 1_000_000  # Of a millisecond.

TakeOver = Callable[[int, np.ndarray, int], None]
"""A client's descriptor, its request, and how many milliseconds it may wait still."""


class ParkedFetches:
    """The parked fetches of one shard. `take_over` answers a fetch, or has it wait in the loop."""

    def __init__(self, loop: Loop, quick_turns: QuickTurns, take_over: TakeOver) -> None:
        self._loop, self._quick_turns, self._take_over = loop, quick_turns, take_over
        self._waiting = quick_turns.waiting
        self._expiry: Timer | None = None

    def unpark(self, fd: int) -> None:
        """Take over a client's fetch, if it has one there."""
        if self._quick_turns.is_parked(fd):
            request, due_ns = self._quick_turns.unpark(fd)
            self._take_over(fd, request, max(0, -((monotonic_ns() - due_ns) // NS)))

    def unpark_all(self) -> None:
        """Take over all of them."""
        for fd in self._waiting.clients():
            self.unpark(fd)

    def moved(self, slots: Iterable[int]) -> None:
        """The loop has published records of these partitions."""
        if len(self._waiting):
            for fd in self._waiting.concerned(slots):
                self.unpark(fd)

    def watch(self) -> None:
        """A kernel may have parked some: set a timer for the first deadline of all."""
        due_ns = self._waiting.due_ns
        if due_ns < (NEVER_NS if self._expiry is None else self._expiry.due_ns):
            if self._expiry is not None:
                self._expiry.cancel()
            self._expiry = self._loop.call_at(due_ns, self._expire)

    def _expire(self) -> None:
        self._expiry = None
        for fd in self._waiting.due(monotonic_ns()):
            self.unpark(fd)
        self.watch()
