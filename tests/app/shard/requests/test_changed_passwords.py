"""Connections end with the passwords that they have logged in with."""

from pathlib import Path

import pytest

from smq.client.secure.logins import login_by
from smq.model.errors import ErrorCode
from smq.security.access import AccessView
from smq.security.credentials import ScramMechanism
from smq.security.published import UserCredential
from smq.testing.credentials import UsersInMemory
from tests.app.fake_peers import turn_until
from tests.app.shard.requests.test_logins import Door, handshake, token
from tests.app.shard_client import Client, benches, decoded, fetch, settle
from tests.security.test_access import FakeBlock

SHA_256, SHA_512 = ScramMechanism


def logged_in_by(door: Door, mechanism: str) -> Client:
    client, exchange = door.client(), login_by(mechanism, "alice", "pencil", "nonce")
    client.send(handshake(mechanism))
    said: bytes | None = exchange.first()
    frames = 1
    while said is not None:
        client.send(token(said))
        frames += 1
        answer = decoded("SaslAuthenticate", 2, client.wait(frames)[-1])
        assert answer.error_code == ErrorCode.NONE
        said = exchange.next(answer.auth_bytes)
    settle(door, client)
    return client


@pytest.mark.parametrize(
    ("used", "of", "other"),
    [
        ("SCRAM-SHA-256", SHA_256, SHA_512),
        ("SCRAM-SHA-512", SHA_512, SHA_256),
        ("PLAIN", SHA_512, SHA_256),
    ],
)
def test_a_connection_ends_when_the_very_credential_that_it_has_used_changes(
    tmp_path: Path, used: str, of: ScramMechanism, other: ScramMechanism
) -> None:
    block = FakeBlock()

    def give(**passwords: str) -> None:
        users = UsersInMemory({})
        for name, password in passwords.items():
            users.add("alice", password, ScramMechanism[name])
        block.publish(*(UserCredential(*key, each) for key, each in users.found.items()))

    give(**{of.name: "pencil", other.name: "pencil"})
    with benches(tmp_path, Door) as make:
        door = make()
        door.users = door.shard.access = AccessView(block, door.shard.config)
        door.shard.access.when_user_changes = door.server._changed_users.add
        door.add_entrance()
        client = logged_in_by(door, used)
        give(**{of.name: "pencil", other.name: "crayon"})
        settle(door, client)
        assert not client.is_closed
        give(**{of.name: "pencil"})
        settle(door, client)
        assert not client.is_closed
        give(**{of.name: "crayon"})
        client.wait_closed()


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_login_by_plain_ends_when_its_password_is_checked_with_another_credential(
    tmp_path: Path, *, is_replaced: bool
) -> None:
    """SHA-256's is of no use once there is one of SHA-512."""
    users = UsersInMemory({})
    users.add("alice", "pencil", SHA_256)
    with benches(tmp_path, Door) as make:
        door = make()
        door.users = users
        door.add_entrance()
        client = logged_in_by(door, "PLAIN")
        door.server.logins.drop_changed({"alice"})
        settle(door, client)
        assert not client.is_closed
        if is_replaced:
            users.add("alice", "crayon", SHA_512)
        else:
            users.found.clear()
        door.server.logins.drop_changed({"bob"})
        settle(door, client)
        assert not client.is_closed
        door.server.logins.drop_changed({"alice"})
        client.wait_closed()


def test_thousands_of_logins_with_a_changed_password_end_some_in_a_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All in one turn held everybody else on the shard for a fifth of a second."""
    monkeypatch.setattr("smq.app.shard.requests.logins.LOOKS_A_TURN", 2)
    users = UsersInMemory({"alice": "pencil", "bob": "pencil"})
    with benches(tmp_path, Door) as make:
        door = make()
        door.users = users
        door.add_entrance()
        clients = [logged_in_by(door, "PLAIN") for _ in range(5)]
        answers = [len(client.frames()) for client in clients]
        users.found.clear()
        changed = {"alice"}
        door.server.logins.drop_changed(changed)
        changed.clear()
        clients[4].send(fetch("one", correlation=7))  # It is not the first one's turn yet.
        door.turn(1)
        assert 0 < len(door.server.clients) < 4
        turn_until(door.loop, lambda: not len(door.server.clients))
        for client in clients:
            client.wait_closed()
        assert [len(client.frames()) for client in clients] == answers


def test_a_login_with_an_unchanged_password_goes_on(tmp_path: Path) -> None:
    users = UsersInMemory({"alice": "pencil"})
    with benches(tmp_path, Door) as make:
        door = make()
        door.users = users
        door.add_entrance()
        client = logged_in_by(door, "PLAIN")
        [connection] = door.server.clients.by_fd.values()
        door.server.logins.drop_changed({"alice"})
        assert connection.needs_loop
        turn_until(door.loop, lambda: not connection.needs_loop)
        assert not client.is_closed
