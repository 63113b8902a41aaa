"""How many resources with configs are created or changed in a step: few, with few characters."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

PART_RESOURCES = 10  # Each has its line in the catalog written anew: a fraction of a ms.
PART_CHARACTERS = 16 * 1024  # Of their configs: a list of this length takes a millisecond.

R = TypeVar("R")


def parts_of(resources: Sequence[R], characters_of: Callable[[R], int]) -> Iterator[Sequence[R]]:
    """Portions for a step each, in order; one at least, for an answer has a part at least."""
    first = characters = 0
    for at, resource in enumerate(resources):
        own = characters_of(resource)
        is_full = at - first == PART_RESOURCES or characters + own > PART_CHARACTERS
        if at > first and is_full:
            yield resources[first:at]
            first, characters = at, 0
        characters += own
    yield resources[first:]
