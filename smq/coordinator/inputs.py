"""Randomness as an input: decisions never read a generator themselves."""

from typing import Protocol
from uuid import UUID


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
