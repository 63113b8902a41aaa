"""The front's host names, and its limit of concurrent requests."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from smq.front import gate, lane, slots, streams
from smq.front.gate import Gate
from smq.front.logins import Asking
from smq.front.rights import FREE, HttpRights
from smq.front.turns import PeerStanding
from smq.testing.memory_store import MemoryStore
from tests.front.asgi import GONE, Call, at_once, call, call_async, front, scope_of
from tests.front.users import as_user, rights_for


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.0.0.1:80", "[::1]:80", "[::1]", "localhost", "LOCALHOST:1", "ours:1", ""],
)
def test_we_are_called_by_an_address_or_our_name(host: str) -> None:
    assert call(front(MemoryStore()), "GET", "/health", host=host).status == 200


@pytest.mark.parametrize("host", ["0.0.0.0:80", "[::]:80", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]"])
def test_a_host_that_is_no_address_of_this_host_is_refused(host: str) -> None:
    """Door fault 1, its sibling: browsers connect to this host, and send no Sec-Fetch-Site."""
    assert call(front(MemoryStore()), "GET", "/health", host=host).status == 421
    app = Gate(waiting(), frozenset({"0.0.0.0"}))
    assert call(app, "GET", "/health", host="0.0.0.0").status == 421


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "8080", ":80x", "ours:"]
)
def test_another_name_for_us_is_refused(host: str) -> None:
    """Door fault 15: a name of digits is no port."""
    answer = call(front(MemoryStore()), "PUT", "/filer/docs/a", b"x", host=host)
    assert answer.status == 421
    assert host in answer.json["error"]


def test_a_query_of_very_many_fields_is_refused_before_anybody_reads_them() -> None:
    app, most = front(MemoryStore()), gate.FIELDS_MAX
    assert call(app, "GET", "/health?" + "a&" * (most - 1)).status == 200
    assert call(app, "GET", "/health?" + "a&" * most).status == 400


SITES: list[dict[str, Any]] = [
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"origin": "http://evil.example"},
    {"origin": "null"},
]


@pytest.mark.parametrize("site", SITES)
def test_another_site_reads_and_changes_nothing(site: dict[str, Any]) -> None:
    """Door fault 1."""
    store = MemoryStore()
    assert call(front(store), "PUT", "/filer/docs/a", b"x", host="ours").status == 201
    for method, path in [
        ("GET", "/filer/docs/a"),
        ("DELETE", "/filer/docs/a"),
        ("PUT", "/filer/docs/b"),
        ("GET", "/filer/"),
        ("GET", "/metrics"),
        ("GET", "/health"),
        ("POST", "/health"),
        ("GET", "/debug/stacks"),
        ("GET", "/nothing"),
    ]:
        assert call(front(store), method, path, b"", host="ours", **site).status == 403
    assert [each.key for each in store.list("")] == ["docs/a"]


@pytest.mark.parametrize("path", ["/health", "/filer/docs/a", "/debug"])
def test_an_old_safari_is_refused_with_the_version_it_needs(path: str) -> None:
    """Door fault 1: an image of any page, in Safari before 16.4, searched topics, which took as
    long as there was to find."""
    safari: dict[str, Any] = {"user-agent": "Mozilla/5.0 (Macintosh) Version/15.6 Safari/605.1.15"}
    answer = call(front(MemoryStore()), "GET", path, host="127.0.0.1:8080", **safari)
    assert answer.status == 403
    assert "Safari 16.4" in answer.json["error"]


def test_another_site_may_link_to_plain_pages_only() -> None:
    link: dict[str, Any] = {
        "host": "ours",
        "sec-fetch-site": "cross-site",
        "sec-fetch-mode": "navigate",
        "sec-fetch-dest": "document",
    }
    app = front(MemoryStore())
    assert call(app, "GET", "/health", **link).status == 200
    assert call(app, "GET", "/metrics", **link).status == 403
    assert call(app, "GET", "/health", **{**link, "sec-fetch-dest": "iframe"}).status == 403


def test_no_answer_becomes_a_part_of_another_site() -> None:
    for path in ("/health", "/metrics", "/nothing", "/filer/", "/filer/nothing"):
        headers = call(front(MemoryStore()), "GET", path).headers
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["x-content-type-options"] == "nosniff"


def waiting() -> ASGIApp:
    """Answers all when it is asked for its health."""
    go = asyncio.Event()

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/health":
            go.set()
        await go.wait()
        await PlainTextResponse("answer")(scope, receive, send)

    return answer


def test_requests_beyond_the_limit_are_refused_and_health_is_answered(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(slots, "PAGES_MAX", 2)
    app = Gate(waiting(), frozenset())
    asked = [Call("GET", path) for path in ("/a", "/b", "/c", "/d", "/health")]
    answers = at_once(app, asked)
    assert [each.status for each in answers] == [200, 200, 503, 503, 200]
    assert answers[2].json == {"error": "too many requests are being answered already"}
    assert answers[2].headers["retry-after"] == "1"
    assert capsys.readouterr().err.count("\n") == 1
    assert call(app, "GET", "/a").status == 200


def standing_after(path: str, rights: HttpRights, **headers: Any) -> PeerStanding:
    """What a gate has told the connection of a request."""
    standing = PeerStanding()
    app = front(MemoryStore(), rights=rights)

    async def with_standing(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "state": standing.in_state()}, receive, send)

    call(with_standing, "GET", path, **headers)
    return standing


@pytest.mark.parametrize(
    ("path", "headers", "is_known"),
    [
        ("/filer/docs/a", as_user("alice"), True),  # Whatever he may.
        ("/filer/docs/a", as_user("alice", "wrong"), False),
        ("/filer/docs/a", {}, False),
        ("/filer/docs/a", {**as_user("alice"), "host": "evil.example"}, False),
        ("/health/live", as_user("alice"), False),
        ("/health/ready", {}, False),
        ("/metrics", {"authorization": "Bearer s3cret"}, True),
        ("/metrics", {"authorization": "Bearer wrong"}, False),
        ("/nothing", as_user("alice"), False),
    ],
)
def test_the_connection_learns_whether_who_asked_is_known(
    path: str, headers: dict[str, Any], is_known: bool
) -> None:
    standing = standing_after(path, rights_for(token="s3cret"), **headers)
    assert standing.is_known == is_known
    assert standing.user == ("User:alice" if is_known and path != "/metrics" else "")
    assert standing_after(path, FREE, **{k: v for k, v in headers.items() if k != "host"}).is_known


def test_wrong_passwords_take_no_slot_from_who_is_logged_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """400 wrong passwords had who was logged in refused."""
    monkeypatch.setattr(lane, "LINE_MAX", 2)
    monkeypatch.setattr(slots, "TRANSFERS_MAX", 1)
    monkeypatch.setattr(slots, "SHARE", 1)
    app = front(MemoryStore(), rights=rights_for())
    path = "/filer/docs/a"
    assert call(app, "GET", path, **as_user("alice")).status == 403
    wrong = [Call("GET", path, headers=as_user("bob", f"wrong{n}")) for n in range(4)]
    known = Call("GET", path, headers=as_user("alice"))
    other = Call("GET", path, headers=as_user("carol"))
    *answers, of_other, of_known = [each.status for each in at_once(app, [*wrong, other, known])]
    assert sorted(answers) == [401, 401, 503, 503]
    assert (of_other, of_known) == (401, 403), "neither is kept out by who tries bob's password"


class SlowForm:
    """A client that begins the form of a login, or another body, and sends nothing more."""

    def __init__(self, app: ASGIApp, scope: Scope | None = None) -> None:
        self.status = 0
        self.end = asyncio.Event()
        scope = login_scope("127.0.0.1") if scope is None else scope
        self.task: asyncio.Future[None] = asyncio.ensure_future(
            app(scope, self._receive, self._send)
        )
        self._pieces = [b"user="]

    async def _receive(self) -> Message:
        if self._pieces:
            return {"type": "http.request", "body": self._pieces.pop(), "more_body": True}
        await self.end.wait()
        return GONE

    async def _send(self, message: Message) -> None:
        self.status = message.get("status", self.status)


def login_scope(host: str) -> Scope:
    return {
        "type": "http",
        "method": "POST",
        "scheme": "http",
        "path": "/console/login",
        "raw_path": b"/console/login",
        "query_string": b"",
        "client": (host, 5),
        "headers": [],
    }


def test_the_gate_lets_a_login_pass_slow_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    """130 of them had every first login refused."""
    monkeypatch.setattr(gate, "FORMS_MAX", 3)
    app = Gate(read_form, frozenset(), (), rights_for())

    async def run() -> None:
        slow = [SlowForm(app) for _ in range(5)]
        for _ in range(5):
            await asyncio.sleep(0)
        sent: list[Message] = []

        async def send(message: Message) -> None:
            sent.append(message)

        async def receive() -> Message:
            return {"type": "http.request", "body": b"user=a", "more_body": False}

        await asyncio.wait_for(app(login_scope("127.0.0.1"), receive, send), 20)
        assert [each.get("body") for each in sent] == [None, b"user=a"]
        assert [each.status for each in slow] == [503, 503, 503, 0, 0], "the slowest make room"
        for each in slow:
            each.end.set()
            await asyncio.wait_for(each.task, 20)

    asyncio.run(run())


@pytest.mark.parametrize(("method", "path"), [("POST", "/sql"), ("PUT", "/filer/docs/a")])
def test_bodies_that_do_not_come_take_no_slot_from_others(
    monkeypatch: pytest.MonkeyPatch, method: str, path: str
) -> None:
    """Who may nothing had 34 to 49 of 50 requests of others refused."""
    monkeypatch.setattr(slots, "TRANSFERS_MAX", 2)
    monkeypatch.setattr(slots, "SHARE", 1)
    monkeypatch.setattr(gate, "QUERIES_MAX", 3)
    monkeypatch.setattr(gate, "DRAINS_MAX", 3)
    monkeypatch.setattr(streams, "DRAIN_S", 60.0)
    app = front(MemoryStore(), rights=rights_for())

    async def run() -> None:
        assert {await status_of("alice"), await status_of("bob")} == {403}
        slow = [SlowForm(app, scope_of(method, path, as_user("alice"))) for _ in range(5)]
        await asyncio.wait_for(asyncio.gather(*(each.task for each in slow[:2])), 20)
        assert [each.status > 0 for each in slow] == [True, True, False, False, False]
        assert await status_of("bob") == 403, "no slot of his is taken"
        for each in slow:
            each.end.set()
            await asyncio.wait_for(each.task, 20)

    async def status_of(user: str) -> int:
        asked = call_async(app, Call("GET", "/filer/docs/a", headers=as_user(user)))
        return (await asyncio.wait_for(asked, 20)).status

    asyncio.run(run())


async def read_form(scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse(await Request(scope, receive).body())(scope, receive, send)


def test_one_user_does_not_take_all_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "OF_USER_MAX", 2)
    rights = rights_for()
    assert rights.logins is not None
    cookies: dict[str, Any] = {}
    asking = Asking("POST", {}, "127.0.0.1", is_private=True)
    for user in ("alice", "bob"):
        holder = asyncio.run(rights.logins.by_password(user, user[::-1], asking))
        session_id = rights.sessions.begin(holder, "127.0.0.1", 0.0)
        cookies[user] = {"cookie": f"smq-session={session_id}"}
    monkeypatch.setattr(rights.sessions, "visit", partial(_at_the_start, rights.sessions.visit))
    app = Gate(slow, frozenset(), (), rights)
    users = ["alice", "alice", "alice", "bob"]
    found = at_once(app, [Call("GET", "/topics", headers=cookies[each]) for each in users])
    assert [each.status for each in found] == [200, 200, 503, 200]
    assert call(app, "GET", "/topics", **cookies["alice"]).status == 200


async def slow(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers when all that has come at once is under way."""
    for _ in range(5):
        await asyncio.sleep(0)
    await PlainTextResponse("answer")(scope, receive, send)


def _at_the_start(
    visit: Callable[..., Any], session_id: str, host: str, _: float, **how: Any
) -> Any:
    return visit(session_id, host, 0.0, **how)
