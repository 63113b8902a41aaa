"""A session in a shard: a program on this host that hands us requests through shared memory.

A session is in one of these states, and only the second costs anything in a turn of the loop:

    asleep   its inbox is empty; it rings when it puts something in (an epoll event)
    awake    checked in every turn, until the inbox is empty (for session.spin.us, if that is set)
    full     we take nothing until answers have gone out, or its pause is over
"""

import select
import socket
from collections import deque
from typing import Protocol

import numpy as np

from shm.kernels.session.shard import (
    fall_asleep,
    must_ring,
    put_answers,
    spin_for_requests,
    take_requests,
    tell_event,
)
from shm.kernels.session.words import (
    ANSWERS_HEAD,
    BELLS_IN_VAIN,
    FAULT_CUT,
    FAULT_HEAD,
    FAULT_SIZE,
    FAULT_TAIL,
    OUT_BYTES,
    OUT_POSITION,
)
from shm.kernels.turn.sessions import BELLS_MAX
from shm.kernels.turn.words import LOOPS, SESSION
from shm.session import SessionMemory
from smq.app.process.loop import Loop, Timer
from smq.app.shard.connections.connection import SLOTS_MAX, Slot
from smq.shard.references import BadHandleLimit

PUT_BYTES = 64 * 1024  # Answers joined per call: those put back are copied again.
BELLS_IN_VAIN_MAX = 4096  # In a row, without requests: the program is hostile.
_BELL = b"\0"
_FAULTS = {
    FAULT_TAIL: "its inbox ends where it cannot end",
    FAULT_SIZE: "a request has an impossible size",
    FAULT_CUT: "a request is longer than what it says was written",
    FAULT_HEAD: "it has taken answers that were never given",
}


class SessionOwner(Protocol):
    """Serves the session."""

    def take(self, session: "Session") -> bool:
        """Take from the inbox once; returns whether it had anything."""

    def wake(self, session: "Session") -> None:
        """A session is no longer full: check its inbox in the next turn."""

    def gone(self, session: "Session") -> None:
        """The session is closed. Called once, however it ends."""

    def dropped(self, session: "Session", reason: str) -> None:
        """The session is about to be closed for what it did."""


class Session:
    """One client. Its answers stand in slots, as a connection's do (connections/connection.py)."""

    __slots__ = (
        "_has_hung_up",
        "_is_blocked",
        "_loop",
        "_muted",
        "_owner",
        "_unsent",
        "acks_due",
        "closed",
        "fd",
        "is_closing",
        "is_held",
        "is_stalled",
        "memory",
        "patience",
        "pid",
        "row",
        "side",
        "slots",
        "socket",
        "watched",
        "working",
    )

    def __init__(
        self, loop: Loop, sock: socket.socket, pid: int, memory: SessionMemory, owner: SessionOwner
    ) -> None:
        self._loop, self._owner = loop, owner
        self.socket, self.fd, self.pid = sock, sock.fileno(), pid
        self.memory, self.side = memory, memory.side
        self.slots: deque[Slot] = deque()
        self.watched: set[int] = set()
        self.working = 0  # Requests that are finished in steps; the next ones wait for them.
        self.acks_due, self.row = 0, -1  # In the table of the sessions that a kernel serves.
        self.patience = BadHandleLimit()
        self.is_held = self.closed = self.is_closing = self._is_blocked = self._has_hung_up = False
        self.is_stalled = False  # Neither asleep nor awake: it was full at the last check.
        self._unsent: deque[bytes | memoryview] = deque()  # Answers, or the rest of one: acks.
        self._muted: Timer | None = None
        loop.register(self.fd, select.EPOLLIN | select.EPOLLRDHUP, self._ready)

    # --- bells -----------------------------------------------------------------------------------

    def _ready(self, _events: int) -> None:
        """The program rings, or hangs up."""
        try:
            bells = len(self.socket.recv(BELLS_MAX, socket.MSG_DONTWAIT))
        except BlockingIOError:
            return
        except OSError:
            bells = 0
        if not bells:
            self._hung_up()
            return
        self.rung(bells)

    def rung(self, bells: int) -> None:
        """Handle the bells that the program has rung since the last call."""
        self.side[BELLS_IN_VAIN] += bells
        if self._is_blocked:
            self.flush()
        found = not self.closed and self._owner.take(self)
        if found:
            self.side[BELLS_IN_VAIN] = 0
        elif self.side[BELLS_IN_VAIN] > BELLS_IN_VAIN_MAX:
            self.drop("it keeps ringing the bell, but its inbox is empty")

    def _hung_up(self) -> None:
        """The client has hung up: take the requests that it handed over before."""
        left = self.memory.request_bytes_max * 2
        while left > 0 and not self.closed and not self.working and self._owner.take(self):
            left -= self.memory.request_bytes_max // 2
        if not self.working:
            self.close()
        elif not self._has_hung_up:  # A hang-up is reported in every turn: stop watching it.
            self._has_hung_up = True
            self._loop.unregister(self.fd)

    def ring(self) -> None:
        """Wake the client."""
        if self._has_hung_up:
            return
        try:
            self.socket.send(_BELL, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return  # It has unread bells already.
        except OSError:
            self.close()

    def tell_event(self) -> None:
        """A partition that it watches has moved."""
        if tell_event(self.memory.memory, self.side):
            self.ring()

    # --- the inbox -------------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """Whether answers must go out before we take more."""
        is_waiting = self._is_blocked or self._muted is not None or self.working > 0
        return is_waiting or len(self.slots) >= SLOTS_MAX

    @property
    def standing(self) -> int:
        """What a kernel may do for it: see `clients` of shm.kernels.turn.words."""
        is_plain = self.row >= 0 and not (self.slots or self.is_full or self.is_closing)
        return SESSION - self.row if is_plain and not self.closed else LOOPS

    def take_requests(self, out: np.ndarray) -> int:
        """Copy whole requests to `out`; returns the bytes. Drops itself for an impossible inbox."""
        taken = take_requests(self.memory.memory, self.side, out)
        if taken < 0:
            self.drop(_FAULTS[taken])
            return 0
        return int(taken)

    def check(self) -> None:
        """Drop itself if the client claims answers that were not given."""
        untaken = int(self.side[OUT_POSITION]) - self.memory.words[ANSWERS_HEAD]
        if not 0 <= untaken <= self.side[OUT_BYTES]:
            self.drop(_FAULTS[FAULT_HEAD])

    def spin(self, rounds: int) -> bool:
        """Check the inbox up to this many times; returns whether it has anything."""
        return bool(spin_for_requests(self.memory.memory, self.side, rounds))

    def fall_asleep(self) -> bool:
        """Sleep if the inbox is empty, so the next request rings; returns whether it does."""
        return bool(fall_asleep(self.memory.memory, self.side))

    def throttle(self, delay_ms: int) -> None:
        """Take no requests for this long, unless throttled for longer already; answers go out."""

        def unmute() -> None:
            self._muted = None
            self._owner.take(self)

        if delay_ms > 0 and not self.closed:
            self._muted = self._loop.call_no_sooner(self._muted, delay_ms, unmute)

    # --- answers ---------------------------------------------------------------------------------

    def flush(self) -> None:
        """Hand over open answers, as far as there is room."""
        if self.closed:
            return
        if self._has_hung_up and not self.working:
            self._hung_up()
            return
        while self.slots and self.slots[0].is_open:
            slot = self.slots.popleft()
            self._unsent += slot.pieces  # type: ignore[arg-type]
            if slot.timing is not None:
                slot.timing.sent()
        if self._unsent:
            self._put()
        if self.is_closing and not self.slots and not self._is_blocked:
            self.close()
        elif self.is_stalled and not self.is_full:
            self._owner.wake(self)

    def _put(self) -> None:
        """Hand over what fits. The cost depends on that, however much is due."""
        has_room = True
        while self._unsent and has_room:
            answers = self._next_answers()
            put = put_answers(self.memory.memory, self.side, np.frombuffer(answers, np.uint8))
            if put < 0:
                self.drop(_FAULTS[put])
                return
            if put:
                self.side[BELLS_IN_VAIN] = 0  # It may have rung for room.
            has_room = put == len(answers)
            if not has_room:
                self._unsent.appendleft(memoryview(answers)[put:])
        self._is_blocked = bool(self._unsent)
        if must_ring(self.memory.memory, self.side):
            self.ring()

    def _next_answers(self) -> bytes | memoryview:
        """The first answers that are due: one, or PUT_BYTES at most."""
        answers = [self._unsent.popleft()]
        size = len(answers[0])
        while self._unsent and size + len(self._unsent[0]) <= PUT_BYTES:
            answers.append(self._unsent.popleft())
            size += len(answers[-1])
        return b"".join(answers) if len(answers) > 1 else answers[0]

    # --- the end ---------------------------------------------------------------------------------

    def drop(self, reason: str) -> None:
        """Close, and report why."""
        if not self.closed:
            self._owner.dropped(self, reason)
            self.close()

    def close_after_answers(self) -> None:
        """Take no more requests; close once earlier ones are answered."""
        self.is_closing = True
        self.flush()

    def close(self) -> None:
        """Close now. The memory goes with the last reference to it."""
        if self.closed:
            return
        self.closed = True
        if self._muted is not None:
            self._muted.cancel()
        self.slots.clear()
        if not self._has_hung_up:
            self._loop.unregister(self.fd)
        self.socket.close()
        self._owner.gone(self)
