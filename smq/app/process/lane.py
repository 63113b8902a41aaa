"""A thread for work that takes milliseconds and must not hold up a loop, such as hashing passwords.

It starts with the first work, so that a process that never needs it has none.
"""

import os
import select
from collections.abc import Callable
from typing import TypeVar

from smq.app.process.loop import Loop
from smq.log.files.background import JobThread

T = TypeVar("T")


class ThreadLane:
    """Work of one kind, one after the other."""

    def __init__(self, loop: Loop, name: str) -> None:
        self._loop, self._name = loop, name
        self._worker: JobThread | None = None

    def submit(self, work: Callable[[], T], done: Callable[[T | OSError], None]) -> None:
        """Do the work in the thread; `done` gets its result in the loop."""
        if self._worker is None:
            fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            worker = self._worker = JobThread(self._name, lambda: os.eventfd_write(fd, 1))

            def collect(_events: int) -> None:
                os.eventfd_read(fd)
                worker.collect()

            self._loop.register(fd, select.EPOLLIN, collect)
        self._worker.submit(work, done)
