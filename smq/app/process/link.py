"""A non-blocking link to another SMQ process: internal frames over a unix socket.

Frames that the other side has not taken are kept up to a bound: a stopped or hanging process blocks
no other, and its link is closed when it falls too far behind.
"""

import select
import socket
from collections.abc import Callable
from pathlib import Path

from smq.app.process.loop import Loop
from smq.model.errors import PeerError
from smq.wire.internal.frames import InternalFrame, InternalReader

RECEIVE_BYTES = 1 << 18
UNSENT_BYTES_MAX = 256 * 1024 * 1024  # Two of the largest requests, and some more.


class Link:
    """One end of a connection between two SMQ processes.

    `on_frame(link, frame)` is called for each whole frame, `on_close(link)` once, when the other
    side disconnects, breaks the protocol or falls behind; not after this side's close().
    """

    def __init__(
        self,
        loop: Loop,
        sock: socket.socket,
        on_frame: Callable[["Link", InternalFrame], None],
        on_close: Callable[["Link"], None],
    ) -> None:
        sock.setblocking(False)  # noqa: FBT003
        self._loop, self._socket = loop, sock
        self._on_frame, self._on_close = on_frame, on_close
        self._reader = InternalReader()
        self._unsent = bytearray()
        self.closed = False
        loop.register(sock.fileno(), select.EPOLLIN, self._ready)

    @classmethod
    def connect(
        cls,
        loop: Loop,
        path: Path,
        on_frame: Callable[["Link", InternalFrame], None],
        on_close: Callable[["Link"], None],
    ) -> "Link":
        """Connect to a listening unix socket. Raises OSError if no process listens there.

        The supervisor owns the listening sockets, so connecting succeeds at once, even while the
        process behind it restarts.
        """
        return cls(loop, loop.connect(path), on_frame, on_close)

    @property
    def unsent_bytes(self) -> int:
        """The bytes that the peer has not received yet."""
        return len(self._unsent)

    def send(self, frame: bytes) -> None:
        """Send one encoded frame, now or when the other side can take it."""
        if self.closed:
            return
        self._unsent += frame
        self._flush()
        if len(self._unsent) > UNSENT_BYTES_MAX:
            self._drop()

    def send_with_fd(self, frame: bytes, fd: int) -> None:
        """Send one frame with a descriptor. The socket must be able to take it now."""
        if not self.closed and not self._unsent:
            try:
                socket.send_fds(self._socket, [frame], [fd])
            except OSError:
                self._drop()

    def close(self) -> None:
        """Close this end."""
        if not self.closed:
            self.closed = True
            self._loop.unregister(self._socket.fileno())
            self._socket.close()

    def _drop(self) -> None:
        if not self.closed:
            self.close()
            self._on_close(self)

    def _flush(self) -> None:
        try:
            while self._unsent:
                sent = self._socket.send(self._unsent)
                del self._unsent[:sent]
        except BlockingIOError:
            self._loop.modify(self._socket.fileno(), select.EPOLLIN | select.EPOLLOUT)
        except OSError:
            self._drop()

    def _ready(self, events: int) -> None:
        if events & select.EPOLLOUT:
            self._loop.modify(self._socket.fileno(), select.EPOLLIN)
            self._flush()
        if events & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR) and not self.closed:
            self._receive()

    def _receive(self) -> None:
        try:
            data = self._socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop()
            return
        try:
            for frame in self._reader.receive(data):
                self._on_frame(self, frame)
                if self.closed:
                    return
        except PeerError:
            self._drop()
