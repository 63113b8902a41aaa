"""Who waits is passed over by nobody: networks take turns, and in each its addresses.

The queues of a shard are replaced by some that know who has had a turn meanwhile. They count turns,
so they need no clock.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from smq.app.shard.connections import newcomers_queue
from smq.app.shard.requests import fair_lane
from smq.security.addresses import neighbourhood_of
from smq.security.fair_queue import FairQueue

ItemT = TypeVar("ItemT")
_Place = tuple[str, str]  # What it is in, and its name: a network in "", an address in a network.


class WatchedQueue(FairQueue[ItemT]):
    """Raises AssertionError if a network has two turns while another one waits, or an address while
    another one of its network does."""

    def __init__(self) -> None:
        super().__init__()
        # By place that waits: the others that have had a turn since it began to, or had its own.
        self._passed_by: dict[_Place, set[_Place]] = {}

    def add(self, item: ItemT, address: str) -> None:
        """See FairQueue."""
        for place in _places(address) - self._places_waiting():
            self._passed_by[place] = set()
        super().add(item, address)

    def pop(self) -> ItemT:
        """See FairQueue."""
        address_of = dict(self._address_of)
        item = super().pop()
        places = _places(address_of[item])
        for inside, name in sorted(self._places_waiting() - places):
            passed_by = self._passed_by[inside, name]
            for place in (each for each in places if each[0] == inside):
                assert place not in passed_by, f"{place[1]} has two turns while {name} waits"
                passed_by.add(place)
        for place in places:
            self._passed_by[place] = set()
        return item

    def _places_waiting(self) -> set[_Place]:
        return {place for each in self._address_of.values() for place in _places(each)}


def _places(address: str) -> set[_Place]:
    network = neighbourhood_of(address)
    return {("", network), (network, address)}


@contextmanager
def watched() -> Iterator[None]:
    """The queues that are made within the block are watched."""
    for module in (newcomers_queue, fair_lane):
        vars(module)["FairQueue"] = WatchedQueue
    try:
        yield
    finally:
        for module in (newcomers_queue, fair_lane):
            vars(module)["FairQueue"] = FairQueue
