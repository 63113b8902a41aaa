"""Token buckets: how long a client must wait after using more than its rate allows.

A bucket fills at its rate, up to the tokens of `burst_s` seconds. Using more makes a debt, and the
client waits until it is paid: in the long run, usage is bounded by the rate plus one burst.
"""

from collections.abc import Hashable
from heapq import nsmallest

# Clients choose their names. Who forgets a bucket forgives its debt: those that are full soonest go
# first, so many at once, as looking through all of them takes some 3 ms.
BUCKETS_MAX, FORGOTTEN_AT_ONCE = 10_000, 256
WAIT_MS_MAX = 30_000  # A client considers a connection that is silent for longer broken.


class Bucket:
    """A bucket with one rate per second, which may change."""

    __slots__ = ("_left", "_seen_ms", "rate")

    def __init__(self, rate: float, left: float, now_ms: float) -> None:
        self.rate, self._left, self._seen_ms = rate, left, now_ms

    def use(self, amount: float, now_ms: float, burst_s: float) -> int:
        """Use an amount; returns how long to wait until the debt is paid, in ms; 0: no debt."""
        self._left = min(self.rate * burst_s, self._filled(now_ms)) - amount
        self._seen_ms = now_ms
        if self._left >= 0:
            return 0
        if not self.rate:
            return WAIT_MS_MAX
        return int(min(WAIT_MS_MAX, -1000 * self._left / self.rate + 1))

    def full_ms(self, burst_s: float) -> float:
        """When it is, or was, like a new one. That of a rate of 0 always is: it has nothing."""
        if not self.rate:
            return 0.0
        return self._seen_ms + 1000 * (burst_s - self._left / self.rate)

    def _filled(self, now_ms: float) -> float:
        return self._left + self.rate * max(0.0, now_ms - self._seen_ms) / 1000


class Buckets:
    """The buckets of all clients, by their sharing key."""

    def __init__(self, burst_s: float = 1.0) -> None:
        self._burst_s = burst_s
        self._buckets: dict[Hashable, Bucket] = {}

    def use(self, key: Hashable, rate: float, amount: float, now_ms: float) -> int:
        """Use an amount of a bucket; returns how long to wait, in ms."""
        bucket = self._buckets.get(key)
        if bucket is None:
            if len(self._buckets) >= BUCKETS_MAX:
                self._forget_some()
            bucket = self._buckets[key] = Bucket(rate, rate * self._burst_s, now_ms)
        bucket.rate = rate
        return bucket.use(amount, now_ms, self._burst_s)

    def _forget_some(self) -> None:
        def full_ms(key: Hashable) -> float:
            return self._buckets[key].full_ms(self._burst_s)

        for key in nsmallest(FORGOTTEN_AT_ONCE, self._buckets, key=full_ms):
            del self._buckets[key]
