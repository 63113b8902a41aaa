"""Member ids that a group has given out and that nobody has joined with yet (KIP-394).

A rebalance waits for them, each until its deadline. Whoever asks for ids and never comes back gets
at most `PENDING_BYTES_MAX` of them kept: then the oldest is forgotten. Who joins with a forgotten
id is told UNKNOWN_MEMBER_ID and asks for another, as after its deadline.
"""

from collections import OrderedDict

from smq.coordinator.deadlines import Deadlines

# About 10,000 ids of usual length. An id holds its client's, which may be 32 KiB.
PENDING_BYTES_MAX = 2 * 1024 * 1024
ID_OVERHEAD_BYTES = 128  # Of its entries in tables.


class PendingIds:
    """The ids, in the order they were given out. `bytes_held` is about what they take."""

    def __init__(self) -> None:
        self.deadlines = Deadlines()
        self.bytes_held = 0
        # Ordered by links: the first of a dict is behind all that were deleted from its front.
        self._ids: OrderedDict[str, None] = OrderedDict()

    def __contains__(self, member_id: object) -> bool:
        return member_id in self._ids

    def __len__(self) -> int:
        return len(self._ids)

    def give(self, member_id: str, deadline_ms: int) -> None:
        """Wait for somebody to join with a new id, until then."""
        assert member_id not in self._ids
        self._ids[member_id] = None
        self.bytes_held += _bytes(member_id)
        self.deadlines.set(member_id, deadline_ms)
        while self.bytes_held > PENDING_BYTES_MAX:
            self.discard(next(iter(self._ids)))

    def discard(self, member_id: str) -> None:
        """Wait for it no longer, if it was waited for."""
        if member_id in self._ids:
            del self._ids[member_id]
            self.bytes_held -= _bytes(member_id)
            self.deadlines.clear(member_id)

    def expire(self, now_ms: int) -> bool:
        """Forget those whose deadline has passed; whether there were any."""
        due = self.deadlines.take_due(now_ms)
        for member_id in due:
            self.discard(member_id)
        return bool(due)

    def invariants(self) -> None:
        """What holds between any two calls."""
        self.deadlines.invariants()
        assert all(member_id in self.deadlines for member_id in self._ids)
        assert len(self.deadlines) == len(self._ids)
        assert self.bytes_held == sum(map(_bytes, self._ids)) <= PENDING_BYTES_MAX


def _bytes(member_id: str) -> int:
    return len(member_id) + ID_OVERHEAD_BYTES
