"""The overview: rates, storage and processes; also the data of all charts."""

from typing import Any

from anyio.to_thread import run_sync
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from smq.front.console.console import Console, page_of
from smq.front.console.sight import check, check_sees_all, sees_all
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
        name = PARTS.get(request.query_params.get("part", ""), "overview.html")
        totals = await run_sync(_totals, facts, limiter=console.looking)
        now = _rates(console) if sees_all(rights_of(request)) else None
        values = {"title": "Overview", "here": "/", "facts": facts, "rates": now}
        return page_of(request, name, values | totals)

    async def rates(request: Request) -> Response:
        check_sees_all(request)
        since = request.query_params.get("since", "0")
        since_ms = int(since) if since.isdecimal() and len(since) < 16 else 0
        series = console.history.rates(CHARTED, since_ms)
        return JSONResponse({"names": CHARTED, "series": series})

    async def lag(request: Request) -> Response:
        group = request.query_params.get("group", "")
        check(request, Operation.DESCRIBE, ResourceType.GROUP, group)
        check_sees_all(request)  # It is of all topics that the group reads.
        return JSONResponse({"names": ["lag"], "series": console.history.lag(group)})

    return [
        console.page("/", overview),
        console.search("/console/rates", rates),
        console.search("/console/lag", lag),
    ]


def _rates(console: Console) -> dict[str, float]:
    return {
        name: series[-1] if series else 0.0
        for name, series in zip(CHARTED, console.history.rates(CHARTED)[1:], strict=True)
    }


def _totals(facts: Facts) -> dict[str, Any]:
    """What all topics and groups add up to: in a thread, as there may be very many."""
    of_groups = lags_of(facts.offsets)
    lags = sorted(of_groups.items(), key=lambda each: -each[1].records)
    return {
        "topics": len({each.topic for each in facts.partitions}),
        "groups": len(facts.members.keys() | of_groups.keys()),
        "unsealed_bytes": sum(each.unsealed_bytes for each in facts.partitions),
        "sealed_bytes": sum(each.sealed_bytes for each in facts.partitions),
        "behind": [each for each in lags[:GROUPS_SHOWN] if each[1].records],
    }
