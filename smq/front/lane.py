"""The thread in which passwords are hashed, which takes milliseconds: one at a time, and fairly.

Whoever tries again on his connection alternates with those who have not, and addresses take turns.
On this host, where a proxy speaks for everybody, names do instead: a flood of passwords for one
user delays that user alone.

The line is bounded, that of first comers and that of the others: when it is full the newest one of
whoever has most in it goes. So who guesses the passwords of few users, or from few addresses, keeps
nobody else out of it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from anyio import CapacityLimiter
from anyio.to_thread import run_sync

from smq.front.slots import LINE_MAX
from smq.front.turns import Line, PeerStanding
from smq.security.addresses import network_of
from smq.security.listener_rules import is_loopback

T = TypeVar("T")


class AskerGone(Exception):
    """Who asked has disconnected."""


class LineFull(Exception):
    """Too many wait already."""


def whose_login(host: str, name: str) -> str:
    """Who waits for his own alone."""
    return f"name {name}" if is_loopback(host) else network_of(host)


class LoginLane:
    """The work of one front's logins."""

    def __init__(self) -> None:
        self._line = Line[asyncio.Future[bool]]()
        self._thread = CapacityLimiter(1)
        self._is_busy = False

    async def run(
        self, work: Callable[[], T], whose: str, standing: PeerStanding, *, again: bool
    ) -> T:
        """The result of work that a thread does when it is its turn. Raises AskerGone: not done
        for a client that has left; LineFull."""
        async with self._turn(whose, again=again):
            if standing.is_gone:
                raise AskerGone
            return await run_sync(work, limiter=self._thread)

    @asynccontextmanager
    async def _turn(self, whose: str, *, again: bool) -> AsyncIterator[None]:
        granted = asyncio.get_running_loop().create_future()
        self._line.add(granted, whose, again=again)
        self._make_room(again=again)
        self._grant()
        try:
            if not await granted:
                raise LineFull
            yield
        finally:
            if granted.done() and not granted.cancelled() and granted.result():
                self._is_busy = False
                self._grant()

    def _make_room(self, *, again: bool) -> None:
        over = self._line.make_room(LINE_MAX, again=again)
        if over is not None and not over.done():
            over.set_result(False)

    def _grant(self) -> None:
        while self._line and not self._is_busy:
            granted = self._line.take()
            if not granted.done():  # Else who asked was cancelled.
                self._is_busy = True
                granted.set_result(True)
