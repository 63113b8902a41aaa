"""Time and randomness, as inputs: decisions never read a clock or a generator themselves."""

from typing import NamedTuple, Protocol
from uuid import UUID


class Now(NamedTuple):
    """Ages and deadlines, stored ones too, use the monotonic clock; the wall clock is what people
    read."""

    monotonic_ms: int
    wall_ms: int

    def wall_of(self, moment_ms: int) -> int:
        """What the wall clock, as it is set now, would have said at a monotonic moment."""
        return self.wall_ms - (self.monotonic_ms - moment_ms)


class Chance(Protocol):
    """A `random.Random`, seeded by the caller."""

    def getrandbits(self, k: int, /) -> int:
        """A number of `k` bits."""


def random_uuid(chance: Chance) -> UUID:
    """A UUID of version 4 whose base64 form does not begin with '-', like Kafka's ids.

    Command line tools would read a leading '-' as an option.
    """
    while True:
        drawn = UUID(int=chance.getrandbits(128), version=4)
        if drawn.bytes[0] >> 2 != 0b111110:
            return drawn
