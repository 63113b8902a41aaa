"""A non-blocking link to another SMQ process: internal frames over a unix socket.

Frames that the other side has not taken are kept up to a bound: a stopped or hanging process blocks
no other, and its link is closed when it falls too far behind.
"""

import select
import socket
from collections import deque
from collections.abc import Callable
from pathlib import Path

from smq.app.process.loop import Loop
from smq.model.errors import PeerError
from smq.wire.internal.frames import InternalFrame, InternalReader

RECEIVE_BYTES = 1 << 18
TURN_BYTES = 1 << 20  # Sent before others are looked at.
JOINED_BYTES_MAX = 1 << 16  # Smaller pieces that wait go out together.
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
        self._unsent: deque[bytes | bytearray] = deque()
        self._unsent_bytes = 0
        self._is_sending = False  # The loop tells when the other side takes more.
        self._begun = 0  # So many bytes of the first one are sent.
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
        return self._unsent_bytes

    def send(self, *frame: bytes) -> None:
        """Send the pieces of one encoded frame, now or when the other side can take it."""
        if self.closed:
            return
        for piece in frame:
            self._unsent_bytes += len(piece)
            last = self._unsent[-1] if self._unsent else b""
            if len(piece) >= JOINED_BYTES_MAX:
                self._unsent.append(piece)  # Large ones are not copied.
            elif isinstance(last, bytearray) and len(last) + len(piece) <= TURN_BYTES:
                last += piece
            else:
                self._unsent.append(bytearray(piece))
        if not self._is_sending:
            self._flush()
        if self._unsent_bytes > UNSENT_BYTES_MAX:
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
        """Send a turn's share; the rest once the other side takes more."""
        end = self._unsent_bytes - TURN_BYTES
        try:
            while self._unsent_bytes > max(0, end):
                with memoryview(self._unsent[0]) as first:
                    sent = self._socket.send(first[self._begun : self._begun + TURN_BYTES])
                self._note_sent(sent)
        except BlockingIOError:
            pass
        except OSError:
            self._drop()
            return
        if self._is_sending != bool(self._unsent):
            self._is_sending = bool(self._unsent)
            wanted = select.EPOLLOUT if self._is_sending else 0
            self._loop.modify(self._socket.fileno(), select.EPOLLIN | wanted)

    def _note_sent(self, count: int) -> None:
        self._begun += count
        self._unsent_bytes -= count
        if self._begun == len(self._unsent[0]):
            self._unsent.popleft()
            self._begun = 0

    def _ready(self, events: int) -> None:
        if events & select.EPOLLOUT:
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
