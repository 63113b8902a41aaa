"""The overview: rates, storage and processes; also the data of all charts."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from smq.front.console.console import Console, page_of
from smq.front.console.history import History
from smq.front.console.sight import check, check_cluster, check_sees_all, sees_all
from smq.front.metrics.alerts import lags_of
from smq.front.metrics.facts import Facts
from smq.front.rights import rights_of
from smq.security.acls import Operation, ResourceType

CHARTED = ("records_in", "bytes_in", "bytes_out", "produce_requests", "fetch_requests")
PARTS = {"cards": "overview_cards.html", "facts": "overview_facts.html"}  # Refreshed periodically.
GROUPS_SHOWN = 10  # Those with the largest lag.


def overview_routes(console: Console) -> list[Route]:
    """The routes."""

    async def overview(request: Request) -> Response:
        facts = await console.look(request)
        sees = sees_all(rights_of(request))
        return await console.made(request, _overview, request, facts, console.history, sees)

    async def rates(request: Request) -> Response:
        check_cluster(request, Operation.DESCRIBE)
        since = request.query_params.get("since", "0")
        since_ms = int(since) if since.isdecimal() and len(since) < 16 else 0
        read = partial(console.history.rates, CHARTED, since_ms)
        return await console.made(request, _series, sees_all(rights_of(request)), CHARTED, read)

    async def lag(request: Request) -> Response:
        group = request.query_params.get("group", "")
        check(request, Operation.DESCRIBE, ResourceType.GROUP, group)
        check_cluster(request, Operation.DESCRIBE)  # It is of all topics that the group reads.
        read = partial(console.history.lag, group)
        return await console.made(request, _series, sees_all(rights_of(request)), ["lag"], read)

    return [
        console.page("/", overview),
        console.search("/console/rates", rates),
        console.search("/console/lag", lag),
    ]


def _overview(
    request: Request, facts: Facts, history: History, sees: Callable[[], bool]
) -> Response:
    name = PARTS.get(request.query_params.get("part", ""), "overview.html")
    now = _rates(history) if sees() else None
    values = {"title": "Overview", "here": "/", "facts": facts, "rates": now}
    return page_of(request, name, values | _totals(facts))


def _series(
    sees: Callable[[], bool], names: Sequence[str], read: Callable[[], list[list[float]]]
) -> Response:
    check_sees_all(sees)
    return JSONResponse({"names": names, "series": read()})


def _rates(history: History) -> dict[str, float]:
    return {
        name: series[-1] if series else 0.0
        for name, series in zip(CHARTED, history.rates(CHARTED)[1:], strict=True)
    }


def _totals(facts: Facts) -> dict[str, Any]:
    """What all topics and groups add up to."""
    of_groups = lags_of(facts.offsets)
    lags = sorted(of_groups.items(), key=lambda each: -each[1].records)
    return {
        "topics": len({each.topic for each in facts.partitions}),
        "groups": len(facts.members.keys() | of_groups.keys()),
        "unsealed_bytes": sum(each.unsealed_bytes for each in facts.partitions),
        "sealed_bytes": sum(each.sealed_bytes for each in facts.partitions),
        "behind": [each for each in lags[:GROUPS_SHOWN] if each[1].records],
    }
