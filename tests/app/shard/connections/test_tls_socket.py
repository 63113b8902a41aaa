"""A socket that speaks TLS, against Python's client."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from random import Random

import pytest

from smq.app.shard.connections import tls_socket as module
from smq.app.shard.connections.tls_socket import SharedTurn, TlsSocket
from tests.security.tls_bench import (
    Client,
    Files,
    ask_for_new_keys,
    client_context,
    context_of,
    make_files,
)

HANDSHAKE_BYTES_MIN = 250  # What a client says at least.


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return make_files(tmp_path_factory.mktemp("keys"))


class Bench:
    """Both ends of a connection; `pump` carries what the client says and hears."""

    def __init__(self, files: Files, client: ssl.SSLContext | None = None) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.ours.setblocking(False)
        self.theirs.setblocking(False)
        self.shared = SharedTurn()
        self.server = TlsSocket(self.ours, context_of(files, "requested"), self.shared)
        self.client = Client(client or client_context(files))
        self.view = memoryview(bytearray(1 << 20))

    def say(self) -> None:
        if data := self.client.outgoing.read():
            self.theirs.sendall(data)

    def hear(self) -> None:
        with suppress(BlockingIOError):
            while data := self.theirs.recv(1 << 20):
                self.client.incoming.write(data)

    def receive(self, *, in_a_new_turn: bool = True) -> bytes | None:
        """What the server reads; None: nothing."""
        if in_a_new_turn:
            self.shared.begin_turn()
        try:
            return bytes(self.view[: self.server.recv_into(self.view)])
        except BlockingIOError:
            return None

    def connect(self) -> None:
        for _ in range(4):
            self.client.shake_hands()
            self.say()
            self.receive()
            self.hear()
        assert self.server.is_established

    def close(self) -> None:
        self.server.close()
        self.theirs.close()

    def __enter__(self) -> "Bench":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@pytest.fixture
def bench(files: Files) -> Iterator[Bench]:
    with Bench(files) as made:
        yield made


def test_requests_that_come_with_the_end_of_the_handshake_are_read(bench: Bench) -> None:
    for _ in range(2):
        bench.client.shake_hands()
        bench.say()
        assert bench.receive() is None
        bench.hear()
        bench.client.shake_hands()
    bench.client.tls.write(b"request")
    bench.say()
    assert bench.receive() == b"request"
    assert bench.server.is_established
    assert bench.server.received_bytes > len(b"request")


def test_a_large_request_is_read_in_turns_that_the_socket_does_not_announce(bench: Bench) -> None:
    bench.connect()
    sent = Random(3).randbytes(120_000)
    bench.client.tls.write(sent)
    bench.say()
    bench.view = memoryview(bytearray(50_000))
    received, turns = bench.receive() or b"", 1
    while bench.server.wants_turn:
        received, turns = received + (bench.receive() or b""), turns + 1
    assert turns > 2
    assert received == sent
    assert bench.receive() is None


def test_an_answer_waits_as_ciphertext_until_the_socket_takes_it(bench: Bench) -> None:
    bench.connect()
    bench.ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    answer = Random(4).randbytes(900_000)
    parts: list[bytes | memoryview] = [
        answer[:100_000],
        memoryview(answer)[100_000:200_000],
        answer[200_000:],
    ]
    taken = bench.server.sendmsg(parts)
    assert 0 < taken < len(answer)
    with pytest.raises(BlockingIOError):
        bench.server.send(b"more")
    received = b""
    while len(received) < len(answer):
        bench.hear()
        received += bench.client.read()
        with suppress(BlockingIOError):
            bench.server.flush()
            if taken < len(answer):
                taken += bench.server.send(answer[taken:])
    assert received == answer


def test_the_end_is_seen_and_said(bench: Bench) -> None:
    bench.connect()
    bench.client.tls.write(b"last")
    with suppress(ssl.SSLWantReadError):
        bench.client.tls.unwrap()
    bench.say()
    bench.theirs.shutdown(socket.SHUT_WR)
    assert bench.receive() == b"last"
    assert bench.receive() == b""
    bench.server.close()
    bench.hear()
    bench.client.tls.unwrap()


def test_an_end_without_a_word_is_an_end_too(bench: Bench) -> None:
    bench.connect()
    bench.theirs.shutdown(socket.SHUT_WR)
    assert bench.receive() == b""
    bench.server.close()
    assert bench.theirs.recv(1) == b"", "who leaves so hears no last word"


def test_a_failed_handshake_tells_the_client_why(files: Files) -> None:
    with Bench(files, client_context(files, certificate=files.foreign)) as bench:
        with pytest.raises(ssl.SSLError):
            bench.connect()
        bench.hear()
        with pytest.raises(ssl.SSLError, match=r"(?i)unknown ca"):
            bench.client.tls.read(1)


def test_other_protocols_are_an_error_of_the_socket(bench: Bench) -> None:
    bench.theirs.sendall(b"GET / HTTP/1.1\r\n\r\n")
    with pytest.raises(OSError, match=r"(?i)http.request"):
        bench.receive()


def say_up_to(bench: Bench, end: int) -> int:
    """The client says so many bytes of its handshake at most; returns how many it has said."""
    said = 0
    while not bench.server.is_established:
        bench.client.shake_hands()
        data = bench.client.outgoing.read()[: end - said]
        bench.theirs.sendall(data)
        said += len(data)
        if data:
            assert bench.receive() is None
        if said == end:
            break
        bench.hear()
    return said


@pytest.mark.slow
@pytest.mark.parametrize("with_certificate", [False, True])
def test_a_handshake_cut_at_each_byte_waits_and_leaves_nothing_open(
    files: Files, *, with_certificate: bool
) -> None:
    certificate = files.client if with_certificate else None
    context = client_context(files, certificate=certificate)
    context.set_ecdh_curve("prime256v1")
    for end in count():  # Until it is whole: how long it is depends on its signatures.
        with Bench(files, context) as bench:
            said = say_up_to(bench, end)
        assert bench.ours.fileno() == -1
        if bench.server.is_established:
            break
        assert said == end
    assert end > HANDSHAKE_BYTES_MIN


def test_a_client_that_asks_for_new_keys_and_takes_none_is_closed(bench: Bench) -> None:
    bench.connect()
    bench.ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    bench.theirs.setblocking(True)

    def flood() -> None:
        for _ in range(100):
            for _ in range(100):
                ask_for_new_keys(bench.client)
            bench.say()
            assert bench.receive() is None
            while bench.server.wants_turn:
                assert bench.receive() is None

    with pytest.raises(ConnectionError, match="asks for new keys"):
        flood()


def test_handshakes_of_a_turn_share_their_time(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "NEWCOMERS_NS", 1)
    bench.client.shake_hands()
    bench.shared.spend(lambda: None)
    assert bench.shared.is_spent
    bench.say()
    assert bench.receive(in_a_new_turn=False) is None
    bench.hear()
    assert not bench.client.incoming.pending, "its turn has not come"
    assert bench.server.wants_turn
    assert bench.receive() is None
    bench.hear()
    assert bench.client.incoming.pending


def test_no_turn_of_handshakes_keeps_requests_waiting(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.connect()
    monkeypatch.setattr(module, "NEWCOMERS_NS", 0)
    assert bench.shared.is_spent
    bench.client.tls.write(b"request")
    bench.say()
    assert bench.receive(in_a_new_turn=False) == b"request"
