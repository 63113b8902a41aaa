"""A clock that moves when the simulation says so."""

MS = 1_000_000
_BOOTED_NS = 1_000_000 * MS
_WALL_NS = 1_700_000_000_000 * MS  # Of the moment at which `now_ns` was _BOOTED_NS.


class SimulatedClock:
    """What smq.app.process.clock reads in a simulation."""

    def __init__(self) -> None:
        self.now_ns = _BOOTED_NS

    def monotonic_ns(self) -> int:
        """See smq.app.process.clock."""
        return self.now_ns

    def wall_ns(self) -> int:
        """See smq.app.process.clock."""
        return self.now_ns - _BOOTED_NS + _WALL_NS

    def elapsed_ms(self) -> float:
        """Since the simulation began."""
        return (self.now_ns - _BOOTED_NS) / MS
