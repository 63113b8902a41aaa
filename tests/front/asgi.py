"""A client of an ASGI application, without a socket: a request in pieces, an answer whole."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import unquote

from starlette.types import ASGIApp, Message, Scope

from smq.filer.store import Store
from smq.front.application import FrontBroker, Health, application
from smq.front.metrics.facts import Facts
from smq.front.metrics.page import page
from smq.front.rights import FREE, HttpRights, give_rights
from smq.front.space import NO_QUOTA, Space

GONE: Message = {"type": "http.disconnect"}
NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class Answer(NamedTuple):
    """What came back. `cut`: the body did not come to its end."""

    status: int
    headers: dict[str, str]
    body: bytes
    cut: bool = False

    @property
    def json(self) -> Any:
        return json.loads(self.body)


NOBODY = Facts(version="1", is_ready=False, started_ms=0)


def front(
    store: Store,
    *,
    quota_bytes: int = NO_QUOTA,
    reserve_bytes: int = 0,
    ready: bool = True,
    rights: HttpRights = FREE,
) -> ASGIApp:
    """The application, its quotas counted."""
    space = Space(store, quota_bytes, reserve_bytes)
    if space.has_quota:
        space.end_count(space.count())
    facts = replace(broker(ready=ready), rights=rights)
    return application(store, space, facts, frozenset({"ours"}))


def broker(health: Health = dict, *, ready: bool = True, facts: Facts = NOBODY) -> FrontBroker:
    """A broker of which only this is known."""
    told = {"ready": ready}
    return FrontBroker(
        health=lambda: health() or told,
        readiness=lambda: told,
        metrics=lambda: page(facts),
        look=lambda: facts,
    )


def call(  # noqa: PLR0913  (a request, and how its client behaves)
    app: ASGIApp,
    method: str,
    path: str,
    body: bytes | Sequence[bytes] = b"",
    *,
    leaves: bool = False,
    between: Callable[[], None] = lambda: None,
    **headers: str,
) -> Answer:
    """One request; a header of several lines is several headers.

    `leaves`: the client goes away behind these pieces of the body; `between` is called before each
    piece.
    """
    pieces = [body] if isinstance(body, bytes) else list(body)
    return asyncio.run(_call(app, method, path, pieces, leaves, between, headers))


class Call(NamedTuple):
    """A request of a client that behaves."""

    method: str
    path: str
    pieces: Sequence[bytes] = (b"",)
    headers: Mapping[str, str] = NO_HEADERS


def at_once(app: ASGIApp, calls: Sequence[Call]) -> list[Answer]:
    """Several requests that are on their way together; their answers, in the order of the calls."""

    async def made() -> list[Answer]:
        return await asyncio.gather(*(call_async(app, each) for each in calls))

    return asyncio.run(made())


async def call_async(app: ASGIApp, made: Call) -> Answer:
    """One request among others."""
    return await _call(app, made.method, made.path, [*made.pieces], False, _nothing, made.headers)


def _nothing() -> None:
    pass


def scope_of(method: str, path: str, headers: Mapping[str, str] = NO_HEADERS) -> Scope:
    """A request's head, as a server gives it to an application."""
    raw, _, query = path.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(raw),
        "raw_path": raw.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "client": ("127.0.0.1", 5),
        "headers": [
            (name.replace("_", "-").encode(), line.encode())
            for name, lines in headers.items()
            for line in lines.split("\n")
        ],
    }


async def _call(  # noqa: PLR0913, PLR0917
    app: ASGIApp,
    method: str,
    path: str,
    pieces: list[bytes],
    leaves: bool,
    between: Callable[[], None],
    headers: Mapping[str, str],
) -> Answer:
    scope = scope_of(method, path, headers)
    give_rights(scope, None)  # As the gate does, for applications that a test makes without one.
    answer: dict[str, Any] = {"status": 0, "headers": {}, "body": b"", "cut": True}
    answered = asyncio.Event()

    async def receive() -> Message:
        if pieces:
            between()
            piece = pieces.pop(0)
            return {"type": "http.request", "body": piece, "more_body": bool(pieces) or leaves}
        if not leaves:
            await answered.wait()
        return GONE

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            answer["status"] = message["status"]
            answer["headers"] = {k.decode(): v.decode() for k, v in message["headers"]}
            return
        answer["body"] += bytes(message.get("body", b""))
        if not message.get("more_body", False):
            answer["cut"] = False
            answered.set()

    await app(scope, receive, send)
    return Answer(**answer)
