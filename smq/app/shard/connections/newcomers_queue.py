"""When connections that have not logged in yet are looked at.

Hundreds of them could hold the loop: each may send 64 KiB of small frames, and a step of a TLS
handshake takes a millisecond, or ten with a long key. Together they have a share of each turn of
the loop. Who comes when it is spent, or while others wait, waits behind those of its address, and
nothing is received from it meanwhile. Addresses take turns: one with hundreds of connections keeps
nobody else from logging in.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from smq.app.process.clock import monotonic_ns
from smq.app.process.loop import Loop
from smq.app.shard.connections.tls_socket import SharedTurn
from smq.security.fair_queue import FairQueue


class Newcomer(Protocol):
    """A connection."""

    closed: bool
    working: int

    @property
    def is_full(self) -> bool:
        """Whether it takes nothing now; it does not while something is worked at."""

    def pause_if_full(self) -> None:
        """Stop reading while it is full."""

    def resume(self) -> None:
        """Go on, unless it is full still."""


NewcomerT = TypeVar("NewcomerT", bound=Newcomer)


class NewcomersQueue:
    """Those of one shard.

    shared       the time that they have of a turn
    address_of   what a connection comes from

    Invariant: a connection that waits is full, and a turn is due in which the first one goes on.
    """

    def __init__(self, loop: Loop, shared: SharedTurn, address_of: Callable[[Any], str]) -> None:
        self._loop, self.shared, self._address_of = loop, shared, address_of
        self._waiting = FairQueue[Newcomer]()
        self._is_due = self._is_serving = False

    def invariants(self) -> None:
        """Assert the class's invariant."""
        self._waiting.invariants()
        assert all(each.is_full and not each.closed for each in self._waiting)
        assert self._is_due or not self._waiting

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def run(self, connection: NewcomerT, work: Callable[[NewcomerT], None]) -> None:
        """Do what a connection wants, or have it wait: then it is resumed."""
        if self._is_serving or not (self._waiting or self.shared.is_spent):
            self.shared.spend(lambda: work(connection))
        elif connection not in self._waiting:
            self.wait(connection)

    def wait(self, connection: Newcomer) -> None:
        """Have a connection wait, behind those of its address that do; it takes nothing
        meanwhile."""
        self._waiting.add(connection, self._address_of(connection))
        connection.working += 1
        connection.pause_if_full()
        self._call()

    def forget(self, connection: Newcomer) -> None:
        """It is closed."""
        self._waiting.discard(connection)

    def _call(self) -> None:
        if not self._is_due:
            self._is_due = True
            # Not due among these timers again, even if no time passes.
            self._loop.call_at(monotonic_ns() + 1, self._go_on)

    def _go_on(self) -> None:
        """Resume as many as wait, until the time is spent."""
        self._is_due, self._is_serving = False, True
        try:
            for _ in range(len(self._waiting)):
                if self.shared.is_spent or not self._waiting:
                    break
                each = self._waiting.pop()
                each.working -= 1
                each.resume()
        finally:
            self._is_serving = False
        if self._waiting:
            self._call()
