"""Runs the filer's blocking calls in threads for asyncio, one call at a time.

Only a few pieces of an object are in memory, whatever its size: the store waits for slow clients.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    nullcontext,
    suppress,
)
from typing import Any, TypeAlias, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from smq.filer.store import Data, OpenObject
from smq.model.errors import StoreError
from smq.model.printable import say_error

PIECE_BYTES = 1 << 20  # Amortizes thread switches over many reads of the socket.
DRAIN_BYTES_MAX = 64 << 20  # Of a refused body: enough for most clients, too little for an attack.
DRAIN_S = 2.0
# A body keeps this pace, or its client counts as gone: one that sends a byte a minute would hold a
# slot for ever. The client may lag behind by as many seconds of waiting.
PACE_BYTES_S = 16 * 1024
LARGE_LAG_S, SMALL_LAG_S = 60.0, 10.0
_DRAIN = "smq.drain"  # In a request's scope.

T = TypeVar("T")
InThread: TypeAlias = Callable[..., Awaitable[Any]]  # (call, *arguments), as run_in_threadpool


class Silent(Exception):
    """The client sends the body too slowly, or has stopped. Answer 408."""


class TooLong(ValueError):
    """The body is longer than its kind may be."""


@asynccontextmanager
async def in_threads(
    manager: AbstractContextManager[T], run: InThread = run_in_threadpool
) -> AsyncIterator[T]:
    """A context manager whose steps block."""
    entered = await run(manager.__enter__)
    try:
        yield entered
    except BaseException:
        # Shielded: a cancelled request must not leave half an object.
        if not await asyncio.shield(run(manager.__exit__, *sys.exc_info())):
            raise
    else:
        await asyncio.shield(run(manager.__exit__, None, None, None))


async def body_pieces(request: Request) -> AsyncIterator[bytearray]:
    """The body in large pieces. Raises Silent, ClientDisconnect."""
    waiting = bytearray()
    async for piece in paced(request, LARGE_LAG_S):
        waiting += piece
        if len(waiting) >= PIECE_BYTES:
            yield waiting
            waiting = bytearray()
    if waiting:
        yield waiting


async def small_body(request: Request, bytes_max: int, what: str) -> bytes:
    """The whole body. Raises Silent, ClientDisconnect, TooLong."""
    body = bytearray()
    async for piece in paced(request, SMALL_LAG_S):
        body += piece
        if len(body) > bytes_max:
            raise TooLong(f"{what} has at most {bytes_max} bytes")
    return bytes(body)


async def read_ahead(scope: Scope, receive: Receive, bytes_max: int) -> Receive:
    """Read a small body before anybody works for its request: what receives it from then on. Of a
    longer one the rest comes as before. Raises Silent, ClientDisconnect."""
    body, goes_on = bytearray(), True

    async def noted() -> Message:
        nonlocal goes_on
        message = await receive()
        goes_on = message.get("more_body", False)
        return message

    async for piece in paced(Request(scope, noted), SMALL_LAG_S):
        body += piece
        if len(body) > bytes_max:
            break
    first: list[Message] = [{"type": "http.request", "body": bytes(body), "more_body": goes_on}]

    async def again() -> Message:
        return first.pop() if first else await receive()

    return again


async def paced(request: Request, lag_s: float) -> AsyncIterator[bytes]:
    """The body as it comes in, at most `lag_s` behind PACE_BYTES_S.

    Only the time that we wait for the client counts. Raises Silent, ClientDisconnect.
    """
    loop, stream = asyncio.get_running_loop(), request.stream()
    left_s = lag_s
    while True:
        began_s = loop.time()
        try:
            async with asyncio.timeout(left_s):
                piece = await anext(stream, None)
        except TimeoutError:
            raise Silent from None
        if piece is None:
            return
        left_s = min(lag_s, left_s - (loop.time() - began_s) + len(piece) / PACE_BYTES_S)
        if left_s <= 0:
            raise Silent
        yield piece


def give_drain(scope: Scope, place: Callable[[], AbstractAsyncContextManager[None]]) -> None:
    """Have the body be read within such a block, if the request is refused."""
    scope[_DRAIN] = place


async def drain(request: Request) -> None:
    """Read, for a limited time, what the client of a refused request still sends.

    Closing a connection with unread bytes resets it, which may lose the answer. A client that asked
    first (Expect: 100-continue) has not begun to send.
    """
    left = DRAIN_BYTES_MAX
    if "expect" in request.headers:
        return
    place: Callable[[], AbstractAsyncContextManager[None]] = request.scope.get(_DRAIN, nullcontext)
    # RuntimeError: the body was read already.
    with suppress(TimeoutError, ClientDisconnect, RuntimeError):
        async with place(), asyncio.timeout(DRAIN_S):
            async for piece in request.stream():
                left -= len(piece)
                if left < 0:
                    return


class ReadingResponse(StreamingResponse):
    """Sends an object or a range while reading it; closes the reading at the end.

    run   calls what blocks in a thread
    """

    def __init__(
        self,
        reading: OpenObject,
        closing: AbstractContextManager[OpenObject],
        run: InThread,
        status_code: int,
        headers: dict[str, str],
    ) -> None:
        super().__init__(_buffered(reading.pieces, run), status_code, headers)
        self._closing, self._run, self._key = closing, run, reading.facts.key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            # A client that left needs no report. A failure in the middle breaks the connection, so
            # the client sees fewer bytes than announced.
            with suppress(ClientDisconnect):
                await super().__call__(scope, receive, send)
        except StoreError as reason:
            say_error(f"front: sending {self._key} failed: {reason}")
        finally:
            await asyncio.shield(self._run(self._closing.__exit__, None, None, None))


async def _buffered(pieces: Iterator[Data], run: InThread) -> AsyncIterator[bytes | memoryview]:
    while (piece := await run(next, pieces, None)) is not None:
        yield piece if isinstance(piece, bytes | memoryview) else bytes(piece)
