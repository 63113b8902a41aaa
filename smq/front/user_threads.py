"""Threads for what may take long because a client wants it to: few, of which users take turns.

The loop gets the GIL once in as many turns as threads work, and Starlette's forty threads serve all
that touches the filer: so what a client can ask for again and again is done in threads of its own.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import TypeVar
from weakref import WeakValueDictionary

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.requests import Request

from smq.front.rights import has_logged_in, rights_of
from smq.security.principals import Principal

Found = TypeVar("Found")


class UserThreads:
    """`most` threads. Of one user `of_one` calls run, or wait for a thread behind those of others:
    its next ones wait for its own.

    threads   for calls within a `turn`
    """

    def __init__(self, most: int, of_one: int = 1) -> None:
        self.threads, self._of_one = CapacityLimiter(most), of_one
        self._users = WeakValueDictionary[Principal, CapacityLimiter]()  # Of those who are here.

    def __len__(self) -> int:
        """How many users run or wait."""
        return len(self._users)

    async def run(self, request: Request, work: Callable[..., Found], *arguments: object) -> Found:
        """Call it for who asks."""
        async with self.turn(request):
            return await run_sync(partial(work, *arguments), limiter=self.threads)

    def turn(self, request: Request) -> AbstractAsyncContextManager[None]:
        """The turn of who asks."""
        if not has_logged_in(request):  # Nobody is told from anybody.
            return nullcontext()
        user = rights_of(request).peer.principal
        limiter = self._users.get(user)
        if limiter is None:
            self._users[user] = limiter = CapacityLimiter(self._of_one)
        return limiter
