"""The thread in which passwords are hashed, which takes milliseconds: one at a time, and fairly.

Whoever tries again on his connection alternates with those who have not, and addresses take turns.
On this host, where a proxy speaks for everybody, names do instead: a flood of passwords for one
user delays that user alone.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from anyio import CapacityLimiter
from anyio.to_thread import run_sync

from smq.front.turns import Line, PeerStanding
from smq.security.addresses import network_of
from smq.security.listener_rules import is_loopback

T = TypeVar("T")


class AskerGone(Exception):
    """Who asked has disconnected."""


def whose_login(host: str, name: str) -> str:
    """Who waits for his own alone."""
    return f"name {name}" if is_loopback(host) else network_of(host)


class LoginLane:
    """The work of one front's logins."""

    def __init__(self) -> None:
        self._line = Line[asyncio.Future[None]]()
        self._thread = CapacityLimiter(1)
        self._is_busy = False

    async def run(
        self, work: Callable[[], T], whose: str, standing: PeerStanding, *, again: bool
    ) -> T:
        """The result of work that a thread does when it is its turn. Raises AskerGone: not done
        for a client that has left."""
        async with self._turn(whose, again=again):
            if standing.is_gone:
                raise AskerGone
            return await run_sync(work, limiter=self._thread)

    @asynccontextmanager
    async def _turn(self, whose: str, *, again: bool) -> AsyncIterator[None]:
        granted = asyncio.get_running_loop().create_future()
        self._line.add(granted, whose, again=again)
        self._grant()
        try:
            await granted
            yield
        finally:
            if granted.done() and not granted.cancelled():
                self._is_busy = False
                self._grant()

    def _grant(self) -> None:
        while self._line and not self._is_busy:
            granted = self._line.take()
            if not granted.done():  # Else who asked was cancelled.
                self._is_busy = True
                granted.set_result(None)
