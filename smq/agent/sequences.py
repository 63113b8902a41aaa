"""Which records of a publisher were sent before, by the numbers that it gives them.

A publisher that gives a number again means the same record: it gets that one's answer, and the
record is not appended twice. At least the newest KEPT_MAX of a publisher in a partition are known.
A number below all that are known is refused: whether it was appended is not known any more.

All publishers together have ALL_MAX. Where they are more, the publishers that were silent for
longest are forgotten of the users who have most: whoever has less than users have on average loses
nothing, whatever names the others invent. Users are grouped by the bits of what they have, so that
those who have most are found without looking at all of them.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar
from uuid import UUID

KEPT_MAX = 1024
ALL_MAX = 500_000  # Records, of 200 bytes each.
PUBLISHER_COST = 8  # What a publisher in a partition takes, in records.
MORE = 8  # Of so many parts of KEPT_MAX one more is kept, as they are sorted to drop the lowest.
FREED = 200  # Of so many parts one is made free at once.

Sent = TypeVar("Sent")


class PublisherName(NamedTuple):
    """A publisher in a partition. `owner`: the user whose it is."""

    owner: str
    name: str
    topic_id: UUID
    partition: int


class TooOld(Exception):
    """A number is below all that are known of its publisher."""


class _Publisher(Generic[Sent]):
    __slots__ = ("known", "lowest")

    def __init__(self) -> None:
        self.known: dict[int, Sent] = {}
        self.lowest: int | None = None  # That may be new; None: any.


class _Owner(Generic[Sent]):
    __slots__ = ("cost", "publishers")

    def __init__(self) -> None:
        self.publishers: OrderedDict[PublisherName, _Publisher[Sent]] = OrderedDict()
        self.cost = 0


class Sequences(Generic[Sent]):
    """What became of each number, by publisher; while this process lives."""

    def __init__(self, kept_max: int = KEPT_MAX, all_max: int = ALL_MAX) -> None:
        self._kept_max, self._all_max = kept_max, all_max
        self._owners: dict[str, _Owner[Sent]] = {}
        self._by_bits: defaultdict[int, dict[str, None]] = defaultdict(dict)
        self._cost = 0

    def once(self, name: PublisherName, sequence: int, send: Callable[[], Sent]) -> Sent:
        """What was sent with this number; `send` sends it, the first time. Raises TooOld."""
        publisher = self._of(name)
        if self._cost >= self._all_max:
            self._make_room(name)
        known = publisher.known
        if sequence in known:
            return known[sequence]
        if publisher.lowest is not None and sequence < publisher.lowest:
            raise TooOld(
                f"sequence {sequence} is below the {self._kept_max} newest of publisher {name.name}"
            )
        known[sequence] = sent = send()
        self._count(name.owner, 1)
        if len(known) > self._kept_max + self._kept_max // MORE:
            oldest = sorted(known)[: -self._kept_max]
            for each in oldest:
                del known[each]
            self._count(name.owner, -len(oldest))
            publisher.lowest = oldest[-1] + 1
        return sent

    def settle(self, name: PublisherName, sequence: int, sent: Sent, became: Sent) -> None:
        """What became of a record, in place of the record itself."""
        publisher = self._find(name)
        if publisher is not None and publisher.known.get(sequence) is sent:
            publisher.known[sequence] = became

    def forget(self, name: PublisherName, sequence: int, sent: Sent) -> None:
        """A record was not appended: its number may be sent again."""
        publisher = self._find(name)
        if publisher is not None and publisher.known.get(sequence) is sent:
            del publisher.known[sequence]
            self._count(name.owner, -1)

    def _find(self, name: PublisherName) -> _Publisher[Sent] | None:
        owner = self._owners.get(name.owner)
        return None if owner is None else owner.publishers.get(name)

    def _of(self, name: PublisherName) -> _Publisher[Sent]:
        publishers = self._owners.setdefault(name.owner, _Owner()).publishers
        found = publishers.get(name)
        if found is None:
            found = publishers[name] = _Publisher()
            self._count(name.owner, PUBLISHER_COST)
        publishers.move_to_end(name)
        return found

    def _count(self, owner: str, cost: int) -> None:
        found = self._owners[owner]
        before = found.cost.bit_length()
        found.cost += cost
        self._cost += cost
        after = found.cost.bit_length()
        if before != after:
            self._by_bits[before].pop(owner, None)
            if after:
                self._by_bits[after][owner] = None

    def _make_room(self, sending: PublisherName) -> None:
        """Forget publishers of those who have most, and not the one that sends now."""
        goal, average = self._all_max - self._all_max // FREED, self._cost / len(self._owners)
        for least in (average, 0):  # All may have less than the one that sends.
            for bits in range(self._cost.bit_length(), 0, -1):
                for owner in [*self._by_bits[bits]]:
                    while self._cost > goal and self._cost_of(owner) >= max(1, least):
                        if not self._forget_oldest(owner, sending):
                            break
                    if self._cost <= goal:
                        return

    def _forget_oldest(self, owner: str, sending: PublisherName) -> bool:
        publishers = self._owners[owner].publishers
        oldest = next(iter(publishers), sending)
        if oldest == sending:
            return False
        self._count(owner, -PUBLISHER_COST - len(publishers.pop(oldest).known))
        if not publishers:
            del self._owners[owner]
        return True

    def _cost_of(self, owner: str) -> int:
        return self._owners[owner].cost if owner in self._owners else 0

    def invariants(self) -> None:
        for owner in self._owners.values():
            kept = (PUBLISHER_COST + len(each.known) for each in owner.publishers.values())
            assert owner.cost == sum(kept) > 0
        assert self._cost == sum(each.cost for each in self._owners.values())
        groups = {owner: bits for bits, owners in self._by_bits.items() for owner in owners}
        assert groups == {name: each.cost.bit_length() for name, each in self._owners.items()}
        one = PUBLISHER_COST + self._kept_max + self._kept_max // MORE
        assert self._cost <= self._all_max + one
