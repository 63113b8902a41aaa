"""A password's check waits for its turn, and its client may have gone by then."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.login import Login
from smq.app.shard.requests.fair_lane import FairLane
from smq.model.errors import PeerError
from tests.app.fake_peers import turn_until
from tests.app.shard.requests.test_fair_lane import HeldLane
from tests.app.shard.requests.test_logins import (
    DELAY_MS,
    RIGHT,
    WRONG,
    Door,
    handshake,
    logged_in,
    token,
)
from tests.app.shard_client import benches
from tests.shard.shard_bench import topic


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    with benches(tmp_path, Door) as make:
        made = make(topic("one"), connection_failed_authentication_delay_ms=DELAY_MS)
        made.add_entrance()
        yield made


def test_an_answer_that_does_not_fit_closes_its_connection_alone(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_long(*_: object) -> None:
        raise PeerError("the answer does not fit")

    monkeypatch.setattr(Login, "_answer_token", too_long)
    client = door.client()
    client.send(handshake() + token(RIGHT))
    client.wait_closed()
    assert door.server.logins.failed_count == 1


def test_passwords_of_clients_that_have_gone_are_not_checked(door: Door) -> None:
    thread = HeldLane()
    logins = door.server.logins
    logins.lane = FairLane(thread.submit)
    for _ in range(5):
        client = door.client()
        client.send(handshake() + token(WRONG))
        turn_until(door.loop, lambda: len(logins.lane) > 0 or bool(thread.given))
        client.socket.close()
        turn_until(door.loop, lambda: len(door.server.clients) == 0)
    assert len(logins.lane) == 0
    client = door.client()
    client.send(handshake() + token(RIGHT))
    turn_until(door.loop, lambda: len(logins.lane) == 1)
    thread.run()
    client.wait(2)


def test_a_password_is_checked_before_those_of_clients_that_have_gone_silently(door: Door) -> None:
    """Nothing is read from them meanwhile, so that their end goes unnoticed."""
    thread, logins = HeldLane(), door.server.logins
    logins.lane = FairLane(thread.submit)
    for i in range(5):
        client = door.client()
        client.send(handshake() + token(WRONG))
        turn_until(door.loop, lambda i=i: len(logins.lane) == i)  # type: ignore[misc]
        client.pull()
        client.socket.close()
    client = door.client()
    client.send(handshake() + token(RIGHT))
    turn_until(door.loop, lambda: len(logins.lane) == 5)
    for _ in range(2):
        work, done = thread.given.pop()
        done(work())
    client.wait(2)
    assert len(logins.lane) == 3


def test_a_login_is_renewed_before_newcomers_of_its_address_are_all_checked(door: Door) -> None:
    """Else the session ends that a flood of newcomers does not let be renewed."""
    door.lifetime_ms = 60_000
    known = door.client()
    logged_in(door, known)
    thread, logins = HeldLane(), door.server.logins
    logins.lane = FairLane(thread.submit)
    for i in range(5):
        door.client().send(handshake() + token(WRONG))
        turn_until(door.loop, lambda i=i: len(logins.lane) == i)  # type: ignore[misc]
    known.send(handshake(correlation=3) + token(RIGHT, 4))
    turn_until(door.loop, lambda: len(logins.lane) == 5)
    for _ in range(3):  # Two were before it.
        work, done = thread.given.pop()
        done(work())
    known.wait(2)
    assert len(logins.lane) == 2
