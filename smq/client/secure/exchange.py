"""One request by HTTP that ends in time, whatever a server sends, and however slowly: connect, TLS,
head and body have one deadline, and the answer one bound. Only the resolver takes its time.

http.client bounds each wait for a byte, and a head that grows by a byte a second for ever.
"""

import io
import socket
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPSConnection
from typing import NamedTuple
from urllib.parse import urlsplit

from smq.client.clock import Clock
from smq.model.errors import PeerError
from smq.model.named_files import read_named
from smq.security.listener_rules import pem_text


class Deadline(NamedTuple):
    """When an exchange has to be over, in monotonic time."""

    clock: Clock
    until_s: float

    def left_s(self) -> float:
        """How much time there is still. Raises TimeoutError if there is none."""
        left_s = self.until_s - self.clock.monotonic_s()
        if left_s <= 0:
            raise TimeoutError
        return left_s


def posted(  # noqa: PLR0913, PLR0917  (what a request has)
    url: str,
    body: str,
    headers: Mapping[str, str],
    authorities: str,
    answer_bytes_max: int,
    deadline: Deadline,
) -> tuple[int, bytes]:
    """The status and the body of the answer to a POST. `authorities`: as of TokenEndpoint.

    Raises OSError (TimeoutError when time is up), HTTPException, and PeerError if the answer is too
    long.
    """
    parts = urlsplit(url)
    assert parts.hostname is not None, "the URL has been checked"
    connection = HTTPConnection(parts.hostname, parts.port)
    context = None
    if parts.scheme == "https":
        import ssl  # noqa: PLC0415  (takes its time)

        context = ssl.create_default_context(cadata=_trusted(authorities))
        connection = HTTPSConnection(parts.hostname, parts.port, context=context)
    with _connected(parts.hostname, connection.port, deadline) as plain:
        sock = plain
        if context is not None:
            plain.settimeout(deadline.left_s())
            sock = context.wrap_socket(plain, server_hostname=parts.hostname)
        with sock:
            connection.sock = _Timed(sock, answer_bytes_max, deadline)
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request("POST", target, body, headers)
            with connection.getresponse() as response:
                data = b""
                while piece := response.read1(answer_bytes_max):
                    data += piece
                return response.status, data


def _trusted(authorities: str) -> str | None:
    """The certificates of a file; None: those of the system are trusted. Raises OSError."""
    return pem_text(read_named(authorities)) if authorities else None


def _connected(host: str, port: int, deadline: Deadline) -> socket.socket:
    """A connection to one of a host's addresses, which share the time. Raises OSError."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except ValueError as error:  # No name of a host can be so.
        raise OSError("that is no address") from error
    for i, (family, kind, protocol, _, address) in enumerate(found, 1):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(deadline.left_s() / (len(found) - i + 1))
            sock.connect(address)
        except OSError:
            sock.close()
            if i == len(found):
                raise
        else:
            return sock
    raise OSError("it has no address")


class _Timed:
    """What http.client wants of a socket. Who has opened the socket closes it."""

    def __init__(self, sock: socket.socket, bytes_max: int, deadline: Deadline) -> None:
        self._socket, self._deadline = sock, deadline
        self._file = _TimedFile(sock, bytes_max, deadline)

    def sendall(self, data: bytes) -> None:
        """As of a socket."""
        while data:
            self._socket.settimeout(self._deadline.left_s())
            data = data[self._socket.send(data) :]

    def makefile(self, _mode: str) -> io.BufferedReader:
        """As of a socket."""
        return io.BufferedReader(self._file)

    def close(self) -> None:
        """Nothing: the answer may not be read yet."""


class _TimedFile(io.RawIOBase):
    """What a socket receives."""

    def __init__(self, sock: socket.socket, bytes_max: int, deadline: Deadline) -> None:
        super().__init__()
        self._socket, self._deadline = sock, deadline
        self._left_bytes = bytes_max

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, view: memoryview) -> int:  # type: ignore[override]
        """As of a file."""
        self._socket.settimeout(self._deadline.left_s())
        count = self._socket.recv_into(view)
        self._left_bytes -= count
        if self._left_bytes < 0:
            raise PeerError("the answer is too long")
        return count
