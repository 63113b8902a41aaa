"""Between asyncio and the filer, whose calls block: each runs in a thread, one after the other.

What is on its way is a few pieces, whatever the object's size: a client that is slow is not read
from, or not written to, and the store waits with it.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from typing import TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from smq.filer.store import Data, Reading
from smq.model.errors import StoreError

PIECE_BYTES = 1 << 20  # A switch of threads costs: not for each 64 KiB of a socket.
DRAIN_BYTES_MAX = 64 << 20  # Of a refused body: enough for most, and no work worth attacking.
DRAIN_S = 2.0
SILENCE_S = 60.0  # A client that sends nothing for so long has gone without a word.

T = TypeVar("T")


class Silent(Exception):
    """The client stopped sending in the middle of a body. Answer 408."""


@asynccontextmanager
async def in_threads(manager: AbstractContextManager[T]) -> AsyncIterator[T]:
    """A context manager whose steps block."""
    entered = await run_in_threadpool(manager.__enter__)
    try:
        yield entered
    except BaseException:
        # Shielded: a request that is cancelled must not leave half an object.
        if not await asyncio.shield(run_in_threadpool(manager.__exit__, *sys.exc_info())):
            raise
    else:
        await run_in_threadpool(manager.__exit__, None, None, None)


async def body_pieces(request: Request) -> AsyncIterator[bytearray]:
    """The body, in pieces worth a switch. Raises Silent, ClientDisconnect."""
    stream, waiting = request.stream(), bytearray()
    while True:
        try:
            async with asyncio.timeout(SILENCE_S):
                piece = await anext(stream, None)
        except TimeoutError:
            raise Silent from None
        if piece is None:
            break
        waiting += piece
        if len(waiting) >= PIECE_BYTES:
            yield waiting
            waiting = bytearray()
    if waiting:
        yield waiting


async def drain(request: Request) -> None:
    """Read what the client of a refused request still sends, for a while.

    A connection that is closed with bytes unread is reset, and then the answer may be lost. Who
    asked first (Expect: 100-continue) has not begun to send.
    """
    left = DRAIN_BYTES_MAX
    if "expect" in request.headers:
        return
    # RuntimeError: all of it was read before.
    with suppress(TimeoutError, ClientDisconnect, RuntimeError):
        async with asyncio.timeout(DRAIN_S):
            async for piece in request.stream():
                left -= len(piece)
                if left < 0:
                    return


class ReadingResponse(StreamingResponse):
    """An object, or a part of it, as it is read; the reading ends when the response does."""

    def __init__(
        self,
        reading: Reading,
        closing: AbstractContextManager[Reading],
        status_code: int,
        headers: dict[str, str],
    ) -> None:
        super().__init__(_buffered(reading.pieces), status_code, headers)
        self._closing, self._key = closing, reading.facts.key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            # Nobody to send it to is no news. What breaks in the middle breaks the connection, so
            # that the client sees fewer bytes than it was promised.
            with suppress(ClientDisconnect):
                await super().__call__(scope, receive, send)
        except StoreError as reason:
            sys.stderr.write(f"front: {self._key} could not be sent to its end: {reason}\n")
        finally:
            await asyncio.shield(run_in_threadpool(self._closing.__exit__, None, None, None))


def _buffered(pieces: Iterator[Data]) -> Iterator[bytes | memoryview]:
    for piece in pieces:
        yield piece if isinstance(piece, bytes | memoryview) else bytes(piece)
