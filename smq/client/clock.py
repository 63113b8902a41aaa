"""The SDK's only clock. Code that decides takes a `Clock`, or the time it shows, as an argument.

A program gets `SYSTEM_CLOCK`, through `Reach.clock`. A simulator hands over a clock of its own and
steps it.

Deadlines and pauses use monotonic time, which never goes back. Timestamps are wall time.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """The clock that the SDK uses."""

    def monotonic_s(self) -> float:
        """Seconds that only grow, from an arbitrary start."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds that only grow, from the same start."""
        ...

    def monotonic_ns(self) -> int:
        """Nanoseconds that only grow, from the same start."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970, as in Kafka's timestamps."""
        ...

    def sleep(self, seconds: float) -> None:
        """Return when this much time has passed. Negative durations return at once."""
        ...


class SystemClock:
    """The machine's clock."""

    # The interpreter's own functions: a producer asks for the time with every record.
    monotonic_s = staticmethod(time.monotonic)
    monotonic_ns = staticmethod(time.monotonic_ns)

    def monotonic_ms(self) -> int:
        """Milliseconds that only grow, from the same start."""
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        """Milliseconds since 1970, as in Kafka's timestamps."""
        return time.time_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        """Return when this much time has passed. Negative durations return at once."""
        time.sleep(max(0.0, seconds))


SYSTEM_CLOCK: Clock = SystemClock()
