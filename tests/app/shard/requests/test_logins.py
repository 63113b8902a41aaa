"""Logins at a shard: what a connection may do before and after, and for how long."""

import os
import select
import socket
import ssl
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gateway.login import LoginRules
from shm.kernels.base.words import WORD_WRITTEN
from smq.app.process.clock import monotonic_ns, wall_ms
from smq.app.process.unix_users import principal_of_user
from smq.app.shard.connections import newcomers
from smq.app.shard.connections.entrance import Entrance
from smq.app.shard.requests.fair_lane import FairLane
from smq.model.errors import ErrorCode
from smq.model.security_settings import STANDARD_AUTHORIZER
from smq.security import tls
from smq.security.credentials import Credentials
from smq.security.decoys import Decoys
from smq.security.mechanisms import MECHANISMS, LoginServers
from smq.security.principals import Principal
from smq.testing.credentials import UsersInMemory
from smq.wire.generated.metadata import MetadataRequest
from smq.wire.generated.sasl_authenticate import SaslAuthenticateRequest
from smq.wire.generated.sasl_handshake import SaslHandshakeRequest
from tests.app.fake_peers import turn_until
from tests.app.shard.requests.test_fair_lane import HeldLane
from tests.app.shard_client import (
    Client,
    ServerBench,
    benches,
    decoded,
    fetch,
    fetched,
    request,
    settle,
    versions,
)
from tests.security.issuer import tokens_at
from tests.security.tls_bench import Files, client_context, context_of, make_files
from tests.shard.shard_bench import batch, produce_request, topic

DELAY_MS = 30


class Door(ServerBench):
    """A server whose clients log in; `lifetime_ms` is of new sessions."""

    lifetime_ms = 0
    users: Credentials = UsersInMemory({"alice": "pencil", "bob": "stylus"})

    def add_entrance(self, **given: Any) -> None:
        servers = LoginServers(self.users, Decoys(b"secret"), lambda: "nonce")
        begin = partial(servers.begin, tokens=tokens_at(wall_ms))
        rules = LoginRules(MECHANISMS, begin, lambda _: self.lifetime_ms)
        entrance = Entrance("SASL", rules=rules)._replace(**given)
        listener = socket.create_server(("127.0.0.1", 0))
        self.loop.opened.append(listener)
        self.address = listener.getsockname()
        self.server.clients.listen(listener, entrance)

    def turn(self, times: int = 3) -> None:
        super().turn(times)
        self.server.invariants()

    @property
    def connection(self) -> Any:
        [connection] = self.server.clients.by_fd.values()
        return connection


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    with benches(tmp_path, Door) as make:
        made = make(topic("one"), connection_failed_authentication_delay_ms=DELAY_MS)
        made.add_entrance()
        yield made


def handshake(mechanism: str = "PLAIN", correlation: int = 1, version: int = 1) -> bytes:
    asked = SaslHandshakeRequest(mechanism=mechanism)
    return request("SaslHandshake", version, asked, correlation)


def token(text: bytes, correlation: int = 2) -> bytes:
    return request("SaslAuthenticate", 2, SaslAuthenticateRequest(auth_bytes=text), correlation)


RIGHT, WRONG = b"\0alice\0pencil", b"\0alice\0wrong"


def logged_in(door: Door, client: Client) -> None:
    client.send(handshake() + token(RIGHT))
    assert decoded("SaslAuthenticate", 2, client.wait(2)[-1]).error_code == ErrorCode.NONE
    client.received = b""


def test_requests_behind_a_login_in_one_buffer_are_answered_in_order(door: Door) -> None:
    client = door.client()
    produce = produce_request({"one": {0: batch(b"x")}}, correlation=3)
    client.send(versions(0) + handshake() + token(RIGHT) + produce + fetch("one", correlation=4))
    frames = client.wait(5)
    assert client.correlations() == [0, 1, 2, 3, 4]
    assert fetched(frames[4]).high_watermark == 1
    peer = door.connection.caller.rights.peer
    assert peer == (Principal("User", "alice"), "127.0.0.1", "SASL")
    assert door.server.logins.counts() == (0, 1, 0, 0)


def test_a_kernel_serves_a_connection_from_its_login_on(door: Door) -> None:
    client = door.client()
    settle(door, client)
    assert door.connection.standing == 0
    logged_in(door, client)
    settle(door, client)
    assert door.connection.standing > 0


@pytest.mark.parametrize("cut", [1, 3, 11])
def test_a_login_may_be_cut_anywhere(door: Door, cut: int) -> None:
    client = door.client()
    stream = handshake() + token(RIGHT) + fetch("one", correlation=3)
    for at in range(0, len(stream), cut):
        client.send(stream[at : at + cut])
        door.turn(1)
    client.wait(3)
    assert client.correlations() == [1, 2, 3]


def test_a_failed_login_is_answered_after_the_delay_and_closed(door: Door) -> None:
    client = door.client()
    client.send(handshake() + token(WRONG) + fetch("one", correlation=3))
    client.wait(1)
    began_ns = monotonic_ns()
    client.wait_closed()
    assert monotonic_ns() - began_ns > (DELAY_MS - 20) * 1_000_000
    assert client.correlations() == [1, 2]
    response = decoded("SaslAuthenticate", 2, client.frames()[1])
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert door.server.logins.failed_count == 1


def test_another_request_before_the_login_closes_without_an_answer(door: Door) -> None:
    written = int(door.shard.logs[0].words[WORD_WRITTEN])
    client = door.client()
    client.send(produce_request({"one": {0: batch(b"x")}}))
    client.wait_closed()
    assert client.received == b""
    assert door.shard.logs[0].words[WORD_WRITTEN] == written


@pytest.mark.parametrize("size", [-1, 2**31 - 1, 64 * 1024 + 1])
def test_an_impossible_size_closes(door: Door, size: int) -> None:
    client = door.client()
    client.send(size.to_bytes(4, signed=True))
    client.wait_closed()
    assert client.received == b""


def test_a_newcomer_that_sends_much_is_closed(tmp_path: Path) -> None:
    with benches(tmp_path, Door) as make:
        door = make(sasl_server_max_receive_size=4096)
        door.add_entrance()
        client = door.client()
        client.send(b"\0\0\x0f\xf0" + bytes(4080))
        client.send(bytes(100))
        client.wait_closed()


def test_a_newcomer_without_a_login_in_time_is_closed(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = door.client()
    logged_in(door, quick)
    monkeypatch.setattr(newcomers, "LOGIN_MS", 30)
    slow = door.client()
    slow.wait_closed()
    assert not quick.is_closed
    assert len(door.server.clients) == 1


def test_a_session_that_has_expired_takes_only_a_login(door: Door) -> None:
    door.lifetime_ms = 20
    client = door.client()
    logged_in(door, client)
    turn_until(door.loop, lambda: door.connection.needs_loop)
    settle(door, client)
    assert not client.is_closed, "silence is no reason"
    client.send(handshake(correlation=5) + token(RIGHT, 6) + fetch("one", correlation=7))
    client.wait(3)
    assert client.correlations() == [5, 6, 7]
    turn_until(door.loop, lambda: door.connection.needs_loop)
    client.send(fetch("one", correlation=8))
    client.wait_closed()
    assert client.correlations() == [5, 6, 7]
    assert door.server.logins.expired_count == 1


def test_a_request_that_comes_with_the_end_of_its_session_is_not_served(tmp_path: Path) -> None:
    with benches(tmp_path, Door) as make:
        door = make(topic("one"), authorizer_class_name=STANDARD_AUTHORIZER)
        door.lifetime_ms = 60_000
        door.add_entrance()
        client = door.client()
        logged_in(door, client)
        settle(door, client)
        known = door.server.logins._known[door.connection]
        assert known.expiry is not None
        assert known.expiry.action is not None
        client.send(fetch("one", correlation=8))
        # The loop has stood still, and sees its timers after what has come.
        known.expiry = door.loop.call_at(0, known.expiry.action)
        client.wait_closed()
        assert client.correlations() == []
        assert door.server.logins.expired_count == 1


def test_a_fetch_that_waits_when_its_session_expires_is_answered(door: Door) -> None:
    door.lifetime_ms = 50
    client = door.client()
    logged_in(door, client)
    client.send(fetch("one", wait_ms=60_000))
    settle(door, client)
    turn_until(door.loop, lambda: door.connection.needs_loop)
    door.lifetime_ms = 0
    writer = door.client()
    logged_in(door, writer)
    writer.send(produce_request({"one": {0: batch(b"x")}}))
    assert fetched(client.wait(1)[0]).records


def test_a_login_is_renewed_at_most_once_a_second(door: Door) -> None:
    door.lifetime_ms = 60_000
    client = door.client()
    logged_in(door, client)
    client.send(fetch("one", correlation=3) + handshake(correlation=4) + token(RIGHT, 5))
    client.send(handshake(correlation=6) + fetch("one", correlation=7))
    frames = client.wait(5)
    assert client.correlations() == [3, 4, 5, 6, 7]
    assert decoded("SaslAuthenticate", 2, frames[2]).session_lifetime_ms == 60_000
    assert decoded("SaslHandshake", 1, frames[3]).error_code == ErrorCode.ILLEGAL_SASL_STATE


def test_a_login_that_lasts_is_not_renewed(door: Door) -> None:
    client = door.client()
    logged_in(door, client)
    client.send(handshake(correlation=3) + fetch("one", correlation=4))
    frames = client.wait(2)
    assert decoded("SaslHandshake", 1, frames[0]).error_code == ErrorCode.ILLEGAL_SASL_STATE


def test_failed_logins_are_noticed_once_a_minute(door: Door) -> None:
    logins = door.server.logins
    for _ in range(2):
        client = door.client()
        client.send(handshake() + token(WRONG))
        client.wait_closed()
        logins.notice_failures()
    assert logins.notices == ["failed logins since the last such line: 1"]


def test_a_client_that_goes_while_its_password_is_checked_leaves_nothing(door: Door) -> None:
    client = door.client()
    client.send(handshake() + token(RIGHT))
    door.turn(1)
    client.socket.close()
    turn_until(door.loop, lambda: len(door.server.clients) == 0)
    settle(door)
    assert len(door.server.logins.newcomers) == 0


# --- TLS -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return make_files(tmp_path_factory.mktemp("keys"))


class TlsClient(Client):
    """A client whose socket is wrapped."""

    def __init__(self, door: Door, context: Any) -> None:
        sock = socket.create_connection(door.address)
        sock.setblocking(False)
        wrapped = context.wrap_socket(
            sock, server_hostname="localhost", do_handshake_on_connect=False
        )
        door.loop.opened.append(wrapped)
        super().__init__(door.loop, wrapped)

        def shaken() -> bool:
            try:
                wrapped.do_handshake()
            except (BlockingIOError, ssl.SSLWantReadError):
                return False
            return True

        turn_until(door.loop, shaken)

    def pull(self) -> None:
        try:
            super().pull()
        except ssl.SSLWantReadError:
            return


@pytest.mark.slow
def test_tls_carries_logins_large_requests_and_large_answers(door: Door, files: Files) -> None:
    context = context_of(files)
    door.add_entrance(context=lambda: context)
    client = TlsClient(door, client_context(files))
    logged_in(door, client)
    for i in range(20):
        client.send(produce_request({"one": {0: batch(bytes([i]) * 50_000)}}, correlation=i))
    client.wait(20)
    client.received = b""
    client.send(fetch("one", correlation=9))
    [frame] = client.wait(1)
    assert len(fetched(frame).records) > 20 * 50_000
    assert door.connection.needs_loop


def test_a_certificate_logs_in_where_there_is_no_sasl(door: Door, files: Files) -> None:
    context = context_of(files, "required")
    door.add_entrance(context=lambda: context, rules=None)
    client = TlsClient(door, client_context(files, certificate=files.client))
    client.send(fetch("one"))
    client.wait(1)
    assert door.connection.caller.rights.peer.principal == Principal("User", "CN=alice")
    assert len(door.server.logins.newcomers) == 0


def test_a_throttled_connection_in_tls_reads_on(
    door: Door, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which another request's answer has brought, between the parts of one that is received."""
    monkeypatch.setattr(tls, "READS_MAX", 20)
    context = context_of(files)
    door.add_entrance(context=lambda: context, rules=None)
    client = TlsClient(door, client_context(files))
    settle(door, client)
    stream = produce_request({"one": {0: batch(os.urandom(2000))}})
    for at in range(0, len(stream), 20):
        client.socket.send(stream[at : at + 20])
    engine = door.connection.tls
    turn_until(door.loop, lambda: engine.is_due)
    assert not select.select([door.connection.fd], [], [], 0)[0], "TLS holds all of it"
    door.connection.throttle(5)
    client.wait(1)


def test_half_a_handshake_is_a_newcomer_and_garbage_is_closed(door: Door, files: Files) -> None:
    context = context_of(files)
    door.add_entrance(context=lambda: context)
    half, garbage = door.client(), door.client()
    half.send(b"\x16\x03\x01\x02\x00\x01\x00")
    garbage.send(b"GET / HTTP/1.1\r\n\r\n")
    garbage.wait_closed()
    assert len(door.server.logins.newcomers) == 1
    assert door.server.logins.counts().failed == 1
    half.socket.close()
    turn_until(door.loop, lambda: len(door.server.clients) == 0)


def test_metadata_is_answered_through_tls_by_the_loop_alone(door: Door, files: Files) -> None:
    context = context_of(files)
    door.add_entrance(context=lambda: context, rules=None)
    client = TlsClient(door, client_context(files))
    client.send(request("Metadata", 9, MetadataRequest(topics=[]), 4))
    client.wait(1)
    settle(door, client)
    assert door.connection.standing == 0


# --- users of this host ---------------------------------------------------------------------------


class UnixDoor(Door):
    """Its listener is a unix socket."""

    def add_entrance(self, **given: Any) -> None:
        listener = socket.socket(socket.AF_UNIX)
        self.loop.opened.append(listener)
        self.address = f"\0smq-test-{os.getpid()}-{id(listener)}"
        listener.bind(self.address)
        listener.listen()
        self.server.clients.listen(listener, Entrance("unix", **given))

    def client(self, receive_bytes: int | None = None) -> Client:
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(self.address)
        sock.setblocking(False)
        self.loop.opened.append(sock)
        turn_until(self.loop, lambda: len(self.server.clients) > 0)
        return Client(self.loop, sock)


@pytest.fixture
def unix_door(tmp_path: Path) -> Iterator[UnixDoor]:
    with benches(tmp_path, UnixDoor) as make:
        yield make(topic("one"))


def test_a_user_that_is_known_is_in_at_once(unix_door: UnixDoor) -> None:
    known = Principal("User", "unix/me")
    unix_door.add_entrance(users={os.getuid(): known})
    client = unix_door.client()
    assert unix_door.connection.caller.rights.peer == (known, "127.0.0.1", "unix")
    assert len(unix_door.server.logins.newcomers) == 0
    settle(unix_door, client)
    assert unix_door.connection.standing > 0
    client.send(versions(1) + fetch("one", correlation=2))
    client.wait(2)
    assert client.correlations() == [1, 2]


def test_another_user_s_requests_wait_for_its_name(unix_door: UnixDoor) -> None:
    unix_door.add_entrance(users={})
    client = unix_door.client()
    assert [*unix_door.server.logins.newcomers] == [unix_door.connection]
    client.send(versions(1) + fetch("one", correlation=2))
    client.wait(2)
    assert client.correlations() == [1, 2]
    peer = unix_door.connection.caller.rights.peer
    assert peer == (principal_of_user(os.getuid()), "127.0.0.1", "unix")
    assert len(unix_door.server.logins.newcomers) == 0


def test_a_name_that_is_found_slowly_holds_no_password_up(unix_door: UnixDoor) -> None:
    directory_service, logins = HeldLane(), unix_door.server.logins
    logins.names = FairLane(directory_service.submit)
    unix_door.add_entrance(users={})
    client = unix_door.client()
    assert len(directory_service.given) == 1
    checked: list[bytes | OSError] = []
    logins.lane.add("a connection", "10.0.0.1", lambda: b"right", checked.append)
    turn_until(unix_door.loop, lambda: bool(checked))
    client.send(versions(1))
    directory_service.run()
    client.wait(1)


def test_a_user_who_connects_for_ever_leaves_room_for_others(tmp_path: Path) -> None:
    with benches(tmp_path, UnixDoor) as make:
        door = make(max_connections=8)
        elsewhere = door.address
        door.add_entrance(users={})
        clients = [socket.socket(socket.AF_UNIX) for _ in range(10)]
        for each in clients:
            door.loop.opened.append(each)
            each.connect(door.address)
            door.turn()
        assert len(door.server.clients) == 2
        door.address = elsewhere
        by_tcp = [socket.create_connection(elsewhere) for _ in range(8)]
        door.loop.opened += by_tcp
        turn_until(door.loop, lambda: len(door.server.clients) == 8)
        door.add_entrance(users={os.getuid(): Principal("User", "unix/me")})
        door.client()
        turn_until(door.loop, lambda: len(door.server.clients) == 9)


def test_a_user_that_leaves_before_its_name_is_known_is_forgotten(unix_door: UnixDoor) -> None:
    unix_door.add_entrance(users={})
    client = unix_door.client()
    unix_door.connection.close()
    client.wait_closed()
    unix_door.turn(10)
    assert len(unix_door.server.logins.newcomers) == len(unix_door.server.clients) == 0
