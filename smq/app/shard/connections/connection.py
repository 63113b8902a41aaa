"""A client's connection in a shard: bytes in, answers out in the order of the requests.

Answers wait in a queue of slots. A slot is filled when its answer is known, and open when it may be
sent: produce answers open when their records have reached their level. Nothing after a closed slot
is sent. While the socket is full, only the first slot holds loans; a client that does not take its
answers is disconnected, and holds little until then.
"""

import select
from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from shm.kernels.turn.words import LIMITED, LOOPS
from smq.app.process.loop import Loop, Timer
from smq.app.shard.connections.receive import Rest
from smq.app.shard.connections.tls_socket import TlsSocket
from smq.log.reading import DamagedFrame
from smq.security.caller import Caller
from smq.shard.loans import Loan, Sendable
from smq.shard.references import BadHandleLimit
from smq.wire.codec import joined

if TYPE_CHECKING:
    import socket

    from gateway.login import Login, LoginSession
    from smq.app.shard.connections.request_times import Timing
    from smq.app.shard.waiting.long_polls import LongPoll
    from smq.shard.quotas import ClientLimits

PROGRESS_MS = 30_000  # While answers are stuck, in each such interval the client must take …
PROGRESS_BYTES = 256 * 1024  # … this much: far less than Kafka's clients need for their timeouts.
# Unanswered requests to the coordinator for one client; waiting large fetches count as bytes too,
# and a request whose answer may be large counts as all of them.
# Kafka takes one request at a time from a connection; clients keep five in flight.
RELAYED_MAX, RELAYED_BYTES_MAX = 8, 1024 * 1024
# One client's share of a turn, in bytes of answers made for it. A request's bytes, and each
# request, count for the work they may cause.
SHARE = 64 * 1024
REQUEST_COST, REQUEST_BYTE_COST = 1024, 32
SLOTS_MAX = 256  # Answers that a client has not read yet; then we read no more requests.
UNSENT_BYTES_MAX = 4 * 1024 * 1024  # Known answers; beyond this, send before reading on.
TURN_BYTES = 128 * 1024  # Sent to one client before others are looked at: they wait as long.
COPIED_BYTES_MAX = 16 * 1024  # Loans up to this size are copied: that costs less than a sendmsg.
BUFFERS_MAX = 64  # Pieces given to one sendmsg: some megabytes. The system takes 1024 buffers.
SLOT_COPIED_MAX = 256 * 1024  # Of one answer: a client that reads nothing holds no more than this.
_READ = select.EPOLLIN | select.EPOLLRDHUP


class Slot:
    """The place of one answer, or of a run of produce answers. `length` is 0 until it is known.

    loan         what the answer holds, from when it is begun until it is sent or given up
    is_sending   it is the first one and needs several sends: it holds all that it needs
    is_waiting   its turn has not come: it holds segments, and no files
    timing       the times of its request, if they are counted
    """

    __slots__ = ("is_open", "is_sending", "is_waiting", "length", "loan", "pieces", "timing")

    def __init__(self, pieces: Iterable[bytes | Sendable] = (), *, is_open: bool) -> None:
        self.pieces: deque[bytes | memoryview | Sendable] = deque(pieces)
        self.is_open, self.is_sending, self.is_waiting = is_open, False, False
        self.loan, self.length = Loan(), 0
        self.timing: Timing | None = None
        for piece in self.pieces:
            self.length += _length(piece)
            if not isinstance(piece, (bytes, memoryview)):
                self._wait(piece)

    def fill(self, pieces: Iterable[bytes | Sendable]) -> None:
        """Take the answer, which is known now. Raises DamagedFrame, OSError."""
        run: list[bytes] = []
        lent: list[Sendable] = []
        copied_bytes = 0
        for piece in pieces:
            self.length += _length(piece)
            if isinstance(piece, bytes):
                run.append(piece)
                continue
            # A few bytes are copied, if all of them are in memory.
            is_short = piece.length <= min(COPIED_BYTES_MAX, SLOT_COPIED_MAX - copied_bytes)
            copy = b"".join(piece.next_buffers()) if is_short else b""
            if len(copy) == piece.length:
                run.append(copy)
                copied_bytes += len(copy)
            else:
                self.pieces += (*joined(run), piece)
                lent.append(piece)
                run = []
        self.pieces += joined(run)
        self.loan.release()  # What was held while it was made; some of it is copied now.
        for piece in lent:
            self._wait(piece)
        self.open()

    def _wait(self, piece: Sendable) -> None:
        self.loan.wait(piece)
        self.is_waiting = True

    def open(self) -> None:
        """It may go."""
        self.is_open = True
        if self.timing is not None:
            self.timing.answered()

    def hold(self) -> None:
        """Begin to send it in several parts. Raises OSError."""
        if not self.is_sending:
            self.is_sending = True
            for piece in self.lent():
                self.loan.hold(piece)

    def rest(self) -> None:
        """Hold nothing for now: the socket takes nothing of it."""
        self.is_sending = self.is_waiting = False
        self.loan.rest()

    def release(self) -> None:
        """It is sent or given up."""
        self.is_sending = self.is_waiting = False
        self.loan.release()

    def lent(self) -> list[Sendable]:
        """The pieces that are not bytes."""
        return [piece for piece in self.pieces if not isinstance(piece, (bytes, memoryview))]


def _length(piece: "bytes | memoryview | Sendable") -> int:
    return len(piece) if isinstance(piece, (bytes, memoryview)) else piece.length


class ConnectionOwner(Protocol):
    """Serves the connection."""

    def readable(self, connection: "Connection") -> None:
        """There is something to receive."""

    def resumable(self, connection: "Connection") -> None:
        """The connection is no longer full: take the requests received before."""

    def gone(self, connection: "Connection") -> None:
        """The connection is closed. Called once, however it ends."""


class Connection:
    """One client.

    While the client does not read its answers, or very many are due, we read no requests.
    """

    __slots__ = (
        "_counted",
        "_events",
        "_is_blocked",
        "_is_loading",
        "_loop",
        "_muted",
        "_owner",
        "_progress",
        "_sent_bytes",
        "_taken_before",
        "_unsent_bytes",
        "acks_due",
        "caller",
        "client_id",
        "closed",
        "fd",
        "is_closing",
        "is_held",
        "is_limited",
        "last_used_ns",
        "limits",
        "login",
        "needs_loop",
        "patience",
        "polls",
        "relayed_bytes",
        "relayed_count",
        "rest",
        "session",
        "slots",
        "socket",
        "spent",
        "tls",
        "working",
    )

    def __init__(
        self,
        loop: Loop,
        sock: "socket.socket | TlsSocket",
        caller: Caller,
        owner: ConnectionOwner,
    ) -> None:
        self._loop, self._owner = loop, owner
        self.socket, self.fd, self.caller = sock, sock.fileno(), caller
        self.tls = sock if isinstance(sock, TlsSocket) else None
        self.login: Login | None = None  # While it goes on, or goes on again.
        self.session: LoginSession | None = None  # Once it has logged in by SASL.
        self.needs_loop = False  # No kernel may serve it: it is encrypted, unknown or expired.
        self.rest = Rest()
        self.slots: deque[Slot] = deque()
        self.polls: set[LongPoll] = set()
        self.closed = self.is_closing = self._is_blocked = self._is_loading = False
        self.is_held = False  # The next request waits for the acks that are due.
        self.working = 0  # Answers that are made in parts; the next request waits for them.
        self.acks_due = self.last_used_ns = 0
        self.relayed_count = self.relayed_bytes = self.spent = 0
        self.patience = BadHandleLimit()
        self.client_id: str | None = None  # Once it is known.
        self.limits: ClientLimits | None = None
        self.is_limited = False  # It has limits, or may have: see limited.py.
        self._sent_bytes = self._taken_before = 0
        self._counted: deque[int] = deque()  # The lengths of the first slots: they sum up to …
        self._unsent_bytes = 0
        self._progress: Timer | None = None  # While answers are stuck.
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

    def invariants(self) -> None:
        """Raise AssertionError if the answers break an invariant."""
        behind = list(self.slots)[1:]
        assert not any(slot.is_sending for slot in behind)
        assert not (self._is_blocked and any(slot.is_waiting for slot in behind))
        assert self._unsent_bytes == sum(self._counted)
        assert len(self._counted) <= len(self.slots)
        assert not (self._is_blocked and self._progress is None and not self.closed)

    @property
    def is_full(self) -> bool:
        """Whether answers must go out before we take more requests."""
        return (
            self._is_blocked
            or self.is_held
            or self.working > 0
            or self.relayed_count >= RELAYED_MAX
            or self.relayed_bytes >= RELAYED_BYTES_MAX
            or len(self.slots) >= SLOTS_MAX
            or self._muted is not None
            or self._owes_much()
        )

    def _owes_much(self) -> bool:
        """Whether the answers known by now are large. Each is examined once, when it is the last:
        later ones were requested earlier."""
        for i in range(len(self._counted), len(self.slots)):
            self._counted.append(self.slots[i].length)
            self._unsent_bytes += self._counted[-1]
        return self._unsent_bytes >= UNSENT_BYTES_MAX

    @property
    def standing(self) -> int:
        """What a kernel may do for this connection: see `clients` of shm.kernels.turn.words.

        It may take requests if the connection holds no part of one, waits for no answer, and may
        send more. Those of a client that may not do everything it takes by bitmaps.
        """
        is_busy = self.slots or self.rest.copied or self.rest.buffer
        may_not = (
            self.is_closing or self.closed or self._muted or self.is_limited or self.needs_loop
        )
        if is_busy or may_not:
            return LOOPS
        return self.last_used_ns if self.caller.rights.is_unlimited else LIMITED

    def pause_if_full(self) -> None:
        """Called after each read: stop reading while the connection is full.

        One that waits for the coordinator reads on until a request waits behind: otherwise a
        disconnect would go unnoticed.
        """
        holds = self.rest.received_bytes or (self.tls is not None and self.tls.wants_turn)
        waits_alone = self.relayed_count and not holds
        if self.is_full and not waits_alone and not self.closed and self._events & _READ:
            self._listen_to(self._events & ~_READ)

    @property
    def held_bytes(self) -> int:
        """The memory of its answers: what is lent is not its own."""
        pieces = (piece for slot in self.slots for piece in slot.pieces)
        return sum(len(each) for each in pieces if isinstance(each, (bytes, memoryview)))

    def charge(self, request_bytes: int) -> None:
        """Count the cost of a taken request, and of its answer if that is made."""
        self.spent += REQUEST_COST + REQUEST_BYTE_COST * request_bytes
        if self.slots:
            pieces = self.slots[-1].pieces
            self.spent += sum(len(each) for each in pieces if isinstance(each, (bytes, memoryview)))

    def end_share(self) -> None:
        """Stop taking requests in this turn once it has had its share."""
        if self.spent >= SHARE and not self.is_full and not self.closed:
            self.mute(0)

    def mute(self, delay_ms: int) -> None:
        """Take no requests for this long, unless muted for longer already; answers go out."""

        def unmute() -> None:
            self._muted = None
            self.resume()

        self._muted = self._loop.call_no_sooner(self._muted, delay_ms, unmute)

    def throttle(self, delay_ms: int) -> None:
        """Mute it for what it owes, if anything (KIP-219)."""
        if delay_ms > 0 and not self.closed:
            self.mute(delay_ms)

    def owed_ms(self) -> int:
        """The remaining throttle time."""
        return 0 if self._muted is None else self._muted.left_ms()

    def _listen_to(self, events: int) -> None:
        if events != self._events:
            self._events = events
            self._loop.modify(self.fd, events)

    def flush(self) -> None:
        """Send open answers as far as the socket takes them."""
        if not self._may_send():
            return
        try:
            if not self._send_turn():
                return
        except (OSError, DamagedFrame):
            self.close()
            return
        if self._progress is not None:
            self._progress.cancel()
            self._progress = None
        if self.is_closing and not self.slots:
            self.close()
        elif not self._events & _READ and not self.is_full:
            self._loop.call_later(0, self.resume)

    def _may_send(self) -> bool:
        if self._is_blocked:
            self._release_behind()  # What was answered meanwhile.
        return not (self.closed or self._is_blocked or self._is_loading)

    def resume(self) -> None:
        """Read on, unless it is full still, and take the requests received before."""
        if not self.closed and not self._events & _READ and not self.is_full:
            self._listen_to(self._events | _READ)
            self._owner.resumable(self)

    def _send_turn(self) -> bool:
        """Send a turn's share; returns whether all open answers went out."""
        end = self._sent_bytes + TURN_BYTES
        while self.slots and self.slots[0].is_open:
            if self._sent_bytes >= end:  # It reads as fast as we send, for ever.
                self._block(self.slots[0])
                return False
            if not self._send_some(self.slots[0]):
                return False
        return self.tls is None or self._flush(self.tls)

    def _flush(self, tls: TlsSocket) -> bool:
        """Whether the socket has taken all ciphertext."""
        try:
            tls.flush()
        except BlockingIOError:
            self._block()
            return False
        return True

    def _send_some(self, slot: Slot) -> bool:
        """One sendmsg of the first slot; False: the socket is full, or bytes are on the disk."""
        buffers: list[bytes | memoryview] = []
        for piece in islice(slot.pieces, BUFFERS_MAX):
            if isinstance(piece, (bytes, memoryview)):
                buffers.append(piece)
            else:
                buffers.extend(piece.next_buffers())
                if not buffers:
                    self._load(slot, piece)
                    return False
                break  # What it lends is valid until the next call: send it first.
        try:
            sent = (
                self.socket.sendmsg(buffers) if len(buffers) > 1 else self.socket.send(buffers[0])
            )
        except BlockingIOError:
            self._block(slot)
            return False
        self._sent_bytes += sent
        self._advance(slot, sent)
        if not slot.pieces:
            if slot.timing is not None:
                slot.timing.sent()
            slot.release()
            self.slots.popleft()
            if self._counted:
                self._unsent_bytes -= self._counted.popleft()
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
                sent = 0
                slot.loan.end(piece)
            slot.pieces.popleft()

    def _block(self, slot: Slot | None = None) -> None:
        """Wait until the socket takes more of this slot, the first one, or of what was encrypted
        before."""
        if slot is not None:
            slot.hold()
            for piece in slot.pieces:
                if not isinstance(piece, (bytes, memoryview)):
                    piece.pause()
                    break  # No other slot holds loans while stuck.
        self._is_blocked = True
        self._release_behind()
        self._listen_to(select.EPOLLOUT)
        if self._progress is None:
            self._watch_progress()

    def _release_behind(self) -> None:
        for slot in islice(self.slots, 1, None):
            if slot.is_waiting:
                slot.rest()

    def _watch_progress(self) -> None:
        self._taken_before = self.taken_bytes()
        self._progress = self._loop.call_later(PROGRESS_MS, self._look_at_progress)

    def _look_at_progress(self) -> None:
        """Close unless the client has taken enough since the last check, or waits for our disk."""
        taken_bytes = self.taken_bytes() - self._taken_before
        if self._is_blocked and taken_bytes < PROGRESS_BYTES:
            self.close()
        else:
            self._watch_progress()

    def taken_bytes(self) -> int:
        """How many bytes have reached the client's host: those in our socket buffer have not."""
        return self._sent_bytes - self._loop.unsent_bytes(self.fd)

    def _load(self, slot: Slot, piece: Sendable) -> None:
        """Continue once the next bytes have been read from disk; no other client waits for that."""

        def ready() -> None:
            self._is_loading = False
            self.flush()

        slot.hold()
        self._is_loading = True
        piece.load(ready)

    def _unblock(self) -> None:
        self._is_blocked = False
        self.flush()
        if not self._is_blocked and not self.closed:  # Else the socket is full again.
            self._listen_to(self._events & ~select.EPOLLOUT)

    def close_after_answers(self) -> None:
        """Take no more requests; close once earlier ones are answered."""
        self.is_closing = True
        if not self.slots:
            self.close()

    def close(self) -> None:
        """Close now; release all loans."""
        if self.closed:
            return
        self.closed = True
        for timer in (self._progress, self._muted):
            if timer is not None:
                timer.cancel()
        for slot in self.slots:
            slot.release()
        self.slots.clear()
        self._counted.clear()
        self._unsent_bytes = 0
        self._loop.unregister(self.fd)
        self.socket.close()
        self._owner.gone(self)
