"""A TLS connection with the manners of a plain socket.

A socket that cannot go on raises BlockingIOError, and one that says it is not readable has nothing
more to read: what OpenSSL has decrypted beyond what was asked for is given at once. Threads may
send and receive at the same time: OpenSSL's state has a lock.
"""

import ssl
import threading

_WOULD_BLOCK = (ssl.SSLWantReadError, ssl.SSLWantWriteError)


class TlsStream:
    """Wraps a connected SSLSocket; see socket.socket for its methods."""

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self._socket = sock
        self._lock = threading.Lock()

    def send(self, data: memoryview) -> int:
        """As much as the socket takes. Raises BlockingIOError, OSError."""
        try:
            with self._lock:
                return self._socket.send(data)
        except _WOULD_BLOCK as error:
            raise BlockingIOError from error

    def sendall(self, data: bytes) -> None:
        """All of it, waiting as long as the timeout allows."""
        with self._lock:
            self._socket.sendall(data)

    def recv(self, count: int) -> bytes:
        """About `count` bytes at most: a record that is decrypted is given whole."""
        try:
            with self._lock:
                data = self._socket.recv(count)
                while data and (pending := self._socket.pending()):
                    data += self._socket.recv(pending)
                return data
        except _WOULD_BLOCK as error:
            raise BlockingIOError from error

    def recv_into(self, buffer: memoryview) -> int:
        """As many bytes as there are, if the buffer has room for them."""
        with self._lock:
            return self._socket.recv_into(buffer)

    def settimeout(self, seconds: float) -> None:
        """See socket."""
        self._socket.settimeout(seconds)

    def setblocking(self, flag: bool) -> None:  # noqa: FBT001  (As a socket's.)
        """See socket."""
        self._socket.setblocking(flag)

    def setsockopt(self, level: int, option: int, value: int) -> None:
        """See socket."""
        self._socket.setsockopt(level, option, value)

    def fileno(self) -> int:
        """See socket."""
        return self._socket.fileno()

    def close(self) -> None:
        """See socket."""
        self._socket.close()
