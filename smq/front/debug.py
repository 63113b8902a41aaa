"""/debug/…: the broker's internal state as JSON, for programs on this host only.

    /debug              the names of these pages
    /debug/processes    CPU, memory, descriptors, threads of each process
    /debug/logs         counters and positions of each log
    /debug/partitions   offsets and sizes of each partition, and the ends of its log and of its
                        sealed segments; ?topic=… for one topic
    /debug/groups       committed offsets and lag of each group, ?group=… for one group
    /debug/members      state, generation, members and timers of each group
    /debug/slow         the last 1,000 slow requests of each node, and where their time went
    /debug/connections  client connections, from the kernel
    /debug/helpers      each process, its threads and its children
    /debug/locks        the holders of the data directory's locks
    /debug/telemetry    clients that push metrics (KIP-714), and the newest push of each
    /debug/stacks       the Python stack of each thread, by py-spy (the extra `debug`)

No page shows record data. Without access rules other hosts get 403, and so do proxies, which may
speak for other hosts: only programs on this host count as the operator. They ask under a loopback
address: under another one, browsers do not tell which page a request comes from. With access rules
users with ALTER on the cluster may ask, from anywhere (smq.front.rights).
"""

import ipaddress
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from smq.front.gate import error
from smq.front.metrics.facts import Facts
from smq.front.origin import is_marked, is_passed_on
from smq.front.rights import has_logged_in

Look = Callable[[], Facts]
Inside = Callable[[], list[dict[str, Any]]]  # Raises StoreError.
ONLY_HERE = (
    "only programs on the broker's host may ask for this, under 127.0.0.1, ::1 or localhost, "
    "and not through a proxy"
)
ROWS_MAX = 10_000  # In one answer: about two megabytes.


def routes(look: Look, insides: Mapping[str, Inside]) -> list[Route]:
    """The routes; `look` returns the facts. `look` and `insides` run in one thread at a time."""
    limiter, searching = CapacityLimiter(1), CapacityLimiter(1)

    def found(name: str, find: Inside) -> Route:
        async def answer(_request: Request) -> Response:
            def rows() -> Response:
                found = find()
                return _answer(name, found[:ROWS_MAX], {"count": len(found)})

            return await run_sync(rows, limiter=searching)

        return _page(f"/debug/{name}", answer)

    def route(name: str, rows_of: Callable[[Facts, Request], Sequence[Any]]) -> Route:
        async def answer(request: Request) -> Response:
            def rows() -> Response:
                facts = look()
                found = rows_of(facts, request)
                cut = [each._asdict() for each in found[:ROWS_MAX]]
                return _answer(name, cut, {"count": len(found), "missing": [*facts.missing]})

            return await run_sync(rows, limiter=limiter)

        return _page(f"/debug/{name}", answer)

    pages = [
        route("processes", lambda facts, _: facts.processes),
        route("logs", lambda facts, _: facts.logs),
        route("partitions", _partitions),
        route("groups", _groups),
        *(found(name, find) for name, find in insides.items()),
    ]

    async def names(_request: Request) -> Response:
        return JSONResponse({"pages": [each.path for each in pages]})

    return [_page("/debug", names), *pages]


def _answer(name: str, rows: Iterable[object], more: Mapping[str, object]) -> Response:
    """Rows as JSON, one at a time: no other thread runs while Python encodes a value."""
    body = b'{"%s":[%s],%s' % (name.encode(), b",".join(map(_json, rows)), _json(more)[1:])
    return Response(body, media_type=JSONResponse.media_type)


def _json(value: object) -> bytes:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode()


def _page(path: str, answer: Callable[[Request], Awaitable[Response]]) -> Route:
    async def answer_here(request: Request) -> Response:
        if not is_from_here(request):
            return error(403, ONLY_HERE)
        return await answer(request)

    return Route(path, answer_here, methods=["GET"])


def is_from_here(request: Request) -> bool:
    """Whether a program on this host asks: it uses loopback addresses only, and is no proxy. Who
    has logged in may ask from anywhere."""
    if has_logged_in(request):
        return True
    if request.client is None:
        return False
    headers = dict(request.headers.raw)
    if is_passed_on(headers) or not is_marked(headers):
        return False
    return ipaddress.ip_address(request.client.host).is_loopback


def _partitions(facts: Facts, request: Request) -> Sequence[Any]:
    topic = request.query_params.get("topic")
    return [each for each in facts.partitions if topic in {None, each.topic}]


def _groups(facts: Facts, request: Request) -> Sequence[Any]:
    group = request.query_params.get("group")
    return [each for each in facts.offsets if group in {None, each.group}]
