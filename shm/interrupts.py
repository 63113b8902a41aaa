"""Protects work from Ctrl-C, in two ways.

Python calls the handler of SIGINT, which raises KeyboardInterrupt, in the main thread only. There
it does so after a call, at the start of a function, and at a jump backwards, and nowhere else.

`without_interrupts` postpones the interrupt to the end of a function. It costs two system calls.

Uninterruptible statements cost nothing. A run of statements without calls and loops runs wholly or
not at all. Where code relies on this, a comment says `Uninterruptible`, and how far it goes: `from
here on` (to the end of the block), `with the next`, `with the return`, `since …` (up to this last
call), or this one statement. Put no calls there, not even of properties, and no loops.
tests/client/test_uninterruptible.py checks the marked statements; tests/client/interrupts.py raises
the interrupt at each place where it can occur.
"""

import signal
import threading
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def without_interrupts(work: Callable[P, R]) -> Callable[P, R]:
    """The same work; an interrupt during it is raised when it has ended."""

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
