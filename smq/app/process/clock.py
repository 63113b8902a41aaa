"""The only clock. Everybody else takes the time as an argument.

Retention and timestamps are wall time; timeouts are monotonic. The simulator puts clocks of its own
in the place of the system's, here and nowhere else, for a block of code.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_wall_ns: Callable[[], int] = time.time_ns
_monotonic_ns: Callable[[], int] = time.monotonic_ns


def wall_ms() -> int:
    """Milliseconds since 1970, as in Kafka's timestamps."""
    return _wall_ns() // 1_000_000


def monotonic_ns() -> int:
    """Nanoseconds that only grow, from an arbitrary start."""
    return _monotonic_ns()


def monotonic_ms() -> int:
    """Milliseconds that only grow, from an arbitrary start."""
    return _monotonic_ns() // 1_000_000


@contextmanager
def replaced(wall_ns: Callable[[], int], monotonic_ns: Callable[[], int]) -> Iterator[None]:
    """Read these clocks while the block lasts."""
    global _wall_ns, _monotonic_ns
    before = _wall_ns, _monotonic_ns
    _wall_ns, _monotonic_ns = wall_ns, monotonic_ns
    try:
        yield
    finally:
        _wall_ns, _monotonic_ns = before
