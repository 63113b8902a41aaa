"""Those who wait for their turn, of which addresses take turns too: who comes often, or goes and
comes again, waits behind his own. Who has many addresses has them of few networks: these take turns
before their addresses do.

    network  address   those of it, in order
    10.0.0   10.0.0.1  a1 a2 a3                a1 c1 b1 c2 a2 a3 come next
             10.0.0.2  b1
    10.9.9   10.9.9.3  c1 c2

What waits belongs to an open connection, and these are bounded. Clients choose the addresses:
Python hashes them with a secret.
"""

from collections.abc import Iterator
from typing import Generic, TypeVar

from smq.security.addresses import neighbourhood_of

ItemT = TypeVar("ItemT")  # Something that dictionaries take.


class FairQueue(Generic[ItemT]):
    """Each item waits once. An address is what `network_of` returns, or names a user.

    Invariant: both tables have the same items, no address has none, and no network.
    """

    def __init__(self) -> None:
        # The next network first, and in each its next address.
        self._waiting: dict[str, dict[str, dict[ItemT, None]]] = {}
        self._address_of: dict[ItemT, str] = {}

    def invariants(self) -> None:
        """Assert the class's invariant."""
        found = {
            item: address
            for network in self._waiting.values()
            for address, items in network.items()
            for item in items
        }
        assert found == self._address_of
        assert all(network and all(network.values()) for network in self._waiting.values())

    def __len__(self) -> int:
        return len(self._address_of)

    def __contains__(self, item: object) -> bool:
        return item in self._address_of

    def __iter__(self) -> Iterator[ItemT]:
        return iter(self._address_of)

    def add(self, item: ItemT, address: str) -> None:
        """It waits, behind those of its address."""
        assert item not in self._address_of, "it waits"
        network = self._waiting.setdefault(neighbourhood_of(address), {})
        network.setdefault(address, {})[item] = None
        self._address_of[item] = address

    def discard(self, item: ItemT) -> None:
        """It waits no more, if it did."""
        address = self._address_of.pop(item, None)
        if address is None:
            return
        network = self._waiting[neighbourhood_of(address)]
        del network[address][item]
        if not network[address]:
            del network[address]
        if not network:
            del self._waiting[neighbourhood_of(address)]

    def of_most(self) -> list[ItemT]:
        """Those of the address that has most in the network that has most, in order; among several
        the one that comes last."""
        networks = reversed(self._waiting.values())
        network = max(networks, key=lambda each: sum(map(len, each.values())))
        return [*max(reversed(network.values()), key=len)]

    def pop(self) -> ItemT:
        """The next one: its network, and in that its address, is behind all others then. Raises
        StopIteration: none waits."""
        name = next(iter(self._waiting))
        network = self._waiting.pop(name)
        address = next(iter(network))
        items = network.pop(address)
        item = next(iter(items))
        del items[item], self._address_of[item]
        if items:
            network[address] = items
        if network:
            self._waiting[name] = network
        return item
