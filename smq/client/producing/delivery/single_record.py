"""A record that is sent alone: like a parcel of one row, without columns.

made      by `send`, when nothing of its topic is in flight
resolved  it has an offset or an error; the record is dropped
"""

import numpy as np

from shm.kernels.record.records_encode import One
from smq.client.producing.delivery.delivery_state import (
    FAILED,
    PENDING,
    UNKNOWN_OFFSET,
    Delivery,
    DeliveryState,
    Failure,
    Resolver,
)
from smq.client.producing.encode.columns import one_bound


class SingleRecord(DeliveryState):
    """A row and its state."""

    __slots__ = ("offset", "partition", "rows", "timestamp_ms")

    def __init__(
        self, topic: str, resolver: Resolver, one: One, partition: int, deadline_ms: int
    ) -> None:
        super().__init__(topic, resolver, deadline_ms)
        self.row_count = self.unresolved = 1
        self.rows: One | None = one
        self.partition = partition
        self.timestamp_ms = one.timestamp
        self.bytes = one_bound(one)
        self.offset = PENDING

    def bound(self, _first: int, _end: int) -> int:
        """Bytes that suffice for the record."""
        return self.bytes

    def resolve(self, _first: int, _end: int, base_offset: int, append_time_ms: int) -> None:
        """It is in the topic."""
        if append_time_ms >= 0:
            self.timestamp_ms = append_time_ms
        # Last, and by one assignment: other threads look at the offset without the lock.
        self.offset = base_offset if base_offset >= 0 else UNKNOWN_OFFSET
        self.unresolved, self.rows = 0, None

    def fail(self, _first: int, _end: int, error: Exception) -> None:
        """It is not in the topic, or its fate is unknown."""
        failure = Failure(np.zeros(1, np.int64), error)
        self.failures = [failure]  # Uninterruptible with the next; see shm.interrupts.
        self.offset, self.unresolved, self.rows = FAILED, 0, None

    def give_up(self, error: Exception) -> None:
        """Fail it, if it is not resolved."""
        if self.unresolved:
            self.fail(0, 1, error)

    def is_done(self, _row: int) -> bool:
        """Whether it is resolved."""
        return self.offset != PENDING

    def is_settled(self, _place: int) -> bool:
        """The same."""
        return self.offset != PENDING

    def delivery(self, _row: int) -> Delivery:
        """Its place, once it is done without an error."""
        return Delivery(self.topic, self.partition, self.offset, self.timestamp_ms)
