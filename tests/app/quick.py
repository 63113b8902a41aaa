"""What a kernel's turns have taken of a bench's loop, and what they hold."""

from tests.app.shard_client import ServerBench

Events = list[tuple[int, int]]


class Quick:
    """Counts the calls that a kernel took; forbids them if it is to."""

    def __init__(self, bench: ServerBench, *, is_allowed: bool = True) -> None:
        self._take, self._is_allowed, self.taken = bench.loop.quick, is_allowed, 0
        bench.loop.quick = self._called

    def _called(self, events: Events) -> bool:
        is_taken = self._is_allowed and self._take(events)
        self.taken += is_taken
        return is_taken


def awaited(bench: ServerBench) -> int:
    """How many fetches wait in the kernel's table."""
    return len(bench.server._quick_turns.waiting)
