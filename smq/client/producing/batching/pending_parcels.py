"""Parcels that a producer has taken with unresolved rows: the contents of its buffer."""

from collections.abc import Iterator
from typing import TypeAlias

from smq.client.producing.delivery.parcel import Parcel
from smq.client.producing.delivery.single_record import SingleRecord

Pending: TypeAlias = Parcel | SingleRecord


class PendingParcels:
    """In the order in which they were taken.

    buffered_bytes  the bytes that they take of the buffer
    changed         the parcels with rows resolved since `take_changed`, as keys
    """

    def __init__(self) -> None:
        self.buffered_bytes = 0
        self._parcels: dict[Pending, None] = {}
        self._count_by_topic: dict[str, int] = {}
        self.changed: dict[Pending, None] = {}

    def __len__(self) -> int:
        return len(self._parcels)

    def __contains__(self, parcel: Pending) -> bool:
        return parcel in self._parcels

    def __iter__(self) -> Iterator[Pending]:
        """Over a copy: the caller may resolve parcels meanwhile."""
        return iter([*self._parcels])

    def count(self, topic: str) -> int:
        """How many of a topic's parcels are pending."""
        return self._count_by_topic.get(topic, 0)

    def add(self, parcel: Pending) -> None:
        """Take a parcel."""
        count = self._count_by_topic.get(parcel.topic, 0)
        self._parcels[parcel] = None  # Uninterruptible from here on; see shm.interrupts.
        self.buffered_bytes += parcel.bytes
        self._count_by_topic[parcel.topic] = count + 1

    def note_resolved(self, parcel: Pending) -> None:
        """Rows of a parcel have been resolved; if all are, it is no longer pending."""
        self.changed[parcel] = None  # Uninterruptible from here on; see shm.interrupts.
        if not parcel.unresolved and parcel in self._parcels:
            del self._parcels[parcel]
            self.buffered_bytes -= parcel.bytes
            self._count_by_topic[parcel.topic] -= 1

    def take_changed(self) -> list[Pending]:
        """Take the parcels that have changed since the last call."""
        changed, self.changed = self.changed, {}
        return [*changed]

    def has_callbacks(self) -> bool:
        """Whether callbacks wait for rows to be resolved."""
        return any(parcel.callbacks for parcel in self._parcels)

    def clear(self) -> list[Pending]:
        """At the end: remove and return the parcels left, which will never be resolved."""
        left, self._parcels = self._parcels, {}
        return [*left]

    def invariants(self) -> None:
        """Assert them."""
        assert self.buffered_bytes == sum(parcel.bytes for parcel in self._parcels)
        assert sum(self._count_by_topic.values()) == len(self._parcels)
