"""Logins at a shard by OAUTHBEARER."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from smq.app.process.clock import wall_ms
from smq.model.errors import ErrorCode
from smq.security.jwks import PublishedKeys
from smq.security.principals import Principal
from smq.security.tokens import TokenHolder
from tests.app.fake_peers import turn_until
from tests.app.shard.requests.test_logins import DELAY_MS, Door, handshake, token
from tests.app.shard_client import benches, decoded, fetch
from tests.security.issuer import claims_of, first_message, published, token as issued
from tests.shard.shard_bench import topic


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    with benches(tmp_path, Door) as make:
        made = make(topic("one"), connection_failed_authentication_delay_ms=DELAY_MS)
        made.add_entrance()
        yield made


def bearer(**claims: Any) -> bytes:
    return first_message(issued(claims_of(wall_ms() / 1000, **claims)))


@pytest.mark.parametrize("renews", [True, False])
def test_a_session_ends_with_its_token_unless_another_token_renews_it(
    door: Door, *, renews: bool
) -> None:
    client = door.client()
    ended = bearer(iat=wall_ms() // 1000 - 9, exp=wall_ms() // 1000 - 1)  # Within the skew.
    client.send(handshake("OAUTHBEARER") + token(ended))
    assert decoded("SaslAuthenticate", 2, client.wait(2)[-1]).error_code == ErrorCode.NONE
    turn_until(door.loop, lambda: door.server.logins._known[door.connection].has_expired)
    if renews:
        client.send(handshake("OAUTHBEARER", 3) + token(bearer(), 4) + fetch("one", correlation=5))
        client.wait(5)
        assert client.correlations() == [1, 2, 3, 4, 5]
        assert not door.server.logins._known[door.connection].has_expired
    else:
        client.send(fetch("one", correlation=3))
        client.wait_closed()
        assert client.correlations() == [1, 2]
        assert door.server.logins.expired_count == 1


def test_a_token_of_a_megabyte_is_not_read(door: Door) -> None:
    client = door.client()
    client.send(handshake("OAUTHBEARER"))
    client.wait(1)
    with suppress(ConnectionError):
        client.send(token(bearer(x="x" * 1024 * 1024)))
    client.wait_closed()
    assert client.correlations() == [1]


def test_a_changed_password_ends_no_session_of_a_token(door: Door) -> None:
    client = door.client()
    client.send(handshake("OAUTHBEARER") + token(bearer()))
    client.wait(2)
    assert door.connection.caller.rights.peer.principal == Principal("User", "alice")
    door.server.logins.drop_changed({"alice"})
    client.send(fetch("one", correlation=3))
    client.wait(3)


def test_a_withdrawn_key_ends_the_sessions_of_its_tokens_and_no_others(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("smq.app.shard.requests.logins.LOOKS_A_TURN", 1)
    sent: tuple[list[bytes], ...] = (
        [handshake("OAUTHBEARER"), token(bearer())],
        [handshake("OAUTHBEARER"), token(bearer())],
        [handshake("PLAIN"), token(b"\0alice\0pencil")],
        [],  # A newcomer.
    )
    clients = [door.client() for _ in sent]
    for client, each in zip(clients, sent, strict=True):
        client.send(b"".join(each))
        client.wait(len(each))
    logins = door.server.logins
    logins.drop_withdrawn()
    door.turn(8)
    assert len(door.server.clients) == 4
    sessions = (each.session for each in door.server.clients.by_fd.values())
    [holder, *_] = [each.checked for each in sessions if each and each.mechanism == "OAUTHBEARER"]
    assert isinstance(holder, TokenHolder)
    holder.issued.keys = PublishedKeys(published("rsa other").encode())
    logins.drop_withdrawn()
    turn_until(door.loop, lambda: len(door.server.clients) == 2)
    for client in clients[:2]:
        client.wait_closed()
    clients[2].send(fetch("one", correlation=3))
    clients[2].wait(3)
