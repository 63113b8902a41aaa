"""The only clock. All other code takes the time as an argument.

Retention and timestamps use wall time; timeouts use monotonic time. The simulator replaces the
system's clocks here, and nowhere else, for a block of code.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_wall_ns: Callable[[], int] = time.time_ns
_monotonic_ns: Callable[[], int] = time.monotonic_ns


def wall_ms() -> int:
    """Milliseconds since 1970, like Kafka's timestamps."""
    return _wall_ns() // 1_000_000


def monotonic_ns() -> int:
    """Monotonic nanoseconds from an arbitrary start."""
    return _monotonic_ns()


def monotonic_ms() -> int:
    """Monotonic milliseconds from an arbitrary start."""
    return _monotonic_ns() // 1_000_000


@contextmanager
def replaced(wall_ns: Callable[[], int], monotonic_ns: Callable[[], int]) -> Iterator[None]:
    """Use these clocks within the block."""
    global _wall_ns, _monotonic_ns
    before = _wall_ns, _monotonic_ns
    _wall_ns, _monotonic_ns = wall_ns, monotonic_ns
    try:
        yield
    finally:
        _wall_ns, _monotonic_ns = before
