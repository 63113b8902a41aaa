"""The HTTP application: routes, and the HTTP status of each failure.

    /health        state of the broker's processes: 200 when all serve, else 503
    /health/live   200 while this process answers
    /health/ready  200 when every process serves and the log has room, else 503 with the reasons
    /debug/…       internal state, for programs on this host (smq.front.debug)
    /metrics       Prometheus' text format (smq.front.metrics)
    /filer/<key>   objects of the filer (smq.front.files)

The process that serves this adds more routes (smq.app.front.queries).

Failures are {"error": sentence}. Without access rules any client that can connect may do all this;
while they decide who may do what, users log in (smq.front.rights).
Pages of other sites cannot: there is no CORS, writes are not simple requests, and the gate refuses
unknown Host headers (smq.front.gate).
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from smq.filer.store import Store
from smq.front.debug import Inside, Look, routes as debug_routes
from smq.front.files import METHODS, Files
from smq.front.gate import Gate, Page, error, incomplete
from smq.front.metrics.page import CONTENT_TYPE
from smq.front.rights import FREE, HttpRights
from smq.front.shared import Shared
from smq.front.slots import HEALTH_PATH, LIVE_PATH, METRICS_PATH, READY_PATH, RETRY_AFTER_S
from smq.front.space import Space
from smq.front.streams import Silent
from smq.model.errors import (
    AlreadyExists,
    Full,
    NotFound,
    PreconditionFailed,
    StoreError,
    Unavailable,
)
from smq.model.printable import say_error

COUNT_PERIOD_S = 60.0  # Delay until quotas include deletions and uploads that bypass the front.
LOOK_S = 1.0  # The interval of checks for a first quota.
COUNT_PAUSE_TIMES = 100  # A longer pause after a slow count: on S3 list requests cost money.
STATUSES: tuple[tuple[type[StoreError], int], ...] = (
    (NotFound, 404),
    (AlreadyExists, 409),
    (PreconditionFailed, 412),
    (Full, 507),
    (Unavailable, 503),
    (StoreError, 400),  # A key that no store accepts.
)

Health = Callable[[], Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontBroker:
    """The front's sources of facts about its broker. Each is called by one thread at a time.

    health, readiness   {"ready": …, …}
    metrics             the page of /metrics
    look, insides       the facts for /debug
    rights              which requests are answered
    """

    health: Health
    readiness: Health
    metrics: Callable[[], bytes]
    look: Look
    insides: Mapping[str, Inside] = field(default_factory=dict)
    rights: HttpRights = FREE


def application(
    store: Store,
    space: Space,
    broker: FrontBroker,
    hosts: frozenset[str],
    routes: Sequence[Route] = (),
) -> ASGIApp:
    """The application. `hosts` are the names of this host; `routes` are added to these."""

    # These answer even while all threads wait for a hanging filer or shard.
    alone, counting = (CapacityLimiter(1) for _ in range(2))
    readiness = Shared(broker.readiness)

    async def counted(_request: Request) -> Response:
        return Response(await run_sync(broker.metrics, limiter=counting), media_type=CONTENT_TYPE)

    async def living(_request: Request) -> Response:
        return JSONResponse({"live": True})

    async def ready(_request: Request) -> Response:
        told = await readiness.answer()
        return JSONResponse(told, 200 if told["ready"] else 503)

    async def healthy(_request: Request) -> Response:
        told = await run_sync(broker.health, limiter=alone)
        return JSONResponse(told, 200 if told["ready"] else 503)

    handlers: dict[Any, Callable[[Request, Any], Awaitable[Response]]] = {
        HTTPException: _refused,
        StoreError: _failed,
        Silent: _silent,
        ClientDisconnect: _gone,
    }
    all_routes = [
        *routes,
        Page(HEALTH_PATH, healthy, methods=["GET"]),
        Page(LIVE_PATH, living, methods=["GET"]),
        Page(READY_PATH, ready, methods=["GET"]),
        *debug_routes(broker.look, broker.insides),
        Route(METRICS_PATH, counted, methods=["GET"]),
        Route("/filer/{key:path}", Files(store, space).answer, methods=METHODS),
    ]
    inner = Starlette(routes=all_routes, exception_handlers=handlers)
    return Gate(inner, hosts, all_routes, broker.rights)


async def keep_counting(space: Space) -> None:
    """Count each namespace's bytes periodically while there is a quota, for ever."""
    while True:
        if not space.has_quota:
            await asyncio.sleep(LOOK_S)
            continue
        took_s = await count_once(space)
        await asyncio.sleep(pause_s(took_s))


def pause_s(took_s: float) -> float:
    """The pause between two counts."""
    return max(COUNT_PERIOD_S, COUNT_PAUSE_TIMES * took_s)


async def count_once(space: Space) -> float:
    """Count once; skips a filer that is down. Returns the duration in seconds."""
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    space.begin_count()
    try:
        space.end_count(await run_in_threadpool(space.count))
    except StoreError as reason:
        say_error(f"front: quotas are not counted: {reason}")
    return loop.time() - started_s


async def _refused(_request: Request, reason: HTTPException) -> Response:
    return error(reason.status_code, reason.detail, reason.headers)


async def _failed(_request: Request, reason: StoreError) -> Response:
    status = next(status for kind, status in STATUSES if isinstance(reason, kind))
    headers = {"retry-after": str(RETRY_AFTER_S)} if status == 503 else None
    return error(status, str(reason), headers)


async def _silent(_request: Request, _reason: Silent) -> Response:
    return incomplete()


async def _gone(_request: Request, _reason: ClientDisconnect) -> Response:
    return Response(None, 400)  # The client has disconnected: nobody reads this.
