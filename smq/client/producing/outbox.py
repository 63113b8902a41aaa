"""Takes records from user threads into open parcels, and decides when these leave.

With `linger_ms` 0 a record leaves at once if nothing of its topic is in flight, as far as the
producer has checked. Otherwise it joins the open parcel. That leaves when it is full, when the last
parcel of its topic has arrived, or after HOLD_MS. So a single record does not wait, and many
records share batches, whatever their rate.
"""

from smq.client.arguments import whole_number
from smq.client.errors import AuthenticationFailed
from smq.client.producing.channel.links import ProducerTopic
from smq.client.producing.delivery.delivery_state import Resolver
from smq.client.producing.delivery.parcel import Parcel
from smq.client.producing.open_parcels import OpenParcels
from smq.client.producing.parts import Parts


class Outbox:
    """All methods require the producer's lock. The caller has waited for room and the topic."""

    def __init__(self, parts: Parts, resolver: Resolver) -> None:
        self._options, self._clock, self._state = parts.options, parts.clock, parts.state
        self._accumulator, self._exchange = parts.accumulator, parts.exchange
        self._topics, self._resolver = parts.topics, resolver
        self.open_parcels = OpenParcels(parts.options, parts.accumulator.pending)
        self._timeout_ms = parts.options.delivery_timeout_ms

    # --- topics ----------------------------------------------------------------------------------

    def learn(self, topic: str, facts: ProducerTopic) -> None:
        """Take a topic's metadata."""
        self._accumulator.learn(topic, *facts)
        self._topics.learn(topic, facts, self._clock.monotonic_ms())

    def drop_topic(self, topic: str) -> None:
        """A topic has been deleted: fail its waiting records."""
        if topic in self.open_parcels:
            self.send_open(topic)
        self._topics.drop(topic)
        self._accumulator.fail_topic(topic)

    def drop_unauthenticated(self, topic: str, reason: AuthenticationFailed) -> None:
        """No broker tells us of a topic: fail its waiting records. The next `send` asks again."""
        if topic in self.open_parcels:
            self.send_open(topic)
        self._topics.drop(topic)
        self._accumulator.fail_unauthenticated(lambda queue: queue.topic == topic, reason)
        self._accumulator.queues.drop_stale(topic)

    def check_partition(self, topic: str, partition: int | None) -> None:
        """Raise ValueError if a topic that is known has no such partition."""
        if partition is not None:
            whole_number("partition", partition, 0, self._topics.get(topic).partition_count)

    # --- parcels ---------------------------------------------------------------------------------

    def open_parcel(self, topic: str, size_bytes: int) -> Parcel:
        """The topic's open parcel, which takes a record of this size."""
        parcel = self.open_parcels.find(topic)
        if parcel is None:
            is_idle = not self._options.linger_ms and not self._accumulator.pending.count(topic)
            if not is_idle:
                self._exchange.enable_wakeups()
            room = -1 if is_idle else self.open_parcels.first_room(size_bytes)
            parcel = self.new_parcel(topic, room)
            self.open_parcels.add(parcel)
            if self._options.linger_ms:
                self.wake()  # The thread must learn when it has lingered.
        return parcel

    def new_parcel(self, topic: str, room: int) -> Parcel:
        """An open parcel with room for this many bytes."""
        deadline_ms = self._clock.monotonic_ms() + self._timeout_ms
        return Parcel(topic, self._resolver, self._clock.wall_ms(), deadline_ms, room)

    def grow_or_send(self, parcel: Parcel) -> None:
        """An open parcel has used up its room: reserve more for it, or send it."""
        if not self.open_parcels.grow(parcel):
            self.send_open(parcel.topic)

    def send_open(self, topic: str) -> None:
        """Close a topic's open parcel and send as much as may go now."""
        parcel, known = self.open_parcels.get(topic), self._topics.get(topic)
        try:
            parcel.close(known.partition_count, known.keyless)
            self.send_closed(parcel)
        finally:
            if parcel.is_closed:  # An interrupt must not lose it.
                self._take(parcel)

    def send_all_open(self) -> None:
        """As `send_open`, for all topics."""
        for topic in self.open_parcels.topics():
            self.send_open(topic)

    def close_open(self, topic: str) -> None:
        """Close a topic's open parcel without sending it: it is pending."""
        parcel, known = self.open_parcels.get(topic), self._topics.get(topic)
        parcel.close(known.partition_count, known.keyless)
        self._take(parcel)

    def send_closed(self, parcel: Parcel) -> None:
        """Send a closed parcel, as far as it may go now."""
        self._topics.get(parcel.topic).rotate_keyless()
        accumulator, exchange = self._accumulator, self._exchange
        self._take(parcel)
        failed = len(accumulator.pending.changed)
        exchange.drain(self._clock.monotonic_ms(), parcels=1)
        is_left = accumulator.queues.has_ready()
        if is_left:  # It waits for answers, mostly.
            exchange.enable_wakeups()
        # Only the thread does this: close and open channels, call back, push.
        has_failed = len(accumulator.pending.changed) > failed
        queues = accumulator.queues
        is_cut_off = is_left and bool(exchange.missing() or queues.barred())
        if accumulator.lost or has_failed or is_cut_off or exchange.must_push():
            self.wake()

    def _take(self, parcel: Parcel) -> None:
        """Make a closed parcel pending. A second call does nothing."""
        self._accumulator.add(parcel)
        self.open_parcels.remove(parcel)

    def wake(self) -> None:
        """Have the thread do its round."""
        if not self._state.is_closed:
            self._exchange.wake()
