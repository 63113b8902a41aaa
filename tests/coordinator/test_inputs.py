"""Chance is given: one seed, the same ids."""

from base64 import urlsafe_b64encode
from random import Random

from smq.coordinator.inputs import random_uuid


class Scripted:
    """Chance that comes as it was written down."""

    def __init__(self, *numbers: int) -> None:
        self._numbers = list(numbers)

    def getrandbits(self, k: int, /) -> int:
        return self._numbers.pop(0) & ((1 << k) - 1)


def test_one_seed_gives_the_same_ids() -> None:
    assert random_uuid(Random(7)) == random_uuid(Random(7)) != random_uuid(Random(8))


def test_an_id_that_looks_like_an_option_is_drawn_again() -> None:
    drawn = random_uuid(Scripted(0b111110 << 122, 0b111111 << 122))
    assert drawn.bytes[0] == 0b11111100
    assert not urlsafe_b64encode(drawn.bytes).startswith(b"-")
