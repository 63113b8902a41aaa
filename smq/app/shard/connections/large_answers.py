"""Bounds the memory of large answers that clients have not read yet.

The answer to a small request may have a hundred megabytes, from the coordinator or made here, and a
client may read it slowly. A connection waits for one such answer at a time; but a client may have
many connections. Beyond the bound, the client that reads slowest is disconnected. Lent records take
no memory and do not count.
"""

from functools import partial
from typing import NamedTuple

from smq.app.process.clock import monotonic_ns
from smq.app.shard.connections.connection import Connection

MiB = 1024 * 1024
LARGE_BYTES = MiB  # A connection may owe some megabytes of small answers anyway.
HELD_BYTES_MAX = 256 * MiB  # Of all clients of a shard; the newest answer goes beyond.
_SECOND_NS = 1_000_000_000


class _Begin(NamedTuple):
    """When an answer was known, and what its client had taken by then."""

    at_ns: int
    taken_bytes: int


class LargeAnswers:
    """Those of one shard's clients."""

    def __init__(self) -> None:
        self._begins: dict[Connection, _Begin] = {}

    def note(self, connection: Connection, size: int) -> None:
        """A connection holds an answer of this size from now on. May close others."""
        if size < LARGE_BYTES or connection.closed:
            return
        now_ns = monotonic_ns()
        self._begins[connection] = _Begin(now_ns, connection.taken_bytes())
        held = {each: each.held_bytes for each in self._begins}
        self._begins = {each: begin for each, begin in self._begins.items() if held[each]}
        others = self._begins.keys() - {connection}
        held_bytes = sum(held.values())
        for slowest in sorted(others, key=partial(self._rate, now_ns)):
            if held_bytes <= HELD_BYTES_MAX:
                return
            held_bytes -= held[slowest]
            slowest.close()

    def _rate(self, now_ns: int, connection: Connection) -> float:
        """How fast it takes its answer, bytes a second."""
        begin = self._begins[connection]
        taken_bytes = connection.taken_bytes() - begin.taken_bytes
        return taken_bytes * _SECOND_NS / max(1, now_ns - begin.at_ns)
