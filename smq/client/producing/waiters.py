"""Threads that sleep until something has changed that a lock guards.

As threading.Condition, for which an interrupt is the end of this order: `wait` may be left without
the lock, and the `with` around it then opens the lock of somebody else, or none.
"""

import threading
import time
from _thread import RLock
from collections.abc import Callable
from functools import partial
from typing import TypeVar

Result = TypeVar("Result")


def without(lock: RLock, work: Callable[[], Result]) -> Result:
    """With the lock held: do this without it. It is held again afterwards, whatever interrupts."""
    held_once = 1, threading.get_ident()
    try:
        lock.release()
        result = work()
    finally:  # What conditions use: unlike `acquire` it cannot be interrupted.
        lock._acquire_restore(held_once)  # type: ignore[attr-defined]  # noqa: SLF001
    return result


class Waiters:
    """Those who wait for one kind of change. All but `bool` wants the lock held, once."""

    def __init__(self, lock: RLock) -> None:
        self._lock = lock
        self._asleep: list[threading.Lock] = []

    def __bool__(self) -> bool:
        """Whether somebody may be asleep."""
        return bool(self._asleep)

    def wait_for(self, condition: Callable[[], bool], timeout_s: float | None) -> bool:
        """Sleep until the condition holds; False: it took too long."""
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        while not condition():
            left_s = -1.0 if end_s is None else end_s - time.monotonic()
            if end_s is not None and left_s <= 0:
                return False
            told = threading.Lock()
            told.acquire()
            self._asleep.append(told)
            without(self._lock, partial(told.acquire, timeout=left_s))
        return True

    def tell_all(self) -> None:
        """Have all look again."""
        asleep, self._asleep = self._asleep, []
        for each in asleep:
            each.release()
