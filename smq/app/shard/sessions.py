"""The local door of a shard: programs on this host that attach, and their sessions.

    hello ─(credentials, cluster, node, limits)→ answer with descriptors → a session

Produce requests come through a session's inbox and are then handled like those from a socket. A
session also names partitions that it reads itself in the logs' memory; the shard rings it when one
of them moves. Without sessions none of this costs a turn anything.
"""

import os
import select
import socket
from collections.abc import Callable, Iterable
from typing import Protocol

import numpy as np

from shm.kernels.base.words import P_NUMBER
from shm.kernels.turn.words import LOOPS
from shm.peer import Peer, peer_of
from shm.session import SessionMemory
from smq.app.process.acceptor import Acceptor
from smq.app.process.clock import monotonic_ns
from smq.app.process.loop import Loop, Timer
from smq.app.shard.session import Session
from smq.app.shard.session_table import SessionTable
from smq.model.config import FRAME_OVERHEAD_BYTES, Config
from smq.model.errors import PeerError
from smq.model.setting import KiB, MiB
from smq.shard.produce import Produced
from smq.shard.shard import Shard
from smq.wire.attach import HELLO_BYTES, AttachReply, Hello

INBOX_BYTES_MIN = 4 * MiB  # Several batches of a megabyte in flight; unused pages take no memory.
ANSWERS_BYTES = 256 * KiB  # To 2,000 requests. A client that takes none is no longer served.
TAKE_BYTES = 1 * MiB  # Per session and turn, unless one request is larger: as one recv.
HELLO_MS_MAX = 1000
LOOK_OVER_MS = 500  # While there are sessions; a harmful one is dropped within a second.
ATTACHING_MAX = 64  # Programs that have sent no hello yet: each takes a descriptor.
SPIN_ROUNDS = 200  # Some microseconds: then sockets and timers have their turn.


class Producer(Protocol):
    """Handles the requests: the shard's server."""

    @property
    def sessions(self) -> SessionTable:
        """The sessions that a kernel serves."""

    def produce(
        self, session: Session, data: np.ndarray, end: int, first: Produced | None = None
    ) -> str:
        """Take the whole requests in data[:end]; returns "" or their error.

        `first` is their result so far.
        """

    def take_awake(self) -> bool:
        """Have the kernel check the awake sessions; False: it found nothing."""

    def note(self, client: Session) -> None:
        """The loop has touched this session."""

    def forget(self, session: Session) -> None:
        """Forget a closed session."""


def inbox_bytes(config: Config) -> int:
    """The inbox's size: twice the largest batch with its request, or several smaller ones.

    It leaves a compressing producer room for growth, a sixth at most. Topics may allow larger
    batches than the broker does: these do not fit, since kernels take no such inbox, and their
    senders use a socket.
    """
    batch = config.message_max_bytes + config.message_max_bytes // 6
    request = batch + FRAME_OVERHEAD_BYTES + 64 * KiB
    return max(INBOX_BYTES_MIN, 1 << (2 * request - 1).bit_length())


class Sessions:
    """All sessions of a shard.

    `descriptors` go to every client, beside its own memory. Invariant: a session is asleep, in
    `_awake`, full, or closed.
    """

    def __init__(
        self,
        loop: Loop,
        identity: Hello,
        shard: Shard,
        descriptors: list[int],
        producer: Producer,
    ) -> None:
        self._loop, self._identity, self._producer = loop, identity, producer
        self._logs, self._descriptors, self._table = shard.logs, descriptors, producer.sessions
        self._spin_until_ns = 0
        self.take_settings(shard.config)
        self._scratch = np.zeros(0, np.uint8)
        self._sessions: set[Session] = set()
        self._attaching: set[socket.socket] = set()
        self._awake: dict[Session, None] = {}  # In order.
        self._watchers: dict[int, set[Session]] = {}
        self._watch_all: set[Session] = set()
        self._acceptor: Acceptor | None = None
        self._over: Timer | None = None
        self.notices: list[str] = []
        self.tell_notices: Callable[[], None] = lambda: None

    def take_settings(self, config: Config) -> None:
        """Use other settings from now on. Attached programs keep theirs."""
        self._inbox_bytes, self._max = inbox_bytes(config), config.max_sessions
        self._spin_ns = 1000 * config.session_spin_us

    # --- attaching -------------------------------------------------------------------------------

    def listen(self, listener: socket.socket) -> None:
        """Accept clients on a listening unix socket."""
        self._acceptor = Acceptor(self._loop, listener, self._accepted)

    def _accepted(self, sock: socket.socket, _address: str) -> None:
        if len(self._attaching) >= ATTACHING_MAX:
            sock.close()
            return
        self._attaching.add(sock)
        self._loop.register(sock.fileno(), select.EPOLLIN, lambda _: self._greet(sock))
        self._loop.call_later(HELLO_MS_MAX, lambda: self._give_up(sock))

    def _turn_away(self, sock: socket.socket) -> None:
        """Refuse this program."""
        if sock in self._attaching:
            self._attaching.discard(sock)
            self._loop.unregister(sock.fileno())
            sock.close()

    def _greet(self, sock: socket.socket) -> None:
        """Answer a hello."""
        peer = peer_of(sock)
        try:
            said = sock.recv(HELLO_BYTES)
            refusal = self._refusal(Hello.decode(said), peer) if said else ""
            if refusal:
                self._may_not(sock, refusal)
                sock.send(AttachReply(0, refusal).encode())
            elif said:  # Else it has hung up.
                self._begin(sock, peer.pid)
        except OSError:
            pass
        except PeerError as reason:
            self._may_not(sock, str(reason))
        finally:
            self._turn_away(sock)

    def _give_up(self, sock: socket.socket) -> None:
        if sock in self._attaching:
            self._may_not(sock, f"it has said nothing for {HELLO_MS_MAX} ms")
            self._turn_away(sock)

    def _may_not(self, sock: socket.socket, reason: str) -> None:
        pid, uid = peer_of(sock)
        self._note(f"process {pid} of user {uid} may not attach: {reason}")

    def _refusal(self, hello: Hello, peer: Peer) -> str:
        if not peer.is_ours:
            return "this broker belongs to another user"
        if hello != self._identity:
            return "this is another broker or node"
        if len(self._sessions) >= self._max:
            return f"{self._max} programs are attached already, as many as max.sessions allows"
        return ""

    def _begin(self, sock: socket.socket, pid: int) -> None:
        """Hand over the descriptors. Raises OSError if that is not possible at once."""
        memory = SessionMemory.create(self._inbox_bytes, ANSWERS_BYTES)
        descriptors = [memory.fd, *self._descriptors]
        try:
            socket.send_fds(sock, [AttachReply(len(descriptors)).encode()], descriptors)
        finally:
            os.close(memory.fd)
        if len(self._scratch) < memory.request_bytes_max or not len(self._scratch):
            self._scratch = np.zeros(max(TAKE_BYTES, memory.request_bytes_max), np.uint8)
        self._attaching.discard(sock)
        self._loop.unregister(sock.fileno())
        session = Session(self._loop, sock, pid, memory, self)
        self._sessions.add(session)
        self._table.add(session)
        if len(self._sessions) == 1:
            self._loop.turn_ends.append(self._end_turn)
            self._over = self._loop.call_later(LOOK_OVER_MS, self._look_over)
        self.wake(session)

    # --- requests --------------------------------------------------------------------------------

    def take(self, session: Session) -> bool:
        """See Owner."""
        changed = session.memory.watch_has_changed()
        if changed:
            self._watch(session)
        if session.is_full or session.is_closing:
            session.is_stalled = True
            return changed
        size = session.take_requests(self._scratch)
        if size:
            if self._spin_ns:
                self._spin_until_ns = monotonic_ns() + self._spin_ns
            self._produce(session, self._scratch, size)
        self.wake(session)
        return changed or size > 0

    def produced(self, session: Session, data: np.ndarray, end: int, first: Produced) -> None:
        """See Door."""
        self._produce(session, data, end, first)
        self.wake(session)

    def _produce(
        self, session: Session, data: np.ndarray, end: int, first: Produced | None = None
    ) -> None:
        wrong = self._producer.produce(session, data, end, first)
        if wrong:
            session.drop(wrong)
        self._producer.note(session)

    def wake(self, session: Session) -> None:
        """See Owner."""
        session.is_stalled = False
        self._awake[session] = None
        self._producer.note(session)

    def hand_over(self) -> None:
        """See Door."""
        awake, self._awake = self._awake, {}
        for session in awake:
            if session.standing == LOOPS:
                self._awake[session] = None
            else:
                self._table.awake |= 1 << session.row

    def take_back(self) -> None:
        """See Door."""
        for session in self._table.of(self._table.awake):
            self.wake(session)
        self._table.awake = 0
        self._spin_until_ns = max(self._spin_until_ns, self._table.spin_until_ns)

    def _end_turn(self) -> None:
        """Let sessions with an empty inbox sleep; the next turn checks the others.

        While we spin, none sleeps, so that none has to ring.
        """
        if not self._awake:
            return
        awake, self._awake = self._awake, {}
        for session in awake:
            if session.is_full:
                session.is_stalled = True
            elif not session.closed and (self._is_spinning() or not session.fall_asleep()):
                self._awake[session] = None
        if self._awake:
            self._loop.call_later(0, self._look)

    def _is_spinning(self) -> bool:
        return self._spin_ns > 0 and monotonic_ns() < self._spin_until_ns

    def _look(self) -> None:
        if self._producer.take_awake() or not self._awake:
            return
        awake = list(self._awake)
        if self._is_spinning():
            any(session.spin(SPIN_ROUNDS // len(awake) + 1) for session in awake)
        for session in awake:
            if not session.closed:
                self.take(session)

    def _look_over(self) -> None:
        """Check all sessions: garbage comes without a bell, and a bell may be lost."""
        self._over = self._loop.call_later(LOOK_OVER_MS, self._look_over)
        for session in list(self._sessions):
            session.check()
            if not session.closed:
                self.take(session)

    # --- what they watch -------------------------------------------------------------------------

    def _watch(self, session: Session) -> None:
        """Apply a session's published list: watch new partitions, and drop those that left it."""
        watched = session.memory.watched()
        self._watch_everything(session, wanted=watched is None)
        wanted = watched or set()
        for number in session.watched - wanted:
            self._unwatch(session, number)
        for number in wanted - session.watched:
            self._watchers.setdefault(number, set()).add(session)
            self._table.watch(session, number, self._slot_of(number))
        session.watched = wanted
        session.tell_event()  # It may have moved between the client's check and ours.

    def _watch_everything(self, session: Session, *, wanted: bool) -> None:
        if wanted:
            self._watch_all.add(session)
        else:
            self._watch_all.discard(session)
        self._table.watch_everything(session, wanted=wanted)

    def _unwatch(self, session: Session, number: int) -> None:
        self._table.unwatch(session, number)
        watchers = self._watchers[number]
        watchers.remove(session)
        if not watchers:
            del self._watchers[number]

    def _slot_of(self, number: int) -> int | None:
        """The slot of a partition led here. (A kernel serves one log only.)"""
        for log in self._logs.values():
            if (slot := log.partitions.slots.get(number)) is not None:
                return slot
        return None

    @property
    def is_watching(self) -> bool:
        """See Door."""
        is_listed = all(session.row >= 0 for session in self._sessions)
        return not is_listed and bool(self._watchers or self._watch_all or self._awake)

    def moved(self, places: Iterable[tuple[int, int]]) -> None:
        """See Door: these (log, slot) have moved."""
        if not (self._watchers or self._watch_all):
            return
        concerned = set(self._watch_all)
        for log, slot in places:
            number = int(self._logs[log].partitions.table[slot, P_NUMBER])
            concerned.update(self._watchers.get(number, ()))
        for session in concerned:
            session.tell_event()

    def catalog_changed(self) -> None:
        """Ring readers, as topics were added or removed."""
        self._table.place(self._slot_of)
        for session in list(self._sessions):
            if session.watched or session in self._watch_all:
                session.tell_event()

    # --- the end ---------------------------------------------------------------------------------

    def dropped(self, session: Session, reason: str) -> None:
        """See Owner."""
        self._note(f"local process {session.pid} is dropped: {reason}")

    def _note(self, sentence: str) -> None:
        self.notices.append(sentence)
        self.tell_notices()

    def gone(self, session: Session) -> None:
        """See Owner."""
        self._sessions.discard(session)
        self._producer.forget(session)
        self._watch_everything(session, wanted=False)
        for number in session.watched:
            self._unwatch(session, number)
        session.watched = set()
        if not self._sessions:
            self._awake.clear()
            if self._over is not None:
                self._over.cancel()
            self._loop.turn_ends.remove(self._end_turn)

    def count(self) -> int:
        """The number of attached programs."""
        return len(self._sessions)

    def stop(self) -> None:
        """Take no new sessions or requests; answer those received."""
        if self._acceptor is not None:
            self._acceptor.stop()
        for sock in list(self._attaching):
            self._turn_away(sock)
        for session in list(self._sessions):
            session.close_after_answers()
