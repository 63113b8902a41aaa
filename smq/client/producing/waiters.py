"""Threads that sleep until something changes that a lock guards.

As `threading.Condition`, but safe from interrupts. An interrupted `Condition.wait` may return
without the lock, and the `with` around it then releases a lock that it does not hold.
"""

import threading
from _thread import RLock
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from smq.client.clock import Clock

Result = TypeVar("Result")


def without(lock: RLock, work: Callable[[], Result]) -> Result:
    """Release the lock, do the work, and acquire the lock again, whatever interrupts."""
    held_once = 1, threading.get_ident()
    try:
        lock.release()
        result = work()
    finally:  # As threading.Condition does: unlike `acquire` this cannot be interrupted.
        lock._acquire_restore(held_once)  # type: ignore[attr-defined]  # noqa: SLF001
    return result


class Waiters:
    """Threads that wait for one kind of change. All but `bool` require the lock, held once."""

    def __init__(self, lock: RLock, clock: Clock) -> None:
        self._lock, self._clock = lock, clock
        self._asleep: list[threading.Lock] = []

    def __bool__(self) -> bool:
        """Whether a thread may be asleep."""
        return bool(self._asleep)

    def wait_for(self, condition: Callable[[], bool], timeout_s: float | None) -> bool:
        """Sleep until the condition holds; False: the time is over first."""
        end_s = None if timeout_s is None else self._clock.monotonic_s() + timeout_s
        while not condition():
            left_s = -1.0 if end_s is None else end_s - self._clock.monotonic_s()
            if end_s is not None and left_s <= 0:
                return False
            told = threading.Lock()
            told.acquire()
            self._asleep.append(told)
            without(self._lock, partial(told.acquire, timeout=left_s))
        return True

    def tell_all(self) -> None:
        """Have all threads check their condition again."""
        asleep, self._asleep = self._asleep, []
        for each in asleep:
            each.release()
