"""POST /sql: a query over topics, for programs on this host, or for users who may read them.

    curl -H "content-type: application/sql" --data-binary "SELECT count(*) FROM clicks" \\
        http://127.0.0.1:8080/sql

The body is the query, or as JSON {"query": …}: no type that a form of another site's page can send.
The answer is JSON (smq.sql.worker), passed on unread. Each query runs in a process of its own that
is killed at its deadline, or when its client disconnects, so no query can hang the front. The
bounds are AT_ONCE queries and a short line for them, in which who has just had one stands last
(smq.app.front.query_line), one of a user until its answer is sent, SECONDS, MEMORY_BYTES, and
ROWS_MAX rows of BYTES_MAX bytes of JSON ("truncated" says that there were more).
"""

import asyncio
import json
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from itertools import compress
from pathlib import Path
from typing import Any

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from smq.app.front.query_line import QueryLine, QueryTurn
from smq.app.process.program import command, environment
from smq.front.debug import ONLY_HERE, is_from_here
from smq.front.gate import error
from smq.front.rights import SQL_PATH, has_logged_in, rights_of
from smq.front.streams import TooLong, small_body
from smq.model.config import Config
from smq.security.acls import Operation, ResourceType
from smq.security.authorizer import Choice
from smq.security.principals import Principal
from smq.security.rights import Rights
from smq.store.manifest import open_manifest
from smq.store.store import FILE_NAME

MiB = 1024 * 1024
QUERY_BYTES_MAX = 64 * 1024
AT_ONCE = 2
WAITING_MAX = 8  # Each of another user where users log in. Who comes last may wait for WAIT_S.
WAIT_S = 60.0
SECONDS = 10.0
START_SECONDS = 10.0  # The process's start (imports, connecting), beyond the query's own time.
MEMORY_BYTES = 256 * MiB
ROWS_MAX = 10_000
BYTES_MAX = 8 * MiB
ANSWER_BYTES_MAX = BYTES_MAX + 64 * 1024  # The end of the JSON, or an error that quotes its query.
PIECE_BYTES = 256 * 1024  # Of an answer, in one turn of the loop.
REFUSED = 3  # The worker's exit code with an error that is the query's fault.
RETRY_AFTER_S = 1


class Queries:
    """The query route of one front."""

    def __init__(self, data_dir: Path, config: Config, program: str = "smq.sql.worker") -> None:
        filer = [str(config.filer_root), config.filer_s3_endpoint, config.filer_s3_region]
        self._task = {
            "data_dir": str(data_dir),
            "filer": filer,
            "memory_bytes": MEMORY_BYTES,
            "seconds": SECONDS,
            "rows_max": ROWS_MAX,
            "bytes_max": BYTES_MAX,
        }
        self._data_dir, self._program = data_dir, program
        self._line, self._threads = (
            QueryLine[Principal | None](AT_ONCE, WAITING_MAX),
            CapacityLimiter(AT_ONCE),
        )
        self._users = set[Principal]()  # Those with a query whose answer is not sent.

    def routes(self) -> list[Route]:
        """The route."""
        return [Route(SQL_PATH, self.answer, methods=["POST"])]

    async def answer(self, request: Request) -> Response:
        """Run a query, or explain why not. Raises HTTPException."""
        if not is_from_here(request):
            return error(403, ONLY_HERE)
        if find_spec("duckdb") is None:
            return error(501, "DuckDB is not installed; `pip install 'smq-broker[sql]'`")
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in TYPES:
            return error(415, 'send the query as application/sql, or as JSON: {"query": …}')
        query = await _query_of(request, TYPES[kind])
        user = rights_of(request).peer.principal if has_logged_in(request) else None
        if user in self._users:
            return _failed(503, "a query of yours waits or runs, or its answer is being sent")
        with ExitStack() as until_sent:
            until_sent.enter_context(self._of_user(user))
            status, told = await self._one_of_few(request, query, user)
            if not isinstance(told, bytes):
                return _failed(status, told)
            return _SendingResponse(told, status, until_sent.pop_all())

    @contextmanager
    def _of_user(self, user: Principal | None) -> Iterator[None]:
        if user is None:
            yield
            return
        self._users.add(user)
        try:
            yield
        finally:
            self._users.discard(user)

    async def _one_of_few(
        self, request: Request, query: str, user: Principal | None
    ) -> tuple[int, bytes | str]:
        """As `_run`, once its turn has come."""
        turn = self._line.join(user)
        try:
            if not await _has_come(request, turn):
                return 503, "many queries are waiting already"
            return await self._run(request, query, await self._topics(rights_of(request)))
        finally:
            self._line.leave(turn)

    async def _topics(self, rights: Rights) -> list[str] | None:
        """The topics that a user may read at this moment; None: all."""
        if rights.is_unlimited:
            return None
        names = await run_sync(_names, self._data_dir, limiter=self._threads)
        choose = rights.choice(Operation.READ, ResourceType.TOPIC)
        work = partial(_chosen, choose, names)
        return await run_sync(work, limiter=self._threads)

    async def _run(
        self, request: Request, query: str, topics: list[str] | None
    ) -> tuple[int, bytes | str]:
        """The status, and the answer's JSON or what went wrong. Raises ClientDisconnect."""
        task = json.dumps({"query": query, "topics": topics, **self._task}).encode()
        process = await asyncio.create_subprocess_exec(
            *command(self._program),
            cwd="/",
            env=environment(with_store=True),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        told = asyncio.create_task(_told(process, task))
        gone = asyncio.create_task(_gone(request))
        try:
            seconds = SECONDS + START_SECONDS
            await asyncio.wait({told, gone}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if told.done():
                return told.result()
            if gone.done():
                raise ClientDisconnect
            return 504, f"the query took longer than {SECONDS:g} s"
        finally:  # Also when the front stops.
            if process.returncode is None:
                process.kill()
            told.cancel()
            gone.cancel()
            await asyncio.wait({told, gone})
            await _ended(process)


def _failed(status: int, sentence: str) -> Response:
    if status != 503:
        return error(status, sentence)
    headers = {"retry-after": str(RETRY_AFTER_S)}
    return error(503, f"{sentence}; try again in a second", headers)


async def _has_come(request: Request, turn: QueryTurn[Principal | None]) -> bool:
    """Wait for a turn; whether it has come. Raises ClientDisconnect."""
    if turn.come.done():
        return turn.come.result()
    gone = asyncio.create_task(_gone(request))
    try:
        waits: set[asyncio.Future[Any]] = {turn.come, gone}
        await asyncio.wait(waits, timeout=WAIT_S, return_when=asyncio.FIRST_COMPLETED)
        if gone.done():
            raise ClientDisconnect
        return turn.come.done() and turn.come.result()
    finally:
        gone.cancel()
        await asyncio.wait({gone})


async def _told(process: Process, task: bytes) -> tuple[int, bytes | str]:
    """Give a worker its task; the status, and its answer or what went wrong."""
    assert process.stdin is not None
    assert process.stdout is not None
    out = bytearray()
    with suppress(BrokenPipeError, ConnectionResetError):  # It has died.
        process.stdin.write(task)
        await process.stdin.drain()
        process.stdin.close()
    while piece := await process.stdout.read(PIECE_BYTES):
        out += piece
        if len(out) > ANSWER_BYTES_MAX:
            return 500, f"the query's answer has more than {ANSWER_BYTES_MAX} bytes"
    status = {0: 200, REFUSED: 400}.get(await process.wait())
    if status is None:
        return 500, "the query's process has died: it may have had too little memory"
    return status, bytes(out)


async def _gone(request: Request) -> None:
    """Return when the client has disconnected; its body was read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _ended(process: Process) -> None:
    """Wait for the end of a worker that was killed."""
    assert process.stdout is not None
    while await process.stdout.read(PIECE_BYTES):  # asyncio waits for the end of its pipes, too.
        pass
    await process.wait()


class _SendingResponse(StreamingResponse):
    """Sends an answer in pieces; its user may ask again when it is sent."""

    def __init__(self, told: bytes, status: int, until_sent: ExitStack) -> None:
        headers = {"content-length": str(len(told))}
        super().__init__(_pieces(told), status, headers, "application/json")
        self._until_sent = until_sent

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        with self._until_sent, suppress(ClientDisconnect):
            await super().__call__(scope, receive, send)


async def _pieces(told: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(told), PIECE_BYTES):
        yield told[start : start + PIECE_BYTES]
        await asyncio.sleep(0)  # A client that reads fast leaves others their turn.


def _names(data_dir: Path) -> list[str]:
    with open_manifest(data_dir / FILE_NAME) as manifest:
        return [each.name for each in manifest.topics()]


def _chosen(choose: Choice, names: list[str]) -> list[str]:
    return [*compress(names, choose(names))]


def _of_json(text: str) -> str:
    match json.loads(text):
        case {"query": str(query)}:
            return query
    raise ValueError(text)


TYPES: Mapping[str, Callable[[str], str]] = {"application/sql": str, "application/json": _of_json}


async def _query_of(request: Request, parse: Callable[[str], str]) -> str:
    """The query in the body. Raises HTTPException if it is too long, or not what its type says."""
    try:
        return parse((await small_body(request, QUERY_BYTES_MAX, "a query")).decode())
    except TooLong as reason:
        raise HTTPException(413, str(reason)) from None
    except (ValueError, RecursionError):
        raise HTTPException(400, 'the body is not a query in UTF-8, or {"query": …}') from None
