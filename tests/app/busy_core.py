"""A core that is never idle."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def busy_core() -> Iterator[None]:
    """This process and its forks share one core with a process that always wants it."""
    cores, parent = os.sched_getaffinity(0), os.getpid()
    os.sched_setaffinity(0, {min(cores)})
    busy = os.fork()
    if busy == 0:
        while os.getppid() == parent:
            pass
        os._exit(0)
    try:
        yield
    finally:
        os.kill(busy, signal.SIGKILL)
        os.waitpid(busy, 0)
        os.sched_setaffinity(0, cores)
