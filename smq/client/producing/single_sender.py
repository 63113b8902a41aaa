"""The fast path for a record that is sent alone: no parcel, no columns, one kernel call."""

from shm.kernels.record.partition import choose_partition
from smq.client.producing.delivery.delivery_state import Resolver
from smq.client.producing.delivery.parcel import Extras
from smq.client.producing.delivery.single_record import SingleRecord
from smq.client.producing.encode.columns import one_of
from smq.client.producing.open_parcels import OpenParcels
from smq.client.producing.parts import Parts

SINGLES_MAX = 4  # Per topic: sent, and not acknowledged as far as the producer has checked.
BURST_NS = 50_000  # Records that come faster share a parcel.


class SingleSender:
    """All methods require the producer's lock."""

    def __init__(self, parts: Parts, resolver: Resolver, open_parcels: OpenParcels) -> None:
        self._clock, self._state, self._resolver = parts.clock, parts.state, resolver
        self._exchange, self._topics = parts.exchange, parts.topics
        self._pending, self._open_parcels = parts.accumulator.pending, open_parcels
        self._lingers = parts.options.linger_ms > 0
        self._timeout_ms = parts.options.delivery_timeout_ms
        self._sent_ns = 0  # When the last record was sent alone.

    def send(
        self, topic: str, value: bytes | None, key: bytes | None, extras: Extras
    ) -> SingleRecord | None:
        """Send a record alone; None: it must share a parcel, or wait."""
        known, exchange = self._topics.find(topic), self._exchange
        count, now_ns = self._pending.count(topic), self._clock.monotonic_ns()
        if known is None or not self._may_go_alone(count, now_ns):
            return None
        time_ms, partition = extras.timestamp_ms, extras.partition
        partition_count = len(known.facts.leaders)
        one = one_of(
            value, key, extras.headers, self._clock.wall_ms() if time_ms is None else time_ms
        )
        if partition is None and key is not None:
            partition = choose_partition(one.key, 0, len(key), partition_count, known.keyless)
        elif partition is None:
            partition = known.keyless
        now_ms = now_ns // 1_000_000
        single = SingleRecord(topic, self._resolver, one, partition, now_ms + self._timeout_ms)
        if partition >= partition_count or not self._open_parcels.has_room(single.bytes):
            return None
        if not exchange.send_single(single, now_ms):
            return None
        known.rotate_keyless()
        self._sent_ns = now_ns
        if count + 1 == SINGLES_MAX:
            exchange.poll_answers()
        if exchange.needs_thread():
            exchange.wake()
        return single

    def _may_go_alone(self, count: int, now_ns: int) -> bool:
        """Whether a record need not wait for the `count` pending ones of its topic.

        While the thread naps, the pending ones may have been acknowledged unseen, unless just sent.
        """
        if count:
            is_slow = now_ns - self._sent_ns > BURST_NS
            if not (is_slow and self._exchange.is_napping and count < SINGLES_MAX):
                return False
        state = self._state
        is_closed = state.is_closed or state.is_draining or state.why_not is not None
        return not (is_closed or self._lingers)
