"""A client's connection in a shard: bytes in, answers out in the order of the requests.

Answers stand in a queue of slots. A slot is filled when its answer is known and open when it may
be sent: produce answers open when their records have reached their level. Nothing behind a closed
slot is sent.
"""

import select
import socket
from collections import deque
from collections.abc import Callable

from smq.app.loop import Loop
from smq.app.receive import Rest
from smq.log.reading import DamagedFrame
from smq.shard.lent import Sendable

SLOW_DEADLINE_MS = 30_000  # A socket that takes nothing for so long holds WAL space no longer.
_WANT_READ = select.EPOLLIN | select.EPOLLRDHUP


class Slot:
    """Where one answer, or a run of produce answers, will stand."""

    __slots__ = ("is_open", "pieces")

    def __init__(self, pieces: list[bytes | Sendable] | None = None, *, is_open: bool) -> None:
        self.pieces: deque[bytes | memoryview | Sendable] = deque(pieces or ())
        self.is_open = is_open

    def fill(self, pieces: list[bytes | Sendable]) -> None:
        """The answer is known and may go."""
        self.pieces.extend(pieces)
        self.is_open = True


class Connection:
    """One client. `on_close(connection)` is called once, however it ends."""

    __slots__ = (
        "_blocked_timer",
        "_loop",
        "_on_close",
        "closed",
        "fd",
        "host",
        "is_closing",
        "last_used_ns",
        "rest",
        "slots",
        "socket",
        "waits",
    )

    def __init__(
        self,
        loop: Loop,
        sock: socket.socket,
        host: str,
        on_readable: Callable[["Connection"], None],
        on_close: Callable[["Connection"], None],
    ) -> None:
        self._loop, self._on_close = loop, on_close
        self.socket, self.fd, self.host = sock, sock.fileno(), host
        self.rest = Rest()
        self.slots: deque[Slot] = deque()
        self.waits: set[Callable[[], None]] = set()
        self.closed = self.is_closing = False
        self.last_used_ns = 0
        self._blocked_timer = None

        def ready(events: int) -> None:
            if events & select.EPOLLOUT and not self.closed:
                self._unblock()
            if events & ~select.EPOLLOUT and not self.closed:
                on_readable(self)

        loop.register(self.fd, _WANT_READ, ready)

    def flush(self) -> None:
        """Send what is open, as far as the socket takes it."""
        if self.closed or self._blocked_timer is not None:
            return
        try:
            while self.slots and self.slots[0].is_open:
                if not self._send_some(self.slots[0]):
                    return
        except (OSError, DamagedFrame):
            self.close()
            return
        if self.is_closing and not self.slots:
            self.close()

    def _send_some(self, slot: Slot) -> bool:
        """One sendmsg of the first slot; False: the socket is full."""
        buffers: list[bytes | memoryview] = []
        for piece in slot.pieces:
            if isinstance(piece, (bytes, memoryview)):
                buffers.append(piece)
            else:
                buffers.extend(piece.next_buffers())
                break  # What it lends is valid until the next call: send it first.
        try:
            sent = (
                self.socket.sendmsg(buffers) if len(buffers) > 1 else self.socket.send(buffers[0])
            )
        except BlockingIOError:
            self._block()
            return False
        self._advance(slot, sent)
        if not slot.pieces:
            self.slots.popleft()
        return True

    def _advance(self, slot: Slot, sent: int) -> None:
        while slot.pieces:
            piece = slot.pieces[0]
            if isinstance(piece, (bytes, memoryview)):
                if sent < len(piece):
                    if sent:
                        slot.pieces[0] = memoryview(piece)[sent:]
                    return
                sent -= len(piece)
            else:
                if not piece.advance(sent):
                    return
                piece.release()
                sent = 0
            slot.pieces.popleft()

    def _block(self) -> None:
        """Wait until the socket takes more; keep what is left from being recycled meanwhile."""
        for piece in (piece for slot in self.slots for piece in slot.pieces):
            if not isinstance(piece, (bytes, memoryview)):
                piece.hold()
        self._loop.modify(self.fd, _WANT_READ | select.EPOLLOUT)
        self._blocked_timer = self._loop.call_later(SLOW_DEADLINE_MS, self.close)

    def _unblock(self) -> None:
        if self._blocked_timer is not None:
            self._blocked_timer.cancel()
            self._blocked_timer = None
        self._loop.modify(self.fd, _WANT_READ)
        self.flush()

    def close_after_answers(self) -> None:
        """Take no more requests; close when what was asked before is answered."""
        self.is_closing = True
        if not self.slots:
            self.close()

    def close(self) -> None:
        """Close now; whatever was lent is released."""
        if self.closed:
            return
        self.closed = True
        if self._blocked_timer is not None:
            self._blocked_timer.cancel()
        for slot in self.slots:
            for piece in slot.pieces:
                if not isinstance(piece, (bytes, memoryview)):
                    piece.release()
        self.slots.clear()
        self._loop.unregister(self.fd)
        self.socket.close()
        self._on_close(self)
