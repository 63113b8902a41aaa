"""Token buckets: how long a client must wait after using more than its rate allows.

A bucket fills at its rate, up to the tokens of `burst_s` seconds. Using more makes a debt, and the
client waits until it is paid: in the long run, usage is bounded by the rate plus one burst.
"""

from collections import OrderedDict
from collections.abc import Hashable

BUCKETS_MAX = 10_000  # Clients choose their names: the longest unused bucket is forgotten first …
DEBTS_PASSED_MAX = 16  # … but one with a debt, which other names would pay: so many may be passed.
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

    def owes(self, now_ms: float) -> bool:
        """Whether it has a debt."""
        return self._filled(now_ms) < 0

    def _filled(self, now_ms: float) -> float:
        return self._left + self.rate * max(0.0, now_ms - self._seen_ms) / 1000


class Buckets:
    """The buckets of all clients, by their sharing key."""

    def __init__(self, burst_s: float = 1.0) -> None:
        self._burst_s = burst_s
        self._buckets: OrderedDict[Hashable, Bucket] = OrderedDict()

    def use(self, key: Hashable, rate: float, amount: float, now_ms: float) -> int:
        """Use an amount of a bucket; returns how long to wait, in ms."""
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = Bucket(rate, rate * self._burst_s, now_ms)
            if len(self._buckets) > BUCKETS_MAX:
                self._forget_one(now_ms)
        self._buckets.move_to_end(key)
        bucket.rate = rate
        return bucket.use(amount, now_ms, self._burst_s)

    def _forget_one(self, now_ms: float) -> None:
        for _ in range(DEBTS_PASSED_MAX):
            key, bucket = next(iter(self._buckets.items()))
            if not bucket.owes(now_ms):
                break
            self._buckets.move_to_end(key)
        self._buckets.popitem(last=False)
