"""What a kernel's turns have taken of a bench's loop, and what they hold."""

from typing import Any

from tests.app.shard_client import ServerBench


class Quick:
    """Counts the calls that a kernel took; forbids them if it is to."""

    def __init__(self, bench: ServerBench, *, is_allowed: bool = True) -> None:
        turns = bench.server._quick_turns
        self._run, self.taken = turns.run, 0
        turns.run = self._counted  # type: ignore[method-assign]
        if not is_allowed:
            turns.may_run = lambda: False  # type: ignore[method-assign]

    def _counted(self, *arguments: Any, **keywords: Any) -> bool:
        is_taken = self._run(*arguments, **keywords)
        self.taken += is_taken
        return is_taken


def awaited(bench: ServerBench) -> int:
    """How many fetches wait in the kernel's table."""
    return len(bench.server._quick_turns.waiting)
