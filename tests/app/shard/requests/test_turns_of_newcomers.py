"""What connections before their logins take of a turn, at a shard."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from smq.app.shard.connections import tls_socket
from tests.app.fake_peers import turn_until
from tests.app.shard.requests.test_logins import (
    RIGHT,
    Door,
    TlsClient,
    handshake,
    logged_in,
    token,
)
from tests.app.shard_client import benches, fetch
from tests.security.tls_bench import client_context, context_of, make_files
from tests.shard.shard_bench import topic


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    with benches(tmp_path, Door) as make:
        made = make(topic("one"))
        made.add_entrance()
        yield made


UNKNOWN = b"\0\0\0\x0b\0\x12\0\x63\0\0\0\1\xff\xff\0"  # ApiVersions of a version that is none.


def test_a_newcomer_that_asks_very_often_is_answered_each_time(door: Door) -> None:
    client = door.client()
    client.send(UNKNOWN * 500 + handshake(correlation=2) + token(RIGHT, 3) + fetch("one"))
    client.wait(503)
    assert client.correlations() == [1] * 500 + [2, 3, 1]


def test_a_login_ends_while_newcomers_say_more_than_a_turn_takes(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_socket, "NEWCOMERS_NS", 1)
    loud = [door.client() for _ in range(5)]
    for each in loud:
        each.send(UNKNOWN * 4000)
    door.turn()
    client = door.client()
    logged_in(door, client)
    client.send(fetch("one", correlation=3))
    client.wait(1)
    for each in loud:
        each.pull()
        assert 0 < len(each.frames()) < 4000


def test_an_address_with_many_newcomers_that_wait_keeps_no_other_waiting(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_socket, "NEWCOMERS_NS", 1)
    door.source = "127.0.0.2"
    for _ in range(40):
        door.client().send(UNKNOWN * 400)
    door.turn()
    door.source = "127.0.0.1"
    client, turns = door.client(), 0
    client.send(handshake())
    while not client.frames():
        door.turn(1)
        client.pull()
        turns += 1
    assert turns < 10, "each turn serves one of them"


def test_a_newcomer_that_ends_its_side_is_answered_what_it_has_asked(door: Door) -> None:
    client = door.client()
    client.send(UNKNOWN * 20 + handshake(correlation=2) + token(RIGHT, 3) + fetch("one"))
    client.socket.shutdown(socket.SHUT_WR)
    client.wait(22)
    assert client.correlations()[:22] == [1] * 20 + [2, 3]


def test_newcomers_that_go_while_they_wait_are_forgotten(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_socket, "NEWCOMERS_NS", 1)
    clients = [door.client() for _ in range(8)]
    for each in clients:
        each.send(UNKNOWN * 50)
    door.turn(1)
    for each in clients:
        each.socket.close()
    turn_until(door.loop, lambda: len(door.server.clients) == 0)
    door.turn()
    assert len(door.server.logins.newcomers) == 0


def test_handshakes_of_many_share_their_turns(
    door: Door, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_socket, "NEWCOMERS_NS", 1)
    files = make_files(tmp_path_factory.mktemp("keys"))
    context = context_of(files)
    door.add_entrance(context=lambda: context)
    hello = b"\x16\x03\x01\x02\x00\x01\x00"
    for _ in range(8):
        door.client().send(hello)
    logged_in(door, TlsClient(door, client_context(files)))
