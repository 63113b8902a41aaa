"""The only clock. Everybody else takes the time as an argument.

Retention and timestamps are wall time; timeouts are monotonic.
"""

import time


def wall_ms() -> int:
    """Milliseconds since 1970, as in Kafka's timestamps."""
    return time.time_ns() // 1_000_000


def monotonic_ns() -> int:
    """Nanoseconds that only grow, from an arbitrary start."""
    return time.monotonic_ns()


def monotonic_ms() -> int:
    """Milliseconds that only grow, from an arbitrary start."""
    return time.monotonic_ns() // 1_000_000
