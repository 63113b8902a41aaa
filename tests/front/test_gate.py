"""The front's host names, and its limit of concurrent requests."""

import asyncio

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from smq.front import gate
from smq.front.gate import Gate
from smq.testing.memory_store import MemoryStore
from tests.front.asgi import Call, at_once, call, front


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.0.0.1:80", "[::1]:80", "[::1]", "localhost", "LOCALHOST:1", "ours:1", ""],
)
def test_we_are_called_by_an_address_or_our_name(host: str) -> None:
    assert call(front(MemoryStore()), "GET", "/health", host=host).status == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example"])
def test_another_name_for_us_is_refused(host: str) -> None:
    answer = call(front(MemoryStore()), "PUT", "/filer/docs/a", b"x", host=host)
    assert answer.status == 421
    assert "evil" in answer.json["error"]


def waiting() -> ASGIApp:
    """Answers all when it is asked for its health."""
    go = asyncio.Event()

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/health":
            go.set()
        await go.wait()
        await PlainTextResponse("answer")(scope, receive, send)

    return answer


def test_too_many_at_once_are_refused_but_health_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gate, "REQUESTS_MAX", 2)
    app = Gate(waiting(), frozenset())
    asked = [Call("GET", path) for path in ("/a", "/b", "/c", "/d", "/health")]
    answers = at_once(app, asked)
    assert [each.status for each in answers] == [200, 200, 503, 503, 200]
    assert answers[2].json == {"error": "2 requests are being answered already"}
    assert answers[2].headers["retry-after"] == "1"
    assert capsys.readouterr().err.count("\n") == 1
    assert call(app, "GET", "/a").status == 200
