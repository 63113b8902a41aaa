"""A kernel's turns in a bench's loop: how many it has taken, and the fetches that it holds."""

from collections.abc import Callable
from typing import Any

from tests.app.shard_client import ServerBench
from tests.shard.shard_bench import batch, produce_request

Make = Callable[..., ServerBench]
DISK = {"smq.durability": "disk"}


def one(value: bytes = b"x", acks: int = -1, correlation: int = 1) -> bytes:
    """A Produce request of one batch for the topic `one`."""
    return produce_request({"one": {0: batch(value)}}, acks, correlation)


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
    return len(bench.server._quick_turns.parked)
