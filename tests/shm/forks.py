"""Another process on the same memory, for tests of what two processes do to each other."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def forked(act: Callable[[], object]) -> Iterator[int]:
    """Runs `act` in a fork of this process; leaving waits for its end, which must be a good one."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            signal.alarm(60)  # Never left behind.
            act()
            status = 0
        finally:
            os._exit(status)
    yield pid
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
