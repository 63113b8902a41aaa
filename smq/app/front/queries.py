"""POST /sql: a query over topics, for programs on this host, or for users who may read them.

    curl -H "content-type: application/sql" --data-binary "SELECT count(*) FROM clicks" \\
        http://127.0.0.1:8080/sql

The body is the query, or as JSON {"query": …}: no type that a form of another site's page can send.
The answer is JSON (smq.sql.worker). Each query runs in a process of its own that is killed at its
deadline, so no query can hang the front. The bounds are AT_ONCE queries, SECONDS, MEMORY_BYTES, and
ROWS_MAX rows of BYTES_MAX bytes ("truncated" says that there were more).
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from itertools import compress
from pathlib import Path

from anyio.to_thread import run_sync
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from smq.app.process.program import command, environment
from smq.front.debug import ONLY_HERE, is_from_here
from smq.front.gate import error
from smq.front.rights import SQL_PATH, rights_of
from smq.front.streams import TooLong, small_body
from smq.model.config import Config
from smq.security.acls import Operation
from smq.security.rights import Rights
from smq.store.manifest import open_manifest
from smq.store.store import FILE_NAME

MiB = 1024 * 1024
QUERY_BYTES_MAX = 64 * 1024
AT_ONCE = 2
SECONDS = 10.0
START_SECONDS = 10.0  # The process's start (imports, connecting), beyond the query's own time.
MEMORY_BYTES = 256 * MiB
ROWS_MAX = 10_000
BYTES_MAX = 8 * MiB
RETRY_AFTER_S = 1
NAMES_A_TURN = 500  # A millisecond or two.


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
        self._running = 0

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
        if self._running >= AT_ONCE:
            sentence = f"{AT_ONCE} queries are running; try again in a second"
            return error(503, sentence, {"retry-after": str(RETRY_AFTER_S)})
        self._running += 1
        try:
            return await self._run(query, await self._topics(rights_of(request)))
        finally:
            self._running -= 1

    async def _topics(self, rights: Rights) -> list[str] | None:
        """The topics that a user may read at this moment; None: all."""
        if rights.is_unlimited:
            return None
        names, allowed = await run_sync(partial(_names, self._data_dir)), list[str]()
        for start in range(0, len(names), NAMES_A_TURN):
            some = names[start : start + NAMES_A_TURN]
            allowed += compress(some, rights.topics(Operation.READ, some))
            await asyncio.sleep(0)  # Others have their turn.
        return allowed

    async def _run(self, query: str, topics: list[str] | None) -> Response:
        process = await asyncio.create_subprocess_exec(
            *command(self._program),
            cwd="/",
            env=environment(with_store=True),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            task = json.dumps({"query": query, "topics": topics, **self._task}).encode()
            out, _ = await asyncio.wait_for(process.communicate(task), SECONDS + START_SECONDS)
        except TimeoutError:
            return error(504, f"the query took longer than {SECONDS:g} s")
        finally:  # Also when the front stops or the client disconnects.
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode != 0:
            return error(500, "the query's process has died: it may have had too little memory")
        told = json.loads(out)
        return JSONResponse(told, 400 if "error" in told else 200)


def _names(data_dir: Path) -> list[str]:
    with open_manifest(data_dir / FILE_NAME) as manifest:
        return [each.name for each in manifest.topics()]


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
