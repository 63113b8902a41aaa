"""Parcels that still take records, one per topic, and the part of the buffer that they reserve."""

from smq.client.producing.batching.pending_parcels import PendingParcels
from smq.client.producing.delivery.parcel import Parcel
from smq.client.producing.parts import Options

HOLD_MS = 100  # The longest wait for earlier parcels: one broker may be silent, others not.
FIRST_BYTES = 4096  # What a parcel reserves at first; then twice as much, and so on.


class OpenParcels:
    """All methods require the producer's lock.

    The buffer counts what open parcels reserve and what pending ones take.
    """

    def __init__(self, options: Options, pending: PendingParcels) -> None:
        self._options = options
        self._timeout_ms = options.delivery_timeout_ms
        self._pending = pending
        self._by_topic: dict[str, Parcel] = {}
        self._reserved_bytes = 0
        self.find = self._by_topic.get  # By topic; the dict's own method: one call less a record.

    def __len__(self) -> int:
        return len(self._by_topic)

    def __contains__(self, topic: str) -> bool:
        return topic in self._by_topic

    def topics(self) -> list[str]:
        """Those that have an open parcel."""
        return [*self._by_topic]

    def get(self, topic: str) -> Parcel:
        """The topic's, which there is."""
        return self._by_topic[topic]

    def add(self, parcel: Parcel) -> None:
        """Open a parcel, which reserves what it was granted."""
        self._reserved_bytes += parcel.granted  # Uninterruptible with the next; see shm.interrupts.
        self._by_topic[parcel.topic] = parcel

    def remove(self, parcel: Parcel) -> None:
        """A parcel is closed, and pending. A second call does nothing."""
        topic, granted = parcel.topic, parcel.granted
        if self._by_topic.get(topic) is parcel:
            self._reserved_bytes -= granted  # Uninterruptible with the next; see shm.interrupts.
            del self._by_topic[topic]

    def grow(self, parcel: Parcel) -> bool:
        """Reserve more for a parcel that has no room; False: it or the buffer is full."""
        batch_bytes = self._options.batch_bytes
        more = min(max(parcel.granted, -parcel.room), batch_bytes - parcel.granted)
        if not (parcel.granted and parcel.room + more >= 0 and self.has_room(more)):
            return False
        self._reserved_bytes += more  # Uninterruptible from here on; see shm.interrupts.
        parcel.granted += more
        parcel.room += more
        return True

    def clear(self) -> list[Parcel]:
        """At the end: remove and return the parcels left, which will not be sent."""
        left = [*self._by_topic.values()]
        self._by_topic.clear()
        return left

    # --- the buffer ------------------------------------------------------------------------------

    def buffered_bytes(self) -> int:
        """What open and pending parcels take of the buffer."""
        return self._pending.buffered_bytes + self._reserved_bytes

    def has_room(self, size_bytes: int) -> bool:
        """Whether there is room for this many more bytes. An empty buffer takes any record."""
        taken = self._pending.buffered_bytes + self._reserved_bytes
        return not taken or taken + size_bytes <= self._options.buffer_bytes

    def has_room_without_open(self, size_bytes: int) -> bool:
        """Whether there were room if open parcels reserved nothing."""
        taken = self._pending.buffered_bytes
        return not taken or taken + size_bytes <= self._options.buffer_bytes

    def first_room(self, size_bytes: int) -> int:
        """The bytes that a new parcel reserves if its first record has this size."""
        taken = self._pending.buffered_bytes + self._reserved_bytes
        left = self._options.buffer_bytes - taken
        return min(max(size_bytes, min(FIRST_BYTES, left)), self._options.batch_bytes)

    # --- lingering -------------------------------------------------------------------------------

    def due(self, now_ms: int, *, is_draining: bool) -> list[str]:
        """The topics whose open parcel must be sent now."""
        lingers = self._options.linger_ms and not is_draining
        return [
            topic
            for topic, parcel in self._by_topic.items()
            if (not lingers and not self._pending.count(topic))
            or self._lingers_until_ms(parcel) <= now_ms
        ]

    def linger_left_ms(self, now_ms: int) -> int | None:
        """Until the next parcel has lingered; None: there is none."""
        ends = map(self._lingers_until_ms, self._by_topic.values())
        end_ms = min(ends, default=None)
        return None if end_ms is None else end_ms - now_ms

    def _lingers_until_ms(self, parcel: Parcel) -> int:
        """In monotonic time, as the deadline."""
        return parcel.deadline_ms - self._timeout_ms + (self._options.linger_ms or HOLD_MS)
