"""Insides, for programs on this host only."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from smq.front.debug import ROWS_MAX, is_from_here, routes
from smq.front.metrics.facts import Facts, GroupOffset, PartitionFacts, ProcessFacts
from smq.front.rights import give_rights
from smq.security.principals import Peer, Principal
from smq.security.rights import Rights
from tests.front.asgi import call

FACTS = Facts(
    version="1",
    is_ready=True,
    started_ms=0,
    processes=[ProcessFacts("shard-1", True, 0)],
    partitions=[PartitionFacts(topic, 0, 1, 0, 5, 0, 0, 0) for topic in ("a", "b")],
    offsets=[GroupOffset("g", "a", 0, 3, 2, None)],
    missing=("the store",),
)


def asked_from(host: str, path: str, facts: Facts = FACTS) -> Any:
    inner: ASGIApp = Starlette(routes=routes(lambda: facts, {"slow": lambda: [{"api": "Fetch"}]}))

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await inner({**scope, "client": (host, 5)}, receive, send)

    return call(app, "GET", path)


def request_from(
    host: str | None, *headers: tuple[bytes, bytes], rights: Rights | None = None
) -> Request:
    client = None if host is None else (host, 5)
    scope: Scope = {"type": "http", "client": client, "headers": [*headers]}
    give_rights(scope, rights)
    return Request(scope)


def test_rows_are_those_of_the_facts() -> None:
    told = asked_from("127.0.0.1", "/debug/partitions").json
    assert [each["topic"] for each in told["partitions"]] == ["a", "b"]
    assert told["missing"] == ["the store"]
    chosen = asked_from("::1", "/debug/partitions?topic=b").json
    assert [each["end_offset"] for each in chosen["partitions"]] == [5]
    assert asked_from("127.0.0.1", "/debug/groups?group=x").json["count"] == 0
    assert asked_from("127.0.0.1", "/debug/groups?group=g").json["groups"][0]["lag"] == 2
    assert asked_from("127.0.0.1", "/debug/processes").json["processes"][0]["name"] == "shard-1"


def test_the_pages_are_listed_and_each_of_them_answers() -> None:
    pages = asked_from("127.0.0.1", "/debug").json["pages"]
    assert pages[:2] == ["/debug/processes", "/debug/logs"]
    assert pages[-1] == "/debug/slow"
    assert {asked_from("127.0.0.1", page).status for page in pages} == {200}


@pytest.mark.parametrize("name", ["", "/processes", "/logs", "/partitions", "/groups", "/slow"])
def test_other_hosts_are_refused(name: str) -> None:
    assert asked_from("192.168.0.7", f"/debug{name}").status == 403


def test_a_proxy_on_this_host_is_refused() -> None:
    """Door fault 10: behind it may be anybody."""
    for name in (b"forwarded", b"via", b"x-forwarded-for", b"x-forwarded-host"):
        assert not is_from_here(request_from("127.0.0.1", (name, b"10.0.0.1")))
    assert is_from_here(request_from("127.0.0.1"))


@pytest.mark.parametrize("name", [b"ours:80", b"192.168.0.1", b"0.0.0.0", b"[::ffff:127.0.0.1]"])
def test_under_another_name_a_page_could_ask(name: bytes) -> None:
    """Door fault 1, its sibling: browsers mark the requests of foreign pages only to loopback."""
    assert not is_from_here(request_from("127.0.0.1", (b"host", name)))


def test_a_client_without_an_address_counts_as_remote() -> None:
    assert not is_from_here(request_from(None))


def test_a_user_who_has_logged_in_may_ask_from_anywhere() -> None:
    rights = Rights(None, Peer(Principal("User", "alice")))
    assert is_from_here(request_from("192.168.0.7", (b"via", b"a proxy"), rights=rights))


class Noted(list[Any]):
    """Rows that note which threads look at them."""

    threads: ClassVar[set[int]] = set()

    def __getitem__(self, place: Any) -> Any:
        self.threads.add(threading.get_ident())
        return super().__getitem__(place)

    def __iter__(self) -> Iterator[Any]:
        self.threads.add(threading.get_ident())
        return super().__iter__()


def test_rows_are_encoded_in_a_thread() -> None:
    """Those of 10,000 topics held the loop for 300 ms."""
    facts = replace(FACTS, partitions=Noted(FACTS.partitions), missing=Noted(FACTS.missing))
    Noted.threads.clear()
    assert asked_from("127.0.0.1", "/debug/partitions", facts).json["count"] == 2
    assert Noted.threads
    assert threading.get_ident() not in Noted.threads


def test_an_answer_is_bounded() -> None:
    facts = Facts(
        version="1",
        is_ready=True,
        started_ms=0,
        partitions=[FACTS.partitions[0]] * (ROWS_MAX + 1),
    )
    told = asked_from("127.0.0.1", "/debug/partitions", facts).json
    assert len(told["partitions"]) == ROWS_MAX
    assert told["count"] == ROWS_MAX + 1
