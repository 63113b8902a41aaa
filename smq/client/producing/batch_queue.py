"""One partition's batches, as a producer has them: waiting, in flight, to be sent again.

What may be sent when, and why, says smq.client.producing.accumulator.
"""

from bisect import insort
from collections import deque

import numpy as np

from smq.client.producing.channel import answer_format, request_head
from smq.client.producing.parcel import Parcel
from smq.client.producing.single import Single

IN_FLIGHT_MAX = 5  # A broker remembers five batches of a producer and partition (KIP-98).
NEVER_SENT = -1


class Batch:
    """Rows [first, end) of a parcel's columns. Before it is sent it may be cut anywhere."""

    __slots__ = (
        "end",
        "epoch",
        "first",
        "is_given_up",
        "is_in_doubt",
        "is_refused",
        "ordinal",
        "parcel",
        "sent_ms",
        "sequence",
        "size_bytes",
    )

    def __init__(self, parcel: Parcel | Single, first: int, end: int) -> None:
        self.parcel = parcel
        self.first = first
        self.end = end
        self.ordinal = NEVER_SENT  # Its place among the batches of its partition.
        self.epoch = 0
        self.sequence = 0
        self.size_bytes = 0
        self.sent_ms = 0
        self.is_refused = False
        self.is_in_doubt = False  # Whether it was sent and no answer came, or may yet come.
        self.is_given_up = False  # In flight beyond its deadline: its rows have failed.

    def __lt__(self, other: "Batch") -> bool:
        return self.ordinal < other.ordinal


class Queue:
    """One partition's batches: sent ones that must be sent again, in order, then the others.

    Invariants: `in_flight` and `again` are in the order of their ordinals, and no two of them are
    IN_FLIGHT_MAX apart or more; only one is in flight if the broker does not know us yet.
    """

    def __init__(self, topic: str, partition: int, client_id: str) -> None:
        self.topic = topic
        self.partition = partition
        self.head = request_head(client_id, topic, partition)
        self.head_data = np.frombuffer(self.head, np.uint8)
        self.answer_format = answer_format(topic)
        self.leader = -1
        self.message_bytes_max = 0
        self.again: list[Batch] = []
        self.waiting: deque[Batch] = deque()
        self.in_flight: list[Batch] = []
        self.epoch = 0
        self.sequence = 0
        self.next_ordinal = 0
        self.is_known = False
        self.retry_ms = 0
        self.given_up = NEVER_SENT  # The last of this epoch to fail in doubt, while it still is.
        self.is_doubtful = False  # Whether its leader must be asked for before anything is sent.

    def may_send(self, now_ms: int) -> bool:
        """Whether the next batch may go now, as far as this queue knows."""
        if self.again:
            return self._is_led(now_ms) and not self.in_flight
        return bool(self.waiting) and self._may_follow(now_ms)

    def is_free(self, now_ms: int) -> bool:
        """Whether a new batch would find nothing before it, and may go now."""
        return not self.again and not self.waiting and self._may_follow(now_ms)

    def _is_led(self, now_ms: int) -> bool:
        return now_ms >= self.retry_ms and not self.is_doubtful and self.leader >= 0

    def _may_follow(self, now_ms: int) -> bool:
        """Whether a new batch may follow those in flight."""
        if not self._is_led(now_ms):
            return False
        # What is in flight for the second time may be followed by batches that have arrived: it is
        # the distance from the oldest that the broker must remember.
        in_flight = self.in_flight
        distance = self.next_ordinal - in_flight[0].ordinal if in_flight else 0
        return not in_flight or (self.is_known and distance < IN_FLIGHT_MAX)

    def next(self) -> Batch:
        """The batch whose turn it is."""
        return self.again[0] if self.again else self.waiting[0]

    def remove(self, batch: Batch) -> None:
        """The batch whose turn it is has no more rows. If it is not there, this does nothing."""
        for batches in (self.again, self.waiting):
            if batches and batches[0] is batch:
                del batches[0]

    def take_back(self, batch: Batch) -> None:
        """A batch was not taken, or nobody knows: it will be sent again. Twice, it is once."""
        if batch not in self.again:
            insort(self.again, batch)

    def put_back(self, batch: Batch) -> None:
        """A batch whose turn it was has not left."""
        if batch.ordinal == NEVER_SENT:
            self.waiting.appendleft(batch)
        else:
            self.take_back(batch)

    def note_taken(self, batch: Batch) -> None:
        """The broker has a batch, and so all that were sent before it."""
        self.is_known = True
        if self.given_up < batch.ordinal:
            self.given_up = NEVER_SENT

    def note_failed(self, batch: Batch) -> None:
        """A batch that was sent fails; if it is in doubt, the broker may yet take it."""
        if batch.is_in_doubt:
            self.given_up = max(self.given_up, batch.ordinal)

    def doubt(self, retry_ms: int) -> None:
        """Something passing went wrong: wait a little, and ask who leads."""
        self.retry_ms, self.is_doubtful = retry_ms, True

    def begin_epoch_if_refused(self) -> None:
        """Once nothing is in flight any more, what waits behind a refused sequence begins again."""
        if self.in_flight or not self.again or not self.again[0].is_refused:
            return
        anew = [Batch(each.parcel, each.first, each.end) for each in self.again]
        waiting = deque([*anew, *self.waiting])
        self.epoch += 1  # One step from here on: no calls, no interrupts.
        self.sequence, self.is_known, self.given_up = 0, False, NEVER_SENT
        self.again, self.waiting = [], waiting

    def invariants(self) -> None:
        """Assert them."""
        assert self.again == sorted(self.again)
        assert self.in_flight == sorted(self.in_flight)
        assert self.is_known or len(self.in_flight) <= 1
        ordinals = [batch.ordinal for batch in [*self.again, *self.in_flight]]
        assert max(ordinals, default=0) - min(ordinals, default=0) < IN_FLIGHT_MAX
        assert all(batch.ordinal == NEVER_SENT for batch in self.waiting)
        assert all(batch.ordinal >= 0 for batch in [*self.again, *self.in_flight])
