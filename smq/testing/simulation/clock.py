"""The host's clocks: the simulation advances them, and sets the wall clock."""

MS = 1_000_000
_BOOTED_NS = 1_000_000 * MS
_WALL_NS = 1_700_000_000_000 * MS  # At the moment when `now_ns` was _BOOTED_NS.


class SimulatedClock:
    """The simulation's replacement of the clocks in smq.app.process.clock."""

    def __init__(self) -> None:
        self.now_ns = _BOOTED_NS
        self._off_ns = 0  # How far the wall clock is off.

    def monotonic_ns(self) -> int:
        """See smq.app.process.clock."""
        return self.now_ns

    def wall_ns(self) -> int:
        """See smq.app.process.clock."""
        return self.now_ns - _BOOTED_NS + _WALL_NS + self._off_ns

    def set_wall(self, off_s: int) -> None:
        """Set the wall clock of the whole host: it is off by so much, until it is set again."""
        self._off_ns = off_s * 1000 * MS

    def elapsed_ms(self) -> float:
        """The time since the simulation began."""
        return (self.now_ns - _BOOTED_NS) / MS
