"""Times of the requests that the loop handles: counted by API, with the slow ones kept.

    received ── handled ── answer known ── sent
       │ the handler │ waits for the disk, │ waits for answers before it, and for a
       │             │ coordinator, sealer │ client that reads slowly

Waits that a client asked for (for records or other members of its group) appear in a slow request's
row, but neither make it slow nor count. The kernel counts its own turns (shm.kernels.turn.turns);
`count_turns` adds its counts.
"""

import numpy as np

from shm.kernels.base.words import TIME_BUCKETS
from shm.kernels.request.fetch import FETCH_KEY
from shm.kernels.turn.words import TIME_SUMS_AT, TIMES_AT
from shm.timings import NodeTimings, SlowRequest
from smq.app.process.clock import monotonic_ns, wall_ms

PRODUCE_KEY = 0


class Timing:
    """The times of one request. Its methods are called in this order, each at most once."""

    __slots__ = ("_answered_ns", "_began_ns", "_bytes", "_client", "_handled_ns", "_key", "_times",
                 "_version", "is_patient")  # fmt: skip

    def __init__(  # noqa: PLR0913, PLR0917  (they are a row)
        self, times: "RequestTimes", key: int, version: int, began_ns: int, size: int, client: str
    ) -> None:
        self._times, self._key, self._version, self._bytes = times, key, version, size
        self._client, self._began_ns = client, began_ns
        self._handled_ns = self._answered_ns = 0
        self.is_patient = False  # Whether its client asked it to wait.

    def handled(self) -> None:
        """The handler has returned the answer, or what it waits for."""
        self._handled_ns = monotonic_ns()

    def answered(self) -> None:
        """The answer is known and may be sent."""
        self._answered_ns = monotonic_ns()

    def sent(self) -> None:
        """The socket has taken all of it."""
        now_ns = monotonic_ns()
        answered = self._answered_ns or now_ns
        handled = min(self._handled_ns or answered, answered)
        parts = handled - self._began_ns, answered - handled, now_ns - answered
        took_ns = now_ns - self._began_ns - (parts[1] if self.is_patient else 0)
        times = self._times
        times.node.count(self._key, took_ns)
        if took_ns >= times.slow_ns:
            handled_us, waited_us, sent_us = (each // 1000 for each in parts)
            what = self._key, self._version, wall_ms()
            row = SlowRequest(*what, handled_us, waited_us, sent_us, self._bytes, self._client)
            times.node.add_slow(row)


class RequestTimes:
    """The times of one shard. `slow_ms`: requests that take longer are kept as slow."""

    def __init__(self, node: NodeTimings, slow_ms: int) -> None:
        self.node, self.slow_ns = node, slow_ms * 1_000_000
        self._counted = np.zeros(2 * TIME_BUCKETS + 2, np.int64)

    def begin(self, key: int, version: int, began_ns: int, size: int, client: str) -> Timing:
        """Time a request of this many bytes, received at `began_ns`."""
        return Timing(self, key, version, began_ns, size, client)

    def count_turns(self, turn: np.ndarray) -> None:
        """Add what the kernel's turns have counted in their words since the last call."""
        now = turn[TIMES_AT : TIME_SUMS_AT + 2].copy()
        new, self._counted = now - self._counted, now
        self.node.counts[PRODUCE_KEY, :] += new[:TIME_BUCKETS]
        self.node.counts[FETCH_KEY, :] += new[TIME_BUCKETS : 2 * TIME_BUCKETS]
        self.node.sums[PRODUCE_KEY] += new[-2]
        self.node.sums[FETCH_KEY] += new[-1]
