"""A client's connection in a shard: bytes in, answers out in the order of the requests.

Answers stand in a queue of slots. A slot is filled when its answer is known and open when it may
be sent: produce answers open when their records have reached their level. Nothing behind a closed
slot is sent.
"""

import select
import socket
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from shm.kernels.turn_words import LOOPS
from smq.app.loop import Loop, Timer
from smq.app.receive import Rest
from smq.log.reading import DamagedFrame
from smq.shard.lent import Sendable
from smq.shard.references import Patience

if TYPE_CHECKING:
    from smq.app.long_polls import LongPoll

SLOW_DEADLINE_MS = 30_000  # A socket that takes nothing for so long holds WAL space no longer …
SLOW_BYTES_PER_MS = 256  # … nor one that takes less than this of all that was asked.
SLOTS_MAX = 256  # Answers that a client has not read yet; then we read no more requests.
COPIED_BYTES_MAX = 16 * 1024  # What is lent and no larger is copied: it costs less than a sendmsg.
_READ = select.EPOLLIN | select.EPOLLRDHUP


class Slot:
    """Where one answer, or a run of produce answers, will stand. What is lent to it is held."""

    __slots__ = ("is_open", "pieces")

    def __init__(self, pieces: Iterable[bytes | Sendable] = (), *, is_open: bool) -> None:
        self.pieces: deque[bytes | memoryview | Sendable] = deque(pieces)
        self.is_open = is_open
        for piece in self.lent():
            piece.hold()

    def fill(self, pieces: Iterable[bytes | Sendable]) -> None:
        """The answer is known and may go. Raises DamagedFrame, OSError."""
        run: list[bytes] = []
        for piece in pieces:
            if isinstance(piece, bytes):
                run.append(piece)
                continue
            # A few bytes are copied, if all of them are in memory.
            copy = b"".join(piece.next_buffers()) if piece.length <= COPIED_BYTES_MAX else b""
            if len(copy) == piece.length:
                run.append(copy)
                piece.release()
            else:
                piece.hold()
                self.pieces += (b"".join(run), piece)
                run = []
        if run:
            self.pieces.append(b"".join(run))
        self.is_open = True

    def lent(self) -> list[Sendable]:
        """What is lent to it."""
        return [piece for piece in self.pieces if not isinstance(piece, (bytes, memoryview))]


class Owner(Protocol):
    """Who serves the connection."""

    def readable(self, connection: "Connection") -> None:
        """There is something to receive."""

    def resumable(self, connection: "Connection") -> None:
        """The connection was full and is no more: take what was received before."""

    def gone(self, connection: "Connection") -> None:
        """It is closed; called once, however it ends."""


class Connection:
    """One client.

    While the client does not read its answers, or very many are due, we do not read its requests.
    """

    __slots__ = (
        "_deadline",
        "_events",
        "_is_blocked",
        "_is_loading",
        "_loop",
        "_muted",
        "_owner",
        "acks_due",
        "closed",
        "fd",
        "host",
        "is_closing",
        "is_held",
        "last_used_ns",
        "patience",
        "polls",
        "rest",
        "slots",
        "socket",
    )

    def __init__(self, loop: Loop, sock: socket.socket, host: str, owner: Owner) -> None:
        self._loop, self._owner = loop, owner
        self.socket, self.fd, self.host = sock, sock.fileno(), host
        self.rest = Rest()
        self.slots: deque[Slot] = deque()
        self.polls: set[LongPoll] = set()
        self.closed = self.is_closing = self._is_blocked = self._is_loading = False
        self.is_held = False  # The next request waits for the acks that are due.
        self.acks_due = self.last_used_ns = 0
        self.patience = Patience()
        self._deadline: Timer | None = None
        self._muted: Timer | None = None
        self._events = _READ

        def ready(events: int) -> None:
            if events & (select.EPOLLHUP | select.EPOLLERR) and not self._events & _READ:
                self.close()
            if events & select.EPOLLOUT and not self.closed:
                self._unblock()
            if events & ~select.EPOLLOUT and not self.closed:
                owner.readable(self)

        loop.register(self.fd, self._events, ready)

    @property
    def is_full(self) -> bool:
        """Whether answers must go out before we take more requests."""
        return (
            self._is_blocked
            or self.is_held
            or len(self.slots) >= SLOTS_MAX
            or self._muted is not None
        )

    @property
    def standing(self) -> int:
        """What a kernel may do for it: see `clients` of shm.kernels.turn_words.

        It may take requests if the connection holds no part of one, waits for no answer, and may
        send more.
        """
        is_busy = self.slots or self.rest.copied or self.rest.buffer
        may_not = self.is_closing or self.closed or self._muted
        return LOOPS if is_busy or may_not else self.last_used_ns

    def pause_if_full(self) -> None:
        """Called after each read: stop reading while the connection is full."""
        if self.is_full and not self.closed and self._events & _READ:
            self._listen_to(self._events & ~_READ)

    def mute(self, delay_ms: int) -> None:
        """Take no requests for a while; answers go out."""

        def unmute() -> None:
            self._muted = None
            self._resume()

        if self._muted is not None:
            self._muted.cancel()
        self._muted = self._loop.call_later(delay_ms, unmute)

    def _listen_to(self, events: int) -> None:
        if events != self._events:
            self._events = events
            self._loop.modify(self.fd, events)

    def flush(self) -> None:
        """Send what is open, as far as the socket takes it."""
        if self.closed or self._is_blocked or self._is_loading:
            return
        try:
            while self.slots and self.slots[0].is_open:
                if not self._send_some(self.slots[0]):
                    return
        except (OSError, DamagedFrame):
            self.close()
            return
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if self.is_closing and not self.slots:
            self.close()
        elif not self._events & _READ and not self.is_full:
            self._loop.call_later(0, self._resume)

    def _resume(self) -> None:
        if not self.closed and not self._events & _READ and not self.is_full:
            self._listen_to(self._events | _READ)
            self._owner.resumable(self)

    def _send_some(self, slot: Slot) -> bool:
        """One sendmsg of the first slot; False: the socket is full, or bytes are on the disk."""
        buffers: list[bytes | memoryview] = []
        for piece in slot.pieces:
            if isinstance(piece, (bytes, memoryview)):
                buffers.append(piece)
            else:
                buffers.extend(piece.next_buffers())
                if not buffers:
                    self._load(piece)
                    return False
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
        """Wait until the socket takes more."""
        lent = [piece for slot in self.slots for piece in slot.lent()]
        for piece in lent:
            piece.pause()
        self._is_blocked = True
        self._listen_to(select.EPOLLOUT)
        if self._deadline is None:
            slow_ms = sum(piece.length for piece in lent) // SLOW_BYTES_PER_MS
            self._deadline = self._loop.call_later(SLOW_DEADLINE_MS + slow_ms, self.close)

    def _load(self, piece: Sendable) -> None:
        """Go on when the next bytes have come from the disk; nobody else waits for it."""

        def ready() -> None:
            self._is_loading = False
            self.flush()

        self._is_loading = True
        piece.load(ready)

    def _unblock(self) -> None:
        self._is_blocked = False
        self.flush()
        if not self._is_blocked and not self.closed:  # Else the socket is full again.
            self._listen_to(self._events & ~select.EPOLLOUT)

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
        for timer in (self._deadline, self._muted):
            if timer is not None:
                timer.cancel()
        for slot in self.slots:
            for piece in slot.lent():
                piece.release()
        self.slots.clear()
        self._loop.unregister(self.fd)
        self.socket.close()
        self._owner.gone(self)
