"""Work that Ctrl-C must not break off in the midst: the interrupt comes right behind it.

Python calls the handler of SIGINT, which raises KeyboardInterrupt, in the main thread only and
between any two steps there: other threads are never interrupted.
"""

import signal
import threading
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def without_interrupts(work: Callable[P, R]) -> Callable[P, R]:
    """The same work, but an interrupt that comes meanwhile is raised when it has ended."""

    @wraps(work)
    def whole(*args: P.args, **keywords: P.kwargs) -> R:
        handler = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is not threading.main_thread() or not callable(handler):
            return work(*args, **keywords)
        came = []
        signal.signal(signal.SIGINT, lambda *interrupt: came.append(interrupt))
        try:
            return work(*args, **keywords)
        finally:
            signal.signal(signal.SIGINT, handler)
            if came:
                handler(*came[-1])

    return whole
