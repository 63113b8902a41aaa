"""Those who wait for their turn, of which addresses take turns too: who comes often, or goes and
comes again, waits behind his own.

    address   those of it, in order
    10.0.0.1  a1 a2 a3                  a1 b1 c1 a2 c2 a3 come next
    10.0.0.2  b1
    10.0.0.3  c1 c2

What waits belongs to an open connection, and these are bounded. Clients choose the addresses:
Python hashes them with a secret.
"""

from collections.abc import Iterator
from typing import Generic, TypeVar

ItemT = TypeVar("ItemT")  # Something that dictionaries take.


class FairQueue(Generic[ItemT]):
    """Each item waits once. An address is what `network_of` returns, or names a user.

    Invariant: both tables have the same items, and no address has none.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, dict[ItemT, None]] = {}  # The next address first.
        self._address_of: dict[ItemT, str] = {}

    def invariants(self) -> None:
        """Assert the class's invariant."""
        found = {item: address for address, items in self._waiting.items() for item in items}
        assert found == self._address_of
        assert all(self._waiting.values())

    def __len__(self) -> int:
        return len(self._address_of)

    def __contains__(self, item: object) -> bool:
        return item in self._address_of

    def __iter__(self) -> Iterator[ItemT]:
        return iter(self._address_of)

    def add(self, item: ItemT, address: str) -> None:
        """It waits, behind those of its address."""
        assert item not in self._address_of, "it waits"
        self._waiting.setdefault(address, {})[item] = None
        self._address_of[item] = address

    def discard(self, item: ItemT) -> None:
        """It waits no more, if it did."""
        address = self._address_of.pop(item, None)
        if address is not None:
            del self._waiting[address][item]
            if not self._waiting[address]:
                del self._waiting[address]

    def of_most(self) -> list[ItemT]:
        """Those of the address that has most, in order; among several the one that comes last."""
        return [*max(reversed(self._waiting.values()), key=len)]

    def pop(self) -> ItemT:
        """The next one: its address is behind all others then. Raises StopIteration: none waits."""
        address = next(iter(self._waiting))
        of_address = self._waiting.pop(address)
        item = next(iter(of_address))
        del of_address[item], self._address_of[item]
        if of_address:
            self._waiting[address] = of_address
        return item
