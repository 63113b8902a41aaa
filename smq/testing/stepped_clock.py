"""A clock for the SDK that stands still until a test steps it. See `smq.client.clock.Clock`."""


class SteppedClock:
    """Starts at `monotonic_ns` and `wall_ms`. Sleeping steps it, and returns at once."""

    def __init__(self, monotonic_ns: int = 0, wall_ms: int = 0) -> None:
        self._monotonic_ns = self._start_ns = monotonic_ns
        self._wall_ms = wall_ms

    def step(self, seconds: float) -> None:
        """Let this much time pass."""
        assert seconds >= 0, "time only grows"
        self._monotonic_ns += round(seconds * 1e9)

    def monotonic_s(self) -> float:
        """Seconds that only grow."""
        return self._monotonic_ns / 1e9

    def monotonic_ms(self) -> int:
        """Milliseconds that only grow."""
        return self._monotonic_ns // 1_000_000

    def monotonic_ns(self) -> int:
        """Nanoseconds that only grow."""
        return self._monotonic_ns

    def wall_ms(self) -> int:
        """Milliseconds since 1970; they pass with the steps."""
        return self._wall_ms + (self._monotonic_ns - self._start_ns) // 1_000_000

    def sleep(self, seconds: float) -> None:
        """Step by so much, and return at once."""
        self.step(max(0.0, seconds))
