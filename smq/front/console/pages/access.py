"""Users, access rules and who may do what by them, sessions, and what was denied."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from smq.front.console.console import Console, gone_to, page_of
from smq.front.console.paging import paged, whole
from smq.front.console.sight import check_cluster
from smq.front.rights import rights_of, visit_of
from smq.front.sessions import BrowserSession
from smq.security.acls import (
    CLUSTER_NAME,
    OPERATIONS_OF,
    AclBinding,
    Operation,
    ResourceType,
    described,
)
from smq.security.addresses import is_address, written
from smq.security.audit import AdminAct

ROWS_A_PAGE = 100
DENIALS_MAX = 500
HERE = "127.0.0.1"
KINDS = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional id": ResourceType.TRANSACTIONAL_ID,
    "cluster": ResourceType.CLUSTER,
}
OPERATIONS = sorted({each.name for kind in KINDS.values() for each in OPERATIONS_OF[kind]})


class SessionRow(NamedTuple):
    """A session in a list. Times are how long ago, in seconds."""

    number: int
    user: str
    host: str
    began_s: float
    used_s: float
    is_this: bool


def access_routes(console: Console) -> list[Route]:
    """The routes."""
    return [*_pages(console), *_actions(console)]


def _pages(console: Console) -> list[Route]:
    async def users(request: Request) -> Response:
        check_cluster(request, Operation.DESCRIBE)
        part = request.query_params.get("q", "")
        found = await console.ask(request, console.desk(request).users)
        rows = [each for each in found if part in each.name]
        values = {"title": "Users", "here": "/users", "q": part}
        values |= paged(rows, ROWS_A_PAGE, request)
        return await console.made(request, page_of, request, "users.html", values)

    async def rules(request: Request) -> Response:
        return await _rules(console, request)

    async def sessions(request: Request) -> Response:
        rows = [*_rows(console, request)]
        values = {"title": "Sessions", "here": "/sessions"}
        values |= paged(rows, ROWS_A_PAGE, request)
        return await console.made(request, page_of, request, "sessions.html", values)

    async def denied(request: Request) -> Response:
        check_cluster(request, Operation.ALTER)
        rows = await console.ask(request, console.desk(request).denials, DENIALS_MAX)
        values = {"title": "Denied", "here": "/denied"}
        values |= paged(rows, ROWS_A_PAGE, request)
        return await console.made(request, page_of, request, "denied.html", values)

    return [
        console.page("/users", users),
        console.page("/rules", rules),
        console.page("/sessions", sessions),
        console.page("/denied", denied),
    ]


async def _rules(console: Console, request: Request) -> Response:
    """The rules for a thing, and who may do something with it; or all rules."""
    check_cluster(request, Operation.DESCRIBE)
    asked, desk, rulings = _asked(request.query_params), console.desk(request), None
    kind = ResourceType.ANY
    if asked["name"]:
        check_cluster(request, Operation.DESCRIBE_CONFIGS)
        kind, operation = KINDS[asked["kind"]], Operation[asked["operation"]]
        rulings = await console.ask(
            request, desk.rulings, operation, kind, asked["name"], asked["host"]
        )
    found = await console.ask(request, desk.rules, kind, asked["name"])
    values: dict[str, Any] = {"title": "Access rules", "here": "/rules", "asked": asked}
    values |= {"rulings": rulings, "kinds": [*KINDS], "operations": OPERATIONS}
    return await console.made(request, _page_of_rules, request, found, values)


def _page_of_rules(
    request: Request, found: list[AclBinding], values: Mapping[str, Any]
) -> Response:
    rows = paged(found, ROWS_A_PAGE, request)
    rows["rows"] = [described(each) for each in rows["rows"]]  # There may be very many others.
    return page_of(request, "rules.html", {**values, **rows})


def _actions(console: Console) -> list[Route]:
    async def delete_user(request: Request) -> Response:
        form = await console.form(request)
        name = form.get("user", "")
        if not name or form.get("confirm") != name:
            raise ValueError("nothing was deleted: type the user's name twice")
        await console.ask(request, console.desk(request).delete_user, name)
        return gone_to("/users")

    async def end_session(request: Request) -> Response:
        form = await console.form(request)
        number = whole(form.get("number", ""), "a session")
        found = [each for each in _visible(console, request) if each.number == number]
        if not found:
            raise ValueError("there is no such session any more")
        ended, rights = found[0], rights_of(request)
        if ended.principal != rights.peer.principal:  # One's own end as often as one likes.
            act = AdminAct("DELETE", "SESSION", str(ended.principal), detail=f"from {ended.host}")
            await console.acted(rights.peer, rights.api, act)
        console.rights.sessions.end(ended)
        return gone_to("/sessions")

    return [
        console.action("/users/delete", delete_user),
        console.action("/sessions/end", end_session),
    ]


def _asked(query: Mapping[str, str]) -> dict[str, Any]:
    """The question of the page of rules. Raises ValueError."""
    kind, operation = query.get("kind") or "topic", query.get("operation") or Operation.READ.name
    host, name = query.get("host", "").strip() or HERE, query.get("name", "").strip()
    if kind not in KINDS or operation not in OPERATIONS:
        raise ValueError("there is no such kind of thing, or no such operation")
    if not is_address(host):
        raise ValueError("a user asks from an address of IPv4 or IPv6")
    if KINDS[kind] is ResourceType.CLUSTER:
        name = CLUSTER_NAME
    return {"kind": kind, "operation": operation, "host": written(host), "name": name}


def _visible(console: Console, request: Request) -> Iterable[BrowserSession]:
    """One's own sessions; for super users all."""
    visit, rights = visit_of(request), rights_of(request)
    for each in console.rights.sessions if visit is not None else ():
        if rights.is_unlimited or each.principal == rights.peer.principal:
            yield each


def _rows(console: Console, request: Request) -> Iterable[SessionRow]:
    now_s, visit = asyncio.get_running_loop().time(), visit_of(request)
    console.rights.sessions.end_those_over(now_s)
    for each in _visible(console, request):
        ages = now_s - each.began_s, now_s - each.used_s
        is_this = visit is not None and each is visit.session
        yield SessionRow(each.number, each.holder.user, each.host, *ages, is_this)
