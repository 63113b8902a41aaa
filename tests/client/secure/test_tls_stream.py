"""A TLS connection behaves as a plain socket does."""

import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from socket import socketpair

import pytest

from smq.client.clock import SYSTEM_CLOCK
from smq.client.secure.opening import in_tls
from smq.client.secure.security import TlsFiles
from smq.client.secure.tls_stream import TlsStream
from smq.client.wait import wait_readable
from tests.client.secure.keys import broker_context, files_in


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[TlsStream, ssl.SSLSocket]]:
    """The client's end, and the broker's."""
    ours, theirs = socketpair()
    served: list[ssl.SSLSocket] = []
    context = broker_context(tmp_path)
    server = threading.Thread(
        target=lambda: served.append(context.wrap_socket(theirs, server_side=True))
    )
    server.start()
    files = TlsFiles((("ssl.truststore.location", files_in(tmp_path).authority),))
    client = in_tls(ours, "localhost", files, 5, SYSTEM_CLOCK)
    server.join()
    client.setblocking(False)
    yield client, served[0]
    client.close()
    served[0].close()


def test_a_socket_without_bytes_would_block(both: tuple[TlsStream, ssl.SSLSocket]) -> None:
    client, _ = both
    with pytest.raises(BlockingIOError):
        client.recv(10)


def test_a_socket_that_is_full_would_block(both: tuple[TlsStream, ssl.SSLSocket]) -> None:
    client, _ = both

    def fill() -> None:
        while True:
            client.send(memoryview(bytes(1 << 20)))

    with pytest.raises(BlockingIOError):
        fill()


def test_all_that_is_decrypted_is_given_at_once(both: tuple[TlsStream, ssl.SSLSocket]) -> None:
    """Nothing would say later that there is more."""
    client, broker = both
    broker.sendall(b"x" * 5000)
    assert wait_readable([client.fileno()], 5)
    assert client.recv(10) == b"x" * 5000
    assert not wait_readable([client.fileno()], 0)


def test_a_large_answer_arrives_whole(both: tuple[TlsStream, ssl.SSLSocket]) -> None:
    client, broker = both
    sent = bytes(range(256)) * 4096
    sender = threading.Thread(target=broker.sendall, args=(sent,))
    sender.start()
    client.settimeout(5)
    got, room = bytearray(), memoryview(bytearray(100_000))
    while len(got) < len(sent):
        got += room[: client.recv_into(room)]
    sender.join()
    assert got == sent


def test_the_end_of_a_connection_is_no_bytes(both: tuple[TlsStream, ssl.SSLSocket]) -> None:
    client, broker = both
    broker.close()
    assert wait_readable([client.fileno()], 5)
    assert client.recv(10) == b""
