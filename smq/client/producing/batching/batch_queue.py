"""One partition's batches, as a producer has them: waiting, in flight, to be sent again.

The rules of sending are in smq.client.producing.batching.accumulator.
"""

from bisect import insort
from collections import deque
from itertools import pairwise

import numpy as np

from smq.client.producing.channel.produce_request import answer_format, request_head
from smq.client.producing.delivery.parcel import Parcel
from smq.client.producing.delivery.single_record import SingleRecord

IN_FLIGHT_MAX = 5  # A broker remembers five batches of a producer and partition (KIP-98).
NEVER_SENT = -1
SEQUENCE_END = 2**31  # Sequences begin again at 0 after 2^31 - 1.


class ParcelBatch:
    """Rows [first, end) of a parcel's columns. Before it is sent it may be cut anywhere."""

    __slots__ = (
        "end",
        "epoch",
        "first",
        "is_expired",
        "is_in_doubt",
        "is_refused",
        "ordinal",
        "parcel",
        "sent_ms",
        "sequence",
        "size_bytes",
    )

    def __init__(self, parcel: Parcel | SingleRecord, first: int, end: int) -> None:
        self.parcel = parcel
        self.first = first
        self.end = end
        self.ordinal = NEVER_SENT  # Its number among the batches of its partition.
        self.epoch = 0
        self.sequence = 0
        self.size_bytes = 0
        self.sent_ms = 0
        self.is_refused = False
        self.is_in_doubt = False  # It was sent and has no answer: the broker may have it.
        self.is_expired = False  # In flight past its deadline: its rows have failed.

    def __lt__(self, other: "ParcelBatch") -> bool:
        return self.ordinal < other.ordinal


class PartitionQueue:
    """One partition's batches: those to send again, in order, then those that were never sent.

    Invariants: `in_flight` and `to_resend` are in the order of their ordinals, and no two of them
    are IN_FLIGHT_MAX apart or more. Only one is in flight if the broker does not know the producer.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        client_id: str,
        epoch: int = 0,
        transactional_id: str | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.transactional_id = transactional_id
        self.is_transactional = transactional_id is not None
        self.head = request_head(client_id, topic, partition, transactional_id)
        self.head_data = np.frombuffer(self.head, np.uint8)
        self.answer_format = answer_format(topic)
        self.leader = -1
        self.message_bytes_max = 0
        self.last_failure = ""  # Why the last attempt to send failed; "" once a batch arrived.
        self.begin(epoch)

    def begin(self, epoch: int) -> None:
        """Begin with nothing to send, at sequence 0 of an epoch."""
        # Nothing is sent before the partition belongs to the transaction.
        self.is_barred = self.is_transactional
        self.to_resend: list[ParcelBatch] = []
        self.waiting: deque[ParcelBatch] = deque()
        self.in_flight: list[ParcelBatch] = []
        self.epoch = epoch
        self.sequence = 0
        self.next_ordinal = 0
        self.is_producer_known = False  # The broker has acknowledged a batch of this epoch.
        self.retry_at_ms = 0
        self.is_leader_stale = False  # Nothing is sent before the leader is known.
        # The last batch of this epoch that failed in doubt, until the broker takes a later one.
        self.last_failed_in_doubt = NEVER_SENT

    def learn(self, leader: int, message_bytes_max: int) -> None:
        """Take the metadata of the partition."""
        if self.leader != leader:
            self.leader, self.retry_at_ms = leader, 0
        self.message_bytes_max, self.is_leader_stale = message_bytes_max, False

    def may_send(self, now_ms: int) -> bool:
        """Whether the next batch may go now, as far as this queue knows."""
        if self.to_resend:
            return self._is_led(now_ms) and not self.in_flight
        return bool(self.waiting) and self._may_follow(now_ms)

    def is_free(self, now_ms: int) -> bool:
        """Whether a new batch would be the next one, and may go now."""
        return not self.to_resend and not self.waiting and self._may_follow(now_ms)

    def _is_led(self, now_ms: int) -> bool:
        is_known = not self.is_leader_stale and self.leader >= 0
        return is_known and now_ms >= self.retry_at_ms and not self.is_barred

    def _may_follow(self, now_ms: int) -> bool:
        """Whether a new batch may follow those in flight."""
        if not self._is_led(now_ms):
            return False
        # New batches may follow one that is in flight for the second time, if those between have
        # arrived. What counts is the distance from the oldest that the broker must remember.
        in_flight = self.in_flight
        distance = self.next_ordinal - in_flight[0].ordinal if in_flight else 0
        return not in_flight or (self.is_producer_known and distance < IN_FLIGHT_MAX)

    def next(self) -> ParcelBatch:
        """The batch to send next."""
        return self.to_resend[0] if self.to_resend else self.waiting[0]

    def stamp(self, batch: ParcelBatch, size_bytes: int) -> None:
        """Give a new batch that is sent the next sequence."""
        batch.size_bytes = size_bytes
        batch.epoch, batch.sequence = self.epoch, self.sequence
        batch.ordinal = self.next_ordinal
        self.next_ordinal += 1
        self.sequence = (self.sequence + batch.end - batch.first) % SEQUENCE_END

    def split_next(self, batch: ParcelBatch, row: int) -> None:
        """Send the next, new batch up to `row`; the rest stays as another batch."""
        if row < batch.end:
            rest = ParcelBatch(batch.parcel, row, batch.end)
            self.waiting[0] = rest  # Uninterruptible with the next; see shm.interrupts.
            batch.end = row
        else:
            self.waiting.popleft()

    def remove(self, batch: ParcelBatch) -> None:
        """The next batch has no rows left. A second call does nothing."""
        for batches in (self.to_resend, self.waiting):
            if batches and batches[0] is batch:
                del batches[0]

    def requeue(self, batch: ParcelBatch) -> None:
        """Queue a batch that was refused, or whose result is unknown, to be sent again.

        Sending it twice is safe: the producer is idempotent. A second call does nothing.
        """
        if batch not in self.to_resend:
            insort(self.to_resend, batch)

    def restore(self, batch: ParcelBatch) -> None:
        """Put back the next batch, which was not sent, unless it is there."""
        if batch in {*self.to_resend, *self.waiting}:
            return
        if batch.ordinal == NEVER_SENT:
            self.waiting.appendleft(batch)
        else:
            self.requeue(batch)

    def note_acknowledged(self, batch: ParcelBatch) -> None:
        """The broker has a batch, and so all batches sent before it."""
        self.is_producer_known, self.last_failure = True, ""
        if self.last_failed_in_doubt < batch.ordinal:
            self.last_failed_in_doubt = NEVER_SENT

    def note_failed(self, batch: ParcelBatch) -> None:
        """A sent batch fails. If it is in doubt, the broker may still take it."""
        if batch.is_in_doubt:
            self.last_failed_in_doubt = max(self.last_failed_in_doubt, batch.ordinal)

    def back_off(self, retry_at_ms: int) -> None:
        """Back off after a retriable error: send nothing before then, nor before the leader is
        known again."""
        self.retry_at_ms, self.is_leader_stale = retry_at_ms, True

    def bump_epoch_if_refused(self) -> None:
        """Begin a new epoch with all batches if a sequence was refused and nothing is in flight."""
        if self.in_flight or not self.to_resend or not self.to_resend[0].is_refused:
            return
        anew = [ParcelBatch(each.parcel, each.first, each.end) for each in self.to_resend]
        waiting = deque([*anew, *self.waiting])
        self.epoch += 1  # Uninterruptible from here on; see shm.interrupts.
        self.sequence, self.is_producer_known, self.last_failed_in_doubt = 0, False, NEVER_SENT
        self.to_resend, self.waiting = [], waiting

    def invariants(self) -> None:
        """Assert them."""
        assert self.to_resend == sorted(self.to_resend)
        assert self.in_flight == sorted(self.in_flight)
        assert self.is_producer_known or len(self.in_flight) <= 1
        sent = sorted([*self.to_resend, *self.in_flight])
        ordinals = [batch.ordinal for batch in sent]
        # The broker remembers no more, and would append the oldest one again.
        assert max(ordinals, default=0) - min(ordinals, default=0) < IN_FLIGHT_MAX
        for one, other in pairwise(sent):
            # A gap is refused for good; an overlap is taken for what the broker has already.
            if (one.epoch, one.ordinal + 1) == (other.epoch, other.ordinal):
                assert other.sequence == (one.sequence + one.end - one.first) % SEQUENCE_END
        assert all(batch.ordinal == NEVER_SENT for batch in self.waiting)
        assert all(batch.ordinal >= 0 for batch in [*self.to_resend, *self.in_flight])
