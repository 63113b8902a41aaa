"""Sockets without a kernel: the seed decides when streams are cut, delayed or full.

    end A ──send──▶ in flight (each piece is due at a time, in order) ──▶ arrived ──recv──▶ end B

Each connection has its own random generator, so its fate does not depend on the order in which a
process serves the others. Connections overtake each other; bytes of one never do.
"""

import errno
import os
import select
import socket
import struct
from collections import deque
from collections.abc import Sequence
from random import Random
from typing import Protocol

from smq.testing.simulation.clock import MS, SimulatedClock

Address = tuple[str, int]
FIRST_FD = 1000
_GONE = select.EPOLLHUP | select.EPOLLERR


class SocketOwner(Protocol):
    """A user of sockets. `is_touched`: something happened to one of them since its last turn."""

    is_touched: bool

    def before_call(self, method: str) -> None:
        """Called before each socket call; may raise Killed."""


class Pollable(Protocol):
    """What a poller looks at."""

    def events(self) -> int:
        """The events epoll would report."""

    def next_due_ns(self) -> int | None:
        """When something arrives that is on its way."""


class Weather:
    """A connection's behaviour, drawn once from its generator."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.capacity = chance.choice((512, 4096, 65536, 65536))
        self.delay_ms_max = chance.choice((0.05, 0.2, 1.0, 5.0))
        self.cuts_up = chance.random() < 0.3

    def pieces(self, data: bytes) -> list[bytes]:
        """The data in the pieces in which they travel."""
        if not self.cuts_up or len(data) < 2:
            return [data]
        at = self.chance.randrange(1, len(data))
        return [data[:at], data[at:]]

    def delay_ns(self) -> int:
        """The delay of one piece."""
        return int(self.chance.random() * self.delay_ms_max * MS)


class _Stream:
    """One direction."""

    __slots__ = ("arrived", "capacity", "clock", "due_ns", "ends", "in_flight", "length", "weather")

    def __init__(self, clock: SimulatedClock, weather: Weather) -> None:
        self.clock, self.weather, self.capacity = clock, weather, weather.capacity
        self.in_flight: deque[tuple[int, bytes]] = deque()
        self.arrived = bytearray()
        self.length = self.due_ns = 0
        self.ends = False  # After what is in flight.

    def room(self) -> int:
        return self.capacity - self.length

    def write(self, data: bytes) -> None:
        self.length += len(data)
        for piece in self.weather.pieces(data):
            due_ns = self.clock.now_ns + self.weather.delay_ns()
            self.due_ns = max(self.due_ns, due_ns)
            self.in_flight.append((self.due_ns, piece))

    def settle(self) -> None:
        while self.in_flight and self.in_flight[0][0] <= self.clock.now_ns:
            self.arrived += self.in_flight.popleft()[1]

    def read(self, count: int) -> bytes:
        data = bytes(self.arrived[:count])
        del self.arrived[:count]
        self.length -= len(data)
        return data

    @property
    def has_ended(self) -> bool:
        return self.ends and not self.in_flight


class SimulatedSocket:
    """One end of a connection: what Connection, Link and clients use of a socket."""

    def __init__(self, network: "Network", address: Address, own: Address) -> None:
        self._network, self._own = network, own
        self.address = address
        self.fd = network.next_fd()
        self.incoming: _Stream
        self.outgoing: _Stream
        self.other: SimulatedSocket
        self.is_reset = self.is_closed = False
        self.owner: SocketOwner | None = None
        self.uid: int | None = None  # Of its owner, if that is not this user.

    def fileno(self) -> int:
        """See socket."""
        return -1 if self.is_closed else self.fd

    def setblocking(self, _flag: bool) -> None:  # noqa: FBT001  (As a socket's.)
        """See socket. It never blocks."""

    def setsockopt(self, *_args: int) -> None:
        """See socket."""

    def getsockopt(self, _level: int, option: int, _size: int) -> bytes:
        """See socket. At the other end is a process of this user, unless it is another's."""
        assert option == socket.SO_PEERCRED, "nobody asks for another"
        uid = os.getuid() if self.other.uid is None else self.other.uid
        return struct.pack("iII", os.getpid(), uid, os.getgid())

    def getsockname(self) -> Address:
        """See socket."""
        return self._own

    def send(self, data: "bytes | bytearray | memoryview") -> int:
        """See socket."""
        if self.owner is not None:
            self.owner.before_call("socket")
        if self.is_reset or self.other.is_closed:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        room = self.outgoing.room()
        if room <= 0:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        taken = bytes(data[:room])
        self.outgoing.write(taken)
        self._touch_other()
        return len(taken)

    def sendmsg(self, buffers: Sequence["bytes | memoryview"]) -> int:
        """See socket."""
        return self.send(b"".join(buffers))

    def recv(self, count: int) -> bytes:
        """See socket."""
        if self.owner is not None:
            self.owner.before_call("socket")
        if self.is_reset:
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        self.incoming.settle()
        if self.incoming.room() <= 0:
            self._touch_other()  # It can send again.
        data = self.incoming.read(count)
        if not data and not self.incoming.has_ended:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return data

    def recv_into(self, buffer: memoryview) -> int:
        """See socket."""
        data = self.recv(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """See socket."""
        self.is_closed = True
        self.outgoing.ends = True
        self._touch_other()
        self._network.by_fd.pop(self.fd, None)

    def narrow(self, capacity: int | None) -> None:
        """Let the peer have `capacity` unread bytes on their way; None: as many as at first."""
        self.incoming.capacity = capacity or self.incoming.weather.capacity
        self._touch_other()

    def reset(self) -> None:
        """Cut the connection: data in flight is lost."""
        self.is_reset = self.other.is_reset = True
        self._touch_other()
        self.other._touch_other()  # noqa: SLF001  (Its other is this one.)

    def _touch_other(self) -> None:
        if self.other.owner is not None:
            self.other.owner.is_touched = True

    def events(self) -> int:
        """The events epoll would report."""
        if self.is_reset:
            return _GONE | select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP
        self.incoming.settle()
        mask = select.EPOLLIN if self.incoming.arrived else 0
        if self.incoming.has_ended:
            mask |= select.EPOLLIN | select.EPOLLRDHUP
        if self.outgoing.room() > 0 or self.other.is_closed:
            mask |= select.EPOLLOUT
        return mask

    def next_due_ns(self) -> int | None:
        """When the next bytes arrive."""
        return self.incoming.in_flight[0][0] if self.incoming.in_flight else None


class ListeningSocket:
    """A listening socket of the host, which outlives the process behind it."""

    def __init__(self, network: "Network", address: Address) -> None:
        self.fd, self.address = network.next_fd(), address
        self.owner: SocketOwner | None = None  # Of the connections it accepts.
        self.backlog: deque[SimulatedSocket] = deque()

    def fileno(self) -> int:
        """See socket."""
        return self.fd

    def setblocking(self, _flag: bool) -> None:  # noqa: FBT001  (As a socket's.)
        """See socket."""

    def accept(self) -> tuple[SimulatedSocket, Address]:
        """See socket."""
        if not self.backlog:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        sock = self.backlog.popleft()
        sock.owner = self.owner
        return sock, sock.address

    def events(self) -> int:
        """The events epoll would report."""
        return select.EPOLLIN if self.backlog else 0

    def next_due_ns(self) -> int | None:
        """Never: connections are accepted at once."""
        return None


class Network:
    """All listeners and connections, by address."""

    def __init__(self, clock: SimulatedClock, seed: int) -> None:
        self._clock, self._seed = clock, seed
        self._fd, self._count = FIRST_FD, 0
        self.listeners: dict[Address, ListeningSocket] = {}
        self.by_fd: dict[int, Pollable] = {}

    def next_fd(self) -> int:
        """A descriptor that was never used."""
        self._fd += 1
        return self._fd

    def listen(self, address: Address) -> ListeningSocket:
        """A new listener."""
        listener = self.listeners[address] = ListeningSocket(self, address)
        self.by_fd[listener.fd] = listener
        return listener

    def close_listeners(self) -> None:
        """The host goes down: refuse connections, including those not yet accepted."""
        for listener in self.listeners.values():
            for sock in listener.backlog:
                sock.reset()
            del self.by_fd[listener.fd]
        self.listeners.clear()

    def connect(self, address: Address, own: Address) -> SimulatedSocket:
        """Connect to a listener. Raises ConnectionRefusedError."""
        listener = self.listeners.get(address)
        if listener is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        self._count += 1
        weather = Weather(Random(f"{self._seed} connection {self._count}"))  # noqa: S311
        ours, theirs = (
            SimulatedSocket(self, address, own),
            SimulatedSocket(self, own, address),
        )
        ours.other, theirs.other = theirs, ours
        ours.outgoing = theirs.incoming = _Stream(self._clock, weather)
        ours.incoming = theirs.outgoing = _Stream(self._clock, weather)
        self.by_fd[ours.fd], self.by_fd[theirs.fd] = ours, theirs
        listener.backlog.append(theirs)
        if listener.owner is not None:
            listener.owner.is_touched = True
        return ours

    def has_ended(self, fd: int) -> bool:
        """Whether a socket's peer sends nothing more, and what it has sent has come."""
        return bool(self.by_fd[fd].events() & select.EPOLLRDHUP)

    def unsent_bytes(self, fd: int) -> int:
        """The bytes that a socket has sent and its peer has not received."""
        sock = self.by_fd[fd]
        assert isinstance(sock, SimulatedSocket)
        return sock.outgoing.length

    def sockets_of(self, owner: SocketOwner) -> list[SimulatedSocket]:
        """The open sockets of a process."""
        found = (each for each in self.by_fd.values() if isinstance(each, SimulatedSocket))
        return [sock for sock in found if sock.owner is owner]

    def connections(self) -> list[SimulatedSocket]:
        """One end of each connection, oldest first."""
        found = (each for each in self.by_fd.values() if isinstance(each, SimulatedSocket))
        return [sock for sock in found if not sock.is_reset]


class SimPoller:
    """The simulated epoll of a loop; see smq.app.process.loop.Poller."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self.watched: dict[int, int] = {}

    def register(self, fd: int, eventmask: int, /) -> None:
        """See SimPoller."""
        assert fd not in self.watched
        assert fd in self._network.by_fd
        self.watched[fd] = eventmask

    def modify(self, fd: int, eventmask: int, /) -> None:
        """See SimPoller."""
        assert fd in self.watched
        self.watched[fd] = eventmask

    def unregister(self, fd: int, /) -> None:
        """See SimPoller."""
        del self.watched[fd]

    def poll(self, _timeout: float, maxevents: int, /) -> list[tuple[int, int]]:
        """See SimPoller."""
        ready = []
        for fd, wanted in self.watched.items():
            mask = self._network.by_fd[fd].events() & (wanted | _GONE)
            if mask:
                ready.append((fd, mask))
                if len(ready) == maxevents:
                    break
        return ready

    def is_ready(self) -> bool:
        """Whether poll() would report anything."""
        return bool(self.poll(0, 1))

    def next_due_ns(self) -> int | None:
        """When the next bytes arrive."""
        by_fd = self._network.by_fd
        dues = [due for fd in self.watched if (due := by_fd[fd].next_due_ns()) is not None]
        return min(dues, default=None)

    def fileno(self) -> int:
        """See SimPoller. Kernels that would use it do not run here."""
        return -1

    def close(self) -> None:
        """See SimPoller."""
