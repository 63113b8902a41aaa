"""The event loop of a process: one epoll, callbacks, timers.

A turn, in this order:

    sleep         is offered the wait until the next timer, and may handle events itself: the
                  shard's kernel does (smq.app.shard.turns.kernel_turns)
    wait          spin if `Spin` says so, then epoll
    turn_starts   hooks
    quick         is offered the turn's events, and may handle all of them
    callbacks     of the descriptors with events, unless `quick` handled them
    timers        those that are due
    turn_ends     hooks: the shard writes what the turn appended, with one system call

The epoll is level-triggered. A callback does a bounded amount of work and returns; while input
remains, it is called again in the next turn.
"""

import heapq
import os
import select
import socket
import struct
import termios
from collections.abc import Callable
from fcntl import ioctl
from itertools import count
from pathlib import Path
from typing import Protocol

from shm.kernels.turn.spin import may_spin, new_spin, note_spin
from shm.peer import check_ours
from smq.app.process.clock import monotonic_ns

EVENTS_MAX = 128  # Per turn: bounds how long the first event's acks wait.
IDLE_TIMEOUT_S = 0.5  # An idle process reads the shared words twice a second.
CANCELLED_MAX = 1000  # Cancelled timers to keep: a client's timer may be due in weeks.

Callback = Callable[[int], None]


class Spin:
    """Decides whether a loop busy-waits after a turn (shm.kernels.turn.spin).

    wanted_ns   set in a turn after which the next event may be near: how long to wait for it
    words       the arguments of a kernel that waits instead of the loop
    """

    __slots__ = ("wanted_ns", "words")

    def __init__(self) -> None:
        self.wanted_ns = 0
        self.words = new_spin()

    def take_ns(self) -> int:
        """How long to busy-wait now; 0: not at all. Call it once after each turn."""
        wanted_ns, self.wanted_ns = self.wanted_ns, 0
        return wanted_ns if wanted_ns and may_spin(self.words) else 0

    def note(self, *, has_come: bool) -> None:
        """Note whether an event came during the wait."""
        note_spin(self.words, has_come)


class Timer:
    """A call due at `due_ns` (monotonic), unless cancelled."""

    __slots__ = ("_loop", "action", "due_ns")

    def __init__(self, loop: "Loop", due_ns: int, action: Callable[[], None]) -> None:
        self._loop, self.due_ns = loop, due_ns
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        """Cancel the call. Cheap: the loop removes cancelled timers when there are many."""
        if self.action is not None:
            self.action = None
            self._loop.note_cancelled()

    def left_ms(self) -> int:
        """How long until it is due; 0: it is."""
        return max(0, -(-(self.due_ns - monotonic_ns()) // 1_000_000))


class Poller(Protocol):
    """Says which descriptors are ready: an epoll, or the simulator's."""

    def register(self, fd: int, eventmask: int, /) -> None:
        """Watch a descriptor."""

    def modify(self, fd: int, eventmask: int, /) -> None:
        """Change the watched events."""

    def unregister(self, fd: int, /) -> None:
        """Stop watching it."""

    def poll(self, timeout: float, maxevents: int, /) -> list[tuple[int, int]]:
        """The ready descriptors with their events."""

    def fileno(self) -> int:
        """The epoll's descriptor, for kernels."""

    def close(self) -> None:
        """Free it."""


class Loop:
    """Waits for descriptors and timers, and calls their callbacks."""

    def __init__(self, poller: Poller | None = None) -> None:
        self._epoll: Poller = select.epoll() if poller is None else poller
        self._callbacks: dict[int, Callback] = {}
        self._timers: list[tuple[int, int, Timer]] = []
        self._cancelled = 0
        self._tie_breaker = count()
        self.turn_starts: list[Callable[[], None]] = []
        self.turn_ends: list[Callable[[], None]] = []
        self.quick: Callable[[list[tuple[int, int]]], bool] = lambda _events: False
        self.sleep: Callable[[int], bool] = lambda _due_ns: False
        self.spin = Spin()
        self.stopped = False

    def register(self, fd: int, events: int, callback: Callback) -> None:
        """Call `callback(events)` whenever one of `events` (select.EPOLL…) is pending on fd."""
        self._callbacks[fd] = callback
        self._epoll.register(fd, events)

    def modify(self, fd: int, events: int) -> None:
        """Wait for other events on a registered descriptor."""
        self._epoll.modify(fd, events)

    def unregister(self, fd: int) -> None:
        """Unregister a descriptor; call this before closing it."""
        if self._callbacks.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def fileno(self) -> int:
        """The epoll."""
        return self._epoll.fileno()

    def unsent_bytes(self, fd: int) -> int:
        """The bytes in a socket's buffer that have not arrived at its peer yet."""
        [buffered] = struct.unpack("i", ioctl(fd, termios.TIOCOUTQ, bytes(4)))
        return int(buffered)

    def has_ended(self, fd: int) -> bool:
        """Whether a socket's peer sends nothing more, which is not told while nothing is read."""
        look = select.poll()
        look.register(fd, select.POLLRDHUP)
        return bool(look.poll(0))

    def connect(self, path: Path) -> socket.socket:
        """Connect to one of our unix sockets. Raises OSError if none of our processes listens."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            sock.connect(str(path))
            check_ours(sock)
        except OSError:
            sock.close()
            raise
        return sock

    def next_due_ns(self) -> int | None:
        """When the next timer is due (monotonic), including cancelled ones; None without timers."""
        return self._timers[0][0] if self._timers else None

    def call_at(self, due_ns: int, action: Callable[[], None]) -> Timer:
        """Call `action` once, at a monotonic time."""
        timer = Timer(self, due_ns, action)
        heapq.heappush(self._timers, (due_ns, next(self._tie_breaker), timer))
        return timer

    def call_later(self, delay_ms: float, action: Callable[[], None]) -> Timer:
        """Call `action` once, after a delay."""
        return self.call_at(monotonic_ns() + int(delay_ms * 1_000_000), action)

    def call_no_sooner(
        self, timer: Timer | None, delay_ms: float, action: Callable[[], None]
    ) -> Timer:
        """Call `action` after a delay, or when `timer`, which calls it already, is due later."""
        due_ns = monotonic_ns() + int(delay_ms * 1_000_000)
        if timer is not None:
            if timer.due_ns >= due_ns:
                return timer
            timer.cancel()
        return self.call_at(due_ns, action)

    def note_cancelled(self) -> None:
        """Count a cancelled timer; once most are cancelled, remove them."""
        self._cancelled += 1
        if self._cancelled > CANCELLED_MAX and 2 * self._cancelled > len(self._timers):
            self._timers = [entry for entry in self._timers if entry[2].action is not None]
            heapq.heapify(self._timers)
            self._cancelled = 0

    def run(self) -> None:
        """Run turns until stop() is called."""
        while not self.stopped:
            self.run_once(IDLE_TIMEOUT_S)

    def stop(self) -> None:
        """Leave run() after this turn."""
        self.stopped = True

    @property
    def is_late(self) -> bool:
        """Whether a timer is due. What has come is taken before it."""
        return bool(self._timers) and self._timers[0][0] <= monotonic_ns()

    def run_once(self, timeout_s: float) -> int:
        """One turn: wait at most `timeout_s`; returns how many callbacks were called."""
        called = 0
        events = self._wait(timeout_s)
        for hook in self.turn_starts:
            hook()
        if not (events and self.quick(events)):
            for fd, mask in events:
                callback = self._callbacks.get(fd)
                if callback is not None:  # An earlier callback of this turn may have removed it.
                    callback(mask)
                    called += 1
        called += self._run_timers()
        for hook in self.turn_ends:
            hook()
        return called

    def _wait(self, timeout_s: float) -> list[tuple[int, int]]:
        now_ns = monotonic_ns()
        due_ns = now_ns + int(timeout_s * 1e9)
        if self._timers:
            due_ns = min(due_ns, self._timers[0][0])
        if due_ns > now_ns and self.sleep(due_ns):
            due_ns = now_ns
        if (spin_ns := self.spin.take_ns()) and (events := self._look_again(spin_ns)):
            return events
        return self._epoll.poll(max(0, due_ns - now_ns) / 1e9, EVENTS_MAX)

    def _look_again(self, spin_ns: int) -> list[tuple[int, int]]:
        until_ns = monotonic_ns() + spin_ns
        events: list[tuple[int, int]] = []
        while not events and monotonic_ns() < until_ns:
            os.sched_yield()  # Otherwise a client on this core waits for the scheduler's tick.
            events = self._epoll.poll(0, EVENTS_MAX)
        self.spin.note(has_come=bool(events))
        return events

    def _run_timers(self) -> int:
        now_ns, called = monotonic_ns(), 0
        while self._timers and self._timers[0][0] <= now_ns:
            _, _, timer = heapq.heappop(self._timers)
            if timer.action is None:
                self._cancelled = max(0, self._cancelled - 1)
            else:
                action, timer.action = timer.action, None
                action()
                called += 1
        return called
