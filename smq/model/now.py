"""The time as an argument: decisions never read a clock."""

from typing import NamedTuple


class Now(NamedTuple):
    """Ages and deadlines, stored ones too, use the monotonic clock; the wall clock is what people
    read, and what Kafka defines by it."""

    monotonic_ms: int
    wall_ms: int

    def wall_of(self, moment_ms: int) -> int:
        """What the wall clock, as it is set now, would have said at a monotonic moment."""
        return self.wall_ms - (self.monotonic_ms - moment_ms)
