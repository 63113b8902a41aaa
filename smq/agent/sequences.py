"""Which records of a publisher were sent before, by the numbers that it gives them.

A publisher that gives a number again means the same record: it gets that one's answer, and the
record is not appended twice. The newest KEPT_MAX of a publisher in a partition are known. A lower
number than these is refused: whether it was appended is not known any more.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar
from uuid import UUID

KEPT_MAX = 1024
PUBLISHERS_MAX = 1000  # Of all topics; the one that was silent for longest is forgotten.

Sent = TypeVar("Sent")


class PublisherName(NamedTuple):
    """A publisher in a partition."""

    name: str
    topic_id: UUID
    partition: int


class TooOld(Exception):
    """A number is below all that are known of its publisher."""


class Sequences(Generic[Sent]):
    """What became of each number, by publisher; while this process lives."""

    def __init__(self, kept_max: int = KEPT_MAX, publishers_max: int = PUBLISHERS_MAX) -> None:
        self._kept_max, self._publishers_max = kept_max, publishers_max
        self._known: OrderedDict[PublisherName, OrderedDict[int, Sent]] = OrderedDict()
        self._lowest: dict[PublisherName, int] = {}

    def once(self, publisher: PublisherName, sequence: int, send: Callable[[], Sent]) -> Sent:
        """What was sent with this number; `send` sends it, the first time. Raises TooOld."""
        known = self._of(publisher)
        if sequence in known:
            return known[sequence]
        if sequence < self._lowest.get(publisher, sequence):
            raise TooOld(
                f"sequence {sequence} is below the {self._kept_max} newest of publisher "
                f"{publisher.name}"
            )
        known[sequence] = sent = send()
        if len(known) > self._kept_max:
            oldest = min(known)
            del known[oldest]
            self._lowest[publisher] = oldest + 1
        return sent

    def settle(self, publisher: PublisherName, sequence: int, sent: Sent, became: Sent) -> None:
        """What became of a record, in place of the record itself."""
        known = self._known.get(publisher)
        if known is not None and known.get(sequence) is sent:
            known[sequence] = became

    def forget(self, publisher: PublisherName, sequence: int, sent: Sent) -> None:
        """A record was not appended: its number may be sent again."""
        known = self._known.get(publisher)
        if known is not None and known.get(sequence) is sent:
            del known[sequence]

    def _of(self, publisher: PublisherName) -> OrderedDict[int, Sent]:
        known = self._known.setdefault(publisher, OrderedDict())
        self._known.move_to_end(publisher)
        while len(self._known) > self._publishers_max:
            gone, _ = self._known.popitem(last=False)
            self._lowest.pop(gone, None)
        return known
