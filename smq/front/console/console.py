"""The console's routes: what all pages share, and how failures are shown.

    /                                overview            /groups            groups
    /topics                          topics              /groups/one?group  a group
    /topics/<topic>                  a topic             /console/rates     the charts' numbers
    /topics/<topic>/messages         its records         /console/static/…  scripts and styles
    /topics/<topic>/messages/<p>/<o> a record
    /files, /files/one?key           the filer   /settings          settings, and who changed them

Pages work without scripts; scripts add charts, previews and actions. An action is a POST whose
answer is a sentence, or a header that redirects the page (HX-Redirect).

Where access rules decide, pages are for users who have logged in. The desk acts as the user who
asked, and facts are those that the user may know (smq.front.console.sight).
"""

from codecs import getincrementaldecoder
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import unquote_to_bytes

from anyio.to_thread import run_sync
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from smq.filer.store import Store
from smq.front.console.desk import Desk
from smq.front.console.guard import Answer, Guard
from smq.front.console.history import History
from smq.front.console.sight import visible
from smq.front.console.templates import render
from smq.front.downloads import DownloadPlace, Downloads
from smq.front.gate import Page
from smq.front.metrics.facts import Facts
from smq.front.rights import FREE, HttpRights, has_logged_in, rights_of, visit_of
from smq.front.streams import small_body
from smq.front.user_threads import UserThreads
from smq.model.errors import BrokerError, ErrorCode, NotFound, PeerError, StoreError
from smq.security.audit import DENIALS, AdminAct
from smq.security.principals import Peer

AT_ONCE = 4  # Pages that query the broker: each uses a thread, and holds records in memory.
OF_USER_MAX = 2  # Of these: one who searches again and again leaves threads to all others.
FIELDS_MAX = 100
FORM_BYTES_MAX = 16 * 1024
LONG_FORM_BYTES_MAX = 2 * 1024 * 1024  # A record that is typed or pasted, or a plan of many moves.
SMALL_FORM_BYTES = 4096  # Of any escapes: each takes a microsecond.
# Unescaped by one call: with two megabytes of escapes it holds the GIL for tens of milliseconds.
PIECE_BYTES = 64 * 1024

Found = TypeVar("Found")


async def _to_nobody(_peer: Peer, _api: str, _act: AdminAct) -> None:
    """There is no audit log."""


@dataclass(frozen=True, slots=True)
class Console:
    """The sources of the pages. `facts` may be a moment old; `desks` has a desk for each user; with
    None for everybody. `acted` tells the audit log what no API of the broker does, before it is
    done."""

    facts: Callable[[], Facts]
    history: History
    desks: Callable[[Peer | None], Desk]
    store: Store
    decode: Callable[[str, bytes], dict[str, Any]]
    guard: Guard
    rights: HttpRights = FREE
    acted: Callable[[Peer, str, AdminAct], Awaitable[None]] = _to_nobody
    asking: UserThreads = field(default_factory=lambda: UserThreads(AT_ONCE, OF_USER_MAX))
    looking: UserThreads = field(default_factory=lambda: UserThreads(1))
    downloads: Downloads = field(default_factory=Downloads)

    async def ask(self, request: Request, work: Callable[..., Found], *arguments: object) -> Found:
        """Run a call of the desk, or what makes a page of its answer, in a thread."""
        return await self.asking.run(request, work, *arguments)

    async def made(self, request: Request, work: Callable[..., Found], *arguments: object) -> Found:
        """Make a page, or what else may be long, and of clients who want it to be: in one thread,
        for which users take turns, since one call of each waits for it."""
        return await self.looking.run(request, work, *arguments)

    def desk(self, request: Request) -> Desk:
        """The desk of who asks."""
        return self.desks(rights_of(request).peer if has_logged_in(request) else None)

    async def look(self, request: Request) -> Facts:
        """The facts of now that who asks may know."""
        threads = self.looking.threads
        async with self.looking.turn(request):
            facts = await run_sync(self.facts, limiter=threads)
            return await visible(facts, rights_of(request), threads)

    def place(self, request: Request) -> AbstractAsyncContextManager[DownloadPlace]:
        """The place of a long download: see Downloads."""
        user = str(rights_of(request).peer.principal) if has_logged_in(request) else ""
        return self.downloads.place(user)

    async def in_turns(self, request: Request, pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
        """What `made` would be of a download, piece by piece."""
        while (piece := await self.made(request, next, pieces, None)) is not None:
            yield piece

    async def form(self, request: Request, bytes_max: int = FORM_BYTES_MAX) -> dict[str, str]:
        """The URL-encoded fields of a form. Raises ValueError if it is too long, not text, or long
        with a % that begins no escape. Strangers send it, too: none waits behind others'."""
        body = await _body_of(request, bytes_max)
        return _fields(body, _unescaped if len(body) <= SMALL_FORM_BYTES else _unescaped_at_once)

    async def long_form(self, request: Request) -> dict[str, str]:
        """The fields of a form with a record or a plan, parsed one at a time. Raises ValueError if
        it is too long or not text. To be read for who may do something with it."""
        return await self.made(request, _fields, await _body_of(request, LONG_FORM_BYTES_MAX))

    def page(self, path: str, answer: Answer) -> Route:
        """The route of a page that other sites may link to."""
        return Page(path, self.guard.page(_or_sentence(answer)), methods=["GET"])

    def search(self, path: str, answer: Answer) -> Route:
        """The route of a page that shows records, or reads more than facts: no link opens it."""
        return Route(path, self.guard.page(_or_sentence(answer)), methods=["GET"])

    def action(self, path: str, answer: Answer) -> Route:
        """The route of an action."""
        return Route(path, self.guard.action(_or_say(answer)), methods=["POST"])


def page_of(request: Request, name: str, values: Mapping[str, Any], status: int = 200) -> Response:
    """A page, or a part of one."""
    return render(name, values, status, visit_of(request))


def told(sentence: str, status: int = 200) -> HTMLResponse:
    """The answer of an action: a sentence, shown beside the form."""
    return render("said.html", {"sentence": sentence, "is_error": status >= 400}, status)


def gone_to(path: str) -> Response:
    """The answer of an action that redirects to another page."""
    return Response(None, 204, {"hx-redirect": path})


async def _body_of(request: Request, bytes_max: int) -> bytes:
    return await small_body(request, bytes_max, "a form")


def _unescaped(field: bytes) -> str:
    """A name or value. Pieces end before an escape, not within."""
    decoder, texts, at = getincrementaldecoder("utf-8")("replace"), list[str](), 0
    while at < len(field):
        end = at + PIECE_BYTES
        cut = field.find(b"%", end - 2, end)
        end = end if cut < 0 else cut
        data = unquote_to_bytes(field[at:end].replace(b"+", b" "))
        texts.append(decoder.decode(data))
        at = end
    return "".join(texts) + decoder.decode(b"", final=True)


def _unescaped_at_once(field: bytes) -> str:
    """Likewise, thirty times as fast, as Python's own escapes. Raises ValueError if it holds others
    than those that browsers write."""
    escaped = field.replace(b"\\", b"\\\\").replace(b"+", b" ").replace(b"%", b"\\x")
    try:
        data = escaped.decode("unicode_escape")
    except UnicodeDecodeError:
        raise ValueError("in a long form each % begins an escape") from None
    return data.encode("latin-1").decode("utf-8", "replace")


def _fields(body: bytes, unescaped: Callable[[bytes], str] = _unescaped) -> dict[str, str]:
    body.decode()  # Raises ValueError: it is not text.
    fields = body.split(b"&", FIELDS_MAX)
    if len(fields) > FIELDS_MAX:
        raise ValueError(f"a form has at most {FIELDS_MAX} fields")
    pairs = (each.partition(b"=") for each in fields if each)
    return {unescaped(name): unescaped(value) for name, _, value in pairs}


def lines_of(text: str, lines_max: int, what: str) -> list[str]:
    """The lines of a field. Raises ValueError if there are more."""
    lines = text.split("\n", lines_max)
    if len(lines) > lines_max:
        raise ValueError(f"{what} has at most {lines_max} lines")
    return [each.removesuffix("\r") for each in lines]


def _or_sentence(answer: Answer) -> Answer:
    async def answered(request: Request) -> Response:
        try:
            return await answer(request)
        except (BrokerError, HTTPException, PeerError, StoreError, ValueError) as reason:
            values = {"title": "This did not work", "sentence": sentence_of(reason), "here": ""}
            return page_of(request, "failed.html", values, _status(reason))

    return answered


def _or_say(answer: Answer) -> Answer:
    async def answered(request: Request) -> Response:
        try:
            return await answer(request)
        except ClientDisconnect:
            raise
        except (BrokerError, PeerError, StoreError, ValueError) as reason:
            return told(sentence_of(reason), _status(reason))

    return answered


def sentence_of(reason: Exception) -> str:
    """The sentence to show for a failure."""
    if isinstance(reason, HTTPException):
        return reason.detail
    return str(reason) or type(reason).__name__


def _status(reason: Exception) -> int:
    if isinstance(reason, HTTPException):
        return reason.status_code
    if isinstance(reason, ValueError):
        return 400
    if not isinstance(reason, BrokerError):
        return 404 if isinstance(reason, NotFound) else 502
    if reason.code in DENIALS:
        return 403
    if reason.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return 404
    return 503 if reason.code == ErrorCode.BROKER_NOT_AVAILABLE else 409
