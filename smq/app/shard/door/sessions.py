"""The local door of a shard: the sessions of programs on this host (attached by attaching.py).

Produce requests come through a session's inbox and are then handled like those from a socket. A
session also names partitions that it reads itself in the logs' memory; the shard rings it when one
of them moves (watchers.py). Without sessions none of this costs a turn anything.
"""

import socket
from collections.abc import Callable
from typing import Protocol

import numpy as np

from shm.kernels.turn.words import LOOPS
from shm.session import SessionMemory
from smq.app.process.clock import monotonic_ns
from smq.app.process.loop import Loop, Timer
from smq.app.shard.door.attaching import Attaching
from smq.app.shard.door.session import Session
from smq.app.shard.door.session_table import SessionTable
from smq.app.shard.door.watchers import Watchers
from smq.model.config import Config
from smq.model.setting import MiB
from smq.shard.produce import Produced
from smq.shard.shard import Shard
from smq.wire.attach import Hello

TAKE_BYTES = 1 * MiB  # Per session and turn, unless one request is larger: as one recv.
LOOK_OVER_MS = 500  # While there are sessions; a harmful one is dropped within a second.
SPIN_ROUNDS = 200  # Some microseconds: then sockets and timers have their turn.


class RequestHandler(Protocol):
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


class Sessions:
    """All sessions of a shard. Invariant: one is asleep, in `_awake`, full, or closed."""

    tell_notices: Callable[[], None]

    def __init__(
        self,
        loop: Loop,
        identity: Hello,
        shard: Shard,
        descriptors: list[int],
        producer: RequestHandler,
    ) -> None:
        self._loop, self._producer, self._table = loop, producer, producer.sessions
        self.attaching = Attaching(loop, identity, shard.config, descriptors, self)
        self.watchers = Watchers(shard.logs, self._table)
        self.moved = self.watchers.moved  # See Door.
        self._spin_until_ns = 0
        self._spin_ns = 1000 * shard.config.session_spin_us
        self._scratch = np.zeros(0, np.uint8)
        self._sessions: set[Session] = set()
        self._awake: dict[Session, None] = {}  # In order.
        self._over: Timer | None = None
        self.notices: list[str] = []
        self.tell_notices = lambda: None

    def take_settings(self, config: Config) -> None:
        """Use other settings from now on. Attached programs keep theirs."""
        self.attaching.take_settings(config)
        self._spin_ns = 1000 * config.session_spin_us

    def attached(self, sock: socket.socket, pid: int, memory: SessionMemory) -> None:
        """See SessionHolder."""
        if len(self._scratch) < memory.request_bytes_max or not len(self._scratch):
            self._scratch = np.zeros(max(TAKE_BYTES, memory.request_bytes_max), np.uint8)
        session = Session(self._loop, sock, pid, memory, self)
        self._sessions.add(session)
        self._table.add(session)
        if len(self._sessions) == 1:
            self._loop.turn_ends.append(self._end_turn)
            self._over = self._loop.call_later(LOOK_OVER_MS, self._look_over)
        self.wake(session)

    @property
    def is_watching(self) -> bool:
        """See Door."""
        is_listed = all(session.row >= 0 for session in self._sessions)
        return not is_listed and bool(self._awake or self.watchers)

    # --- requests --------------------------------------------------------------------------------

    def take(self, session: Session) -> bool:
        """See SessionOwner."""
        changed = session.memory.watch_has_changed()
        if changed:
            self.watchers.read_list(session)
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
        """See SessionOwner."""
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

    # --- the end ---------------------------------------------------------------------------------

    def dropped(self, session: Session, reason: str) -> None:
        """See SessionOwner."""
        self.note(f"local process {session.pid} is dropped: {reason}")

    def note(self, sentence: str) -> None:
        """See SessionHolder."""
        self.notices.append(sentence)
        self.tell_notices()

    def gone(self, session: Session) -> None:
        """See SessionOwner."""
        self._sessions.discard(session)
        self.watchers.forget(session)
        self._producer.forget(session)
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
        self.attaching.stop()
        for session in list(self._sessions):
            session.close_after_answers()
