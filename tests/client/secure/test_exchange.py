"""Requests by HTTP that end in time, at servers that do not want them to."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path

import pytest

from smq.client.clock import SYSTEM_CLOCK
from smq.client.secure.exchange import Deadline, posted
from smq.model.errors import PeerError
from tests.security.tls_bench import context_of, make_files

WAIT_S = 30.0
Speak = Callable[[socket.socket, threading.Event], None]


@contextmanager
def speaking(speak: Speak) -> Iterator[int]:
    """A server for one client, to whom it speaks until that goes; its port."""
    listener, over = socket.create_server(("127.0.0.1", 0)), threading.Event()

    def serve() -> None:
        sock, _ = listener.accept()
        with sock, suppress(OSError):
            speak(sock, over)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        over.set()
        with suppress(OSError):  # It may wait for somebody still.
            socket.create_connection(listener.getsockname(), WAIT_S).close()
        thread.join()
        listener.close()


def asked(url: str, seconds: float = WAIT_S, bytes_max: int = 1000, authorities: str = "") -> bytes:
    deadline = Deadline(SYSTEM_CLOCK, SYSTEM_CLOCK.monotonic_s() + seconds)
    status, data = posted(url, "a=b", {"Accept": "x"}, authorities, bytes_max, deadline)
    assert status == 200
    return data


def slowly(first: bytes, piece: bytes) -> Speak:
    """Says something, and then a piece again and again."""

    def speak(sock: socket.socket, over: threading.Event) -> None:
        sock.recv(65536)
        sock.sendall(first)
        while not over.wait(0.02):
            sock.sendall(piece)

    return speak


OK = b"HTTP/1.1 200 OK\r\n"
SLOW = {
    "silence": slowly(b"", b""),
    "status": slowly(b"HTTP/1.1 200 ", b"O"),
    "head": slowly(OK, b"x"),
    "headers": slowly(OK, b"X: y\r\n"),
    "continue": slowly(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "body": slowly(OK + b"\r\n", b"x"),
    "length": slowly(OK + b"Content-Length: 1000000000000\r\n\r\n", b"x"),
    "chunk": slowly(OK + b"Transfer-Encoding: chunked\r\n\r\n", b"0"),
}


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("kind", SLOW)
def test_an_answer_that_never_ends_ends_in_time(kind: str, scheme: str) -> None:
    """In TLS it is the server's side of the handshake, of which nothing comes that is such."""
    with (
        speaking(SLOW[kind]) as port,
        pytest.raises((TimeoutError, ssl.SSLError)) as failure,
    ):
        asked(f"{scheme}://127.0.0.1:{port}/", 0.2, 100_000)
    assert scheme == "https" or isinstance(failure.value, TimeoutError)


def test_a_quick_answer_without_end_is_bounded() -> None:
    def speak(sock: socket.socket, _: threading.Event) -> None:
        sock.sendall(OK)
        while True:
            sock.sendall(b"X: y\r\n" * 50 + OK)

    for bytes_max in (10, 1000):  # A piece that arrives may have more headers than there may be.
        with speaking(speak) as port, pytest.raises((PeerError, HTTPException)):
            asked(f"http://127.0.0.1:{port}/", bytes_max=bytes_max)


def test_an_answer_is_read_in_tls(tmp_path: Path) -> None:
    files = make_files(tmp_path)

    def speak(sock: socket.socket, over: threading.Event) -> None:
        with context_of(files).wrap_socket(sock, server_side=True) as secured:
            heard = secured.recv(65536)
            while not heard.endswith(b"a=b"):
                heard += secured.recv(65536)
            assert b"POST /t?a=b HTTP/1.1\r\nHost: localhost:" in heard
            secured.sendall(OK + b"Content-Length: 4\r\n\r\n" + heard[:4])
            over.wait(WAIT_S)  # It stays open: the answer has its length.

    with speaking(speak) as port:
        url = f"https://localhost:{port}/t?a=b"
        assert asked(url, authorities=str(files.authority)) == b"POST"


def test_another_address_of_a_host_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    def speak(sock: socket.socket, _: threading.Event) -> None:
        heard = sock.recv(65536)
        while not heard.endswith(b"a=b"):  # Else the end of this socket resets the connection.
            heard += sock.recv(65536)
        sock.sendall(OK + b"\r\nhere")

    with speaking(speak) as port, socket.create_server(("127.0.0.1", 0)) as away:
        closed = away.getsockname()
        away.close()
        kind = (socket.AF_INET, socket.SOCK_STREAM, 0, "")
        there = ("127.0.0.1", port)
        monkeypatch.setattr(
            socket, "getaddrinfo", lambda *_, **__: [(*kind, closed), (*kind, there)]
        )
        assert asked("http://localhost/") == b"here"
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(*kind, closed)])
        with pytest.raises(ConnectionRefusedError):
            asked("http://localhost/")


def test_a_host_that_cannot_be_is_no_address() -> None:
    with pytest.raises(OSError, match="no address"):
        asked(f"http://{'a' * 70}.example/")
