"""Checks before any route: the path, the Host header, the origin, the number of requests."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from types import MappingProxyType
from urllib.parse import urlencode

from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from smq.front.cookies import session_id_of
from smq.front.logins import FORM_BYTES_MAX, Asking, LoginRefused
from smq.front.origin import (
    LOCALHOST,
    READS,
    address_of,
    host_name,
    is_foreign,
    is_navigation,
    is_of_no_host,
    is_old_browser,
)
from smq.front.places import WaitingPlaces
from smq.front.rights import (
    FREE,
    LOGIN_PATH,
    SQL_PATH,
    HttpRights,
    api_of,
    give_rights,
    give_visit,
    may_come_by_session,
    refusal_of_user,
    user_in,
    visit_in,
)
from smq.front.sessions import Visit
from smq.front.slots import (
    DRAINS_MAX,
    FORMS_MAX,
    QUERIES_MAX,
    RETRY_AFTER_S,
    RequestSlot,
    Slots,
    slot_of,
)
from smq.front.streams import Silent, give_drain, read_ahead
from smq.front.turns import standing_of
from smq.model.printable import say_error
from smq.security.addresses import network_of
from smq.security.listener_rules import is_loopback
from smq.security.listeners import HTTP
from smq.security.principals import Peer, Principal

SAY_S = 60.0  # Minimum time between two reports of too many requests.
OF_USER_MAX = 12  # Requests of one user's sessions at once: two browsers have as many.
FIELDS_MAX = 100  # Of a query: a page reads them all, at a microsecond or two each.
POLLED = ("/console/rates", "/console/lag")  # Pages ask for them again and again.
OLD_BROWSER = (
    "this browser does not say which page a request comes from (Sec-Fetch-Site), so any page could "
    "ask; use a newer one: Safari 16.4, Firefox 90, Chrome 76"
)
# No answer may become a part of another origin's page, nor be taken for what it is not.
HEADERS = (
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-content-type-options", b"nosniff"),
)


class Page(Route):
    """A page that another site may link to: it reads little, starts nothing, shows no record."""


class Gate:
    """Refuses requests

    - for a path with a line feed, which routes ignore at its end,
    - for a query of very many fields,
    - with a Host that is no host's address, not localhost and none of `hosts` (DNS rebinding),
    - of browsers that cannot say whose page caused them,
    - of another site's pages, but for links to a route that is a Page,
    - for which `rights` give no leave,
    - of nobody who has logged in, where `rights` want a login; browsers are sent to the page where
      they can,
    - for which no slot is free (smq.front.slots), or of whose user too many are answered.

    The connection is told whether who asked is known: others wait for their turn (smq.front.turns).
    The form of a login, and the text of a query, are read before anything is done for them, and
    take no slot meanwhile. Nor does a refused request whose body is read to its end.
    """

    def __init__(
        self,
        inner: ASGIApp,
        hosts: frozenset[str],
        routes: Sequence[Route] = (),
        rights: HttpRights = FREE,
    ) -> None:
        self._inner = inner
        self._rights = rights
        self._hosts = LOCALHOST | {each.lower() for each in hosts}
        self._pages = [each for each in routes if isinstance(each, Page)]
        self._slots, self._drains = Slots(), WaitingPlaces(DRAINS_MAX)
        self._ahead = {
            ("POST", LOGIN_PATH): WaitingPlaces(FORMS_MAX),
            ("POST", SQL_PATH): WaitingPlaces(QUERIES_MAX),
        }
        self._users = Counter[Principal]()
        self._said_s: float | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        give_rights(scope, None)
        # A request that outlasts a stop is cancelled: its connection just ends.
        with suppress(asyncio.CancelledError):
            refusal = self._refusal(scope)
            knows_all = self._rights.knows_all(scope["path"])
            standing_of(scope).learn(is_known=refusal is None and knows_all)
            if refusal is None:
                refusal = await self._admit(scope)
            if refusal is None:
                receive, refusal = await self._read_ahead(scope, receive)
            slot = self._slot(scope)
            if refusal is None and slot is not None and self._slots.is_full(slot):
                refusal = self._too_many()
            with ExitStack() as taken, self._of_session(scope) as too_many:
                if refusal is None and slot is not None:
                    taken.enter_context(self._slots.taken(slot))
                give_drain(scope, partial(self._draining, taken, _whose(scope)))
                answer = refusal or too_many or self._inner
                await answer(scope, receive, _with_headers(send))

    def _slot(self, scope: Scope) -> RequestSlot | None:
        """The slot that a request needs, once it is known who asks; a login's form needs none."""
        if (scope["method"], scope["path"]) == ("POST", LOGIN_PATH):
            return None
        slot = slot_of(scope, needs_login=self._rights.needs_login(scope["path"]))
        return slot if slot is None else slot._replace(user=user_in(scope))

    @asynccontextmanager
    async def _draining(self, taken: ExitStack, whose: str) -> AsyncIterator[None]:
        """Read the rest of a refused request within the block, which others need no slot for.
        Raises TimeoutError if another gets its place.
        """
        taken.close()
        async with self._drains.place(whose):
            yield

    async def _read_ahead(self, scope: Scope, receive: Receive) -> tuple[Receive, Response | None]:
        """Read the form of a login, or the text of a query: what receives it from then on, or the
        refusal."""
        places = self._ahead.get((scope["method"], scope["path"]))
        if places is None:
            return receive, None
        try:
            async with places.place(_whose(scope)):
                return await read_ahead(scope, receive, FORM_BYTES_MAX), None
        except TimeoutError:
            return receive, self._too_many({"connection": "close"})
        except Silent:
            return receive, incomplete()
        except ClientDisconnect:
            return receive, Response(None, 400)  # Nobody reads this.

    async def _admit(self, scope: Scope) -> Response | None:
        """Let a request have the rights of who asks, or refuse it."""
        rights, method, path = self._rights, scope["method"], scope["path"]
        needs_session = rights.needs_session(path)
        if not needs_session and not rights.needs_login(path):
            return None
        headers = dict(scope["headers"])
        is_shown = b"authorization" in headers
        by_session = needs_session or (may_come_by_session(method, path) and not is_shown)
        visit = self._visit(scope, headers) if by_session else None
        if visit is not None:
            assert rights.logins is not None
            peer = Peer(visit.session.principal, scope["client"][0], HTTP)
            user_rights = rights.logins.rights_of(peer)
            user_rights.api = api_of(method, path)
            give_rights(scope, user_rights)
            give_visit(scope, visit)
            standing_of(scope).learn(str(peer.principal), is_known=True)
            return None
        if needs_session:
            return _no_session(scope, headers)
        return await self._log_in(scope)

    @contextmanager
    def _of_session(self, scope: Scope) -> Iterator[Response | None]:
        """Count a request among those of its user's sessions; the answer if there are too many."""
        visit = visit_in(scope)
        if visit is None:
            yield None
            return
        user = visit.session.principal
        self._users[user] += 1
        try:
            yield self._too_many() if self._users[user] > OF_USER_MAX else None
        finally:
            self._users[user] -= 1
            if not self._users[user]:
                del self._users[user]

    def _visit(self, scope: Scope, headers: Mapping[bytes, bytes]) -> Visit | None:
        """The session of a request."""
        if not scope.get("client"):
            return None
        session_id = session_id_of(scope["scheme"], headers)
        is_poll = scope["path"].startswith(POLLED) or b"hx-request" in headers
        return self._rights.sessions.visit(
            session_id,
            scope["client"][0],
            asyncio.get_running_loop().time(),
            is_use=scope["method"] not in READS or not is_poll,
        )

    async def _log_in(self, scope: Scope) -> Response | None:
        """Let a request have its user's rights, or refuse it."""
        logins, headers = self._rights.logins, dict(scope["headers"])
        assert logins is not None
        if not scope.get("client"):
            return error(400, "nobody knows where this comes from")
        host, standing = scope["client"][0], standing_of(scope)
        is_private = scope["scheme"] == "https" or is_loopback(host)
        asking = Asking(scope["method"], headers, host, is_private, standing, standing.has_tried)
        try:
            rights = logins.remembered(asking)
            if rights is None:
                standing.has_tried = True
                rights = await logins.rights(asking)
        except LoginRefused as refused:
            return self._too_many() if refused.answer.status_code == 503 else refused.answer
        standing.learn(str(rights.peer.principal), is_known=True)
        standing.has_tried = False
        rights.api = api_of(scope["method"], scope["path"])
        give_rights(scope, rights)
        return refusal_of_user(scope["path"], rights)

    def _refusal(self, scope: Scope) -> Response | None:
        if "\n" in scope["path"]:
            return error(400, "the path has a line feed")
        if scope["query_string"].count(b"&") >= FIELDS_MAX:
            return error(400, f"a query has at most {FIELDS_MAX} fields")
        headers = dict(scope["headers"])
        if not self._is_ours(host_name(headers)):
            host = headers.get(b"host", b"").decode("latin-1")
            return error(421, f"{host!r} is not a name of this host; use its address")
        scheme = scope["scheme"]
        if is_old_browser(scheme, headers):
            return error(403, OLD_BROWSER)
        if is_foreign(scheme, headers) and not self._is_link(scope, headers):
            return error(403, "a page of another site may not ask for this; open it directly")
        return self._rights.refusal(scope["path"], headers)

    def _is_link(self, scope: Scope, headers: Mapping[bytes, bytes]) -> bool:
        matches = (page.matches(scope)[0] for page in self._pages)
        return is_navigation(scope["method"], headers) and Match.FULL in matches

    def _is_ours(self, name: str) -> bool:
        address = address_of(name)
        return name in self._hosts if address is None else not is_of_no_host(address)

    def _too_many(self, headers: Mapping[str, str] = MappingProxyType({})) -> Response:
        now_s = asyncio.get_running_loop().time()
        if self._said_s is None or now_s - self._said_s >= SAY_S:
            self._said_s = now_s
            say_error("front: too many requests at once; more are refused")
        headers = {"retry-after": str(RETRY_AFTER_S), **headers}
        return error(503, "too many requests are being answered already", headers)


def _whose(scope: Scope) -> str:
    """What who asks waits with: his other requests, or those of his network."""
    user, client = user_in(scope), scope.get("client")
    if user is not None:
        return str(user)
    return network_of(client[0]) if client else ""


def _no_session(scope: Scope, headers: Mapping[bytes, bytes]) -> Response:
    """The answer to who has not logged in: a browser that opens a page is sent where it can."""
    is_page = headers.get(b"sec-fetch-mode", b"navigate") == b"navigate"
    if scope["method"] not in READS or not is_page or b"hx-request" in headers:
        return error(401, f"log in at {LOGIN_PATH}", {"hx-redirect": LOGIN_PATH})
    query = scope["query_string"].decode("latin-1")
    place = scope["raw_path"].decode("latin-1") + (f"?{query}" if query else "")
    return RedirectResponse(f"{LOGIN_PATH}?{urlencode({'to': place})}", 303)


def _with_headers(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            there = {name.lower() for name, _ in message["headers"]}
            added = [each for each in HEADERS if each[0] not in there]
            message = {**message, "headers": [*message["headers"], *added]}
        await send(message)

    return sent


def incomplete() -> Response:
    """The answer to a client that does not send the rest of a body."""
    return error(408, "the body is incomplete", {"connection": "close"})


def error(status: int, sentence: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """The answer to a failed request."""
    return JSONResponse({"error": sentence}, status, headers)
