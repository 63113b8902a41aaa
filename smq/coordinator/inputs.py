"""What decisions are given and never take for themselves: the time, and chance."""

from typing import NamedTuple, Protocol
from uuid import UUID


class Now(NamedTuple):
    """Timeouts go by the monotonic clock, retention and what is stored by the wall clock."""

    monotonic_ms: int
    wall_ms: int


class Chance(Protocol):
    """A `random.Random`, seeded by whoever passes it in."""

    def getrandbits(self, k: int, /) -> int:
        """A number of `k` bits."""


def random_uuid(chance: Chance) -> UUID:
    """A UUID of version 4 whose base64 form does not begin with '-', as Kafka's ids.

    Command line tools would take it for an option.
    """
    while True:
        drawn = UUID(int=chance.getrandbits(128), version=4)
        if drawn.bytes[0] >> 2 != 0b111110:
            return drawn
