"""Member ids that a group has assigned but that have not joined yet (KIP-394).

A rebalance waits for each until its deadline. Clients that request ids and never join cost at most
`PENDING_BYTES_MAX`: beyond that the oldest id is dropped. A join with a dropped id gets
UNKNOWN_MEMBER_ID and requests another, as after its deadline.
"""

from collections import OrderedDict

from smq.coordinator.deadlines import Deadlines

# About 10,000 ids of usual length. An id contains the client id, up to 32 KiB.
PENDING_BYTES_MAX = 2 * 1024 * 1024
ID_OVERHEAD_BYTES = 128  # An id's table entries.


class PendingIds:
    """The ids in the order of assignment. `bytes_held` estimates their memory."""

    def __init__(self) -> None:
        self.deadlines = Deadlines()
        self.bytes_held = 0
        # Linked: finding a dict's first key scans the entries deleted from its front.
        self._ids: OrderedDict[str, None] = OrderedDict()

    def __contains__(self, member_id: object) -> bool:
        return member_id in self._ids

    def __len__(self) -> int:
        return len(self._ids)

    def give(self, member_id: str, deadline_ms: int) -> None:
        """Add a new id; a rebalance waits for it until the deadline."""
        assert member_id not in self._ids
        self._ids[member_id] = None
        self.bytes_held += _bytes(member_id)
        self.deadlines.set(member_id, deadline_ms)
        while self.bytes_held > PENDING_BYTES_MAX:
            self.discard(next(iter(self._ids)))

    def discard(self, member_id: str) -> None:
        """Remove an id, if it is pending."""
        if member_id in self._ids:
            del self._ids[member_id]
            self.bytes_held -= _bytes(member_id)
            self.deadlines.clear(member_id)

    def expire(self, now_ms: int) -> bool:
        """Remove ids whose deadline has passed; returns whether there were any."""
        due = self.deadlines.take_due(now_ms)
        for member_id in due:
            self.discard(member_id)
        return bool(due)

    def invariants(self) -> None:
        """Assert what holds between any two calls."""
        self.deadlines.invariants()
        assert all(member_id in self.deadlines for member_id in self._ids)
        assert len(self.deadlines) == len(self._ids)
        assert self.bytes_held == sum(map(_bytes, self._ids)) <= PENDING_BYTES_MAX


def _bytes(member_id: str) -> int:
    return len(member_id) + ID_OVERHEAD_BYTES
