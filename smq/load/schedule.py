"""When messages are due (an open loop), and which rates to try (a search).

A message's latency counts from the moment it is due, not from the call that sends it. Messages
that a stall of the broker delays count as late: none is left out because the generator had to wait
(coordinated omission).
"""

NS = 1_000_000_000
SUSTAINED_SHARE = 0.98
SEARCH_PRECISION = 1.05


class Schedule:
    """Message `i` is due `i / rate` seconds after the start. Times are in ns of one clock."""

    def __init__(self, start_ns: int, rate: float) -> None:
        self._start_ns, self._rate = start_ns, rate
        self.sent = 0

    def due_ns(self) -> int:
        """When the next message is due."""
        return self._start_ns + int(self.sent * NS / self._rate)

    def take(self) -> int:
        """Count the next message as sent; returns when it was due."""
        due_ns = self.due_ns()
        self.sent += 1
        return due_ns


class RateSearch:
    """Bisects, by ratio, between a sustained and a failed rate.

    `highest` is the rate of a closed loop: an open loop hardly exceeds it.
    """

    def __init__(self, highest: float) -> None:
        self._kept, self._refused = 0.0, highest * SEARCH_PRECISION
        self._lowest = highest / 64

    def next_rate(self) -> float | None:
        """The rate to try next; None once the result is precise enough."""
        if self._refused <= max(self._kept, self._lowest) * SEARCH_PRECISION:
            return None
        if not self._kept:
            return float(round(self._refused * 0.75))
        return float(round((self._kept * self._refused) ** 0.5))

    def tell(self, rate: float, *, kept: bool) -> None:
        """Record the outcome of a trial."""
        if kept:
            self._kept = max(self._kept, rate)
        else:
            self._refused = min(self._refused, rate)

    @property
    def found(self) -> float:
        """The highest sustained rate; 0 if none was."""
        return self._kept


def is_kept(rate: float, acked_s: float, read_s: float | None) -> bool:
    """Whether a trial sustained its rate: acknowledged and read messages keep up with due ones.

    `read_s` is the slowest subscription's read rate per second; None without one.
    """
    wanted = SUSTAINED_SHARE * rate
    return acked_s >= wanted and (read_s is None or read_s >= wanted)
