"""The rim of a shard: sockets, the turn, long polls, relays. What it does is decided elsewhere.

A turn of the loop, where a kernel does not take it whole (smq.app.shard.quick_turns):

    look at the catalog's version
    read what has come    one recv a connection; all its Produce requests in one kernel call
    write                 one pwrite for everything the turn has appended
    show                  high watermarks move; waiting fetches are answered
    send                  the acks, then everything else that is open
"""

import select
import socket
from collections.abc import Callable, Iterable
from typing import Protocol

import numpy as np

from gateway.apis.table import API_BY_KEY
from gateway.context import Place, Relay
from gateway.dispatch import Dispatched, dispatch
from gateway.quick_fetch import Answer, QuickFetch
from shm.kernels.base.wire import SIZE_BYTES
from shm.kernels.base.words import DURABILITY_MEMORY
from shm.kernels.log.plan import (
    STOP_MALFORMED,
    STOP_NEED_MORE,
    STOP_OTHER_API,
    STOP_PLAN_FULL,
)
from shm.kernels.request.fetch_request import FETCH_KEY
from shm.kernels.turn.spin import SPIN_MAX_NS, SPIN_SYNC_NS
from shm.kernels.turn.waiting import NEVER_NS
from smq.app.process.acceptor import Acceptor
from smq.app.process.clock import monotonic_ms, monotonic_ns, wall_ms
from smq.app.process.loop import Loop, Timer
from smq.app.process.peers import Peers
from smq.app.process.steps import Steps
from smq.app.shard.acks import Acks
from smq.app.shard.answering import Answering
from smq.app.shard.connection import SHARE, Connection, Slot
from smq.app.shard.long_polls import LongPolls
from smq.app.shard.payloads import payloads_of
from smq.app.shard.quick_turns import QuickTurns
from smq.app.shard.receive import Buffer, BufferPool, Rest
from smq.app.shard.session import Session
from smq.app.shard.session_table import SessionTable
from smq.model.errors import PeerError
from smq.shard.produce import Marks, Produced, Producing
from smq.shard.references import References
from smq.shard.shard import Shard
from smq.wire.headers import read_request_header

API_KEY_BYTES = 2
_WRONG = {STOP_OTHER_API: "a request is no Produce of a version that we know"}
_FETCH = FETCH_KEY.to_bytes(API_KEY_BYTES)
HOST_SEND_BYTES = 512 * 1024  # To a client on this host: it reads them while caches hold them.
SMALL_BYTES = 4096  # Of a recv: who sends so little waits for the answer.


class Door(Protocol):
    """The local door of the shard (smq.app.shard.sessions)."""

    @property
    def is_watching(self) -> bool:
        """Whether anybody waits now of whom the kernel does not know."""

    def moved(self, places: Iterable[Place]) -> None:
        """The HWM of these places has moved."""

    def hand_over(self) -> None:
        """The kernel is about to run: the sessions that are awake are its own meanwhile."""

    def take_back(self) -> None:
        """It has run."""

    def produced(self, session: Session, data: np.ndarray, end: int, first: Produced) -> None:
        """The kernel has left a session's requests in data[:end]: `first` has come of them."""


class ShardServer:
    """Serves clients for a shard. `peers` reaches coordinator and sealer.

    `published` is the version of the catalog that was published last (int64), `read_catalog` has
    the shard take that one.
    """

    def __init__(
        self,
        loop: Loop,
        shard: Shard,
        peers: Peers,
        read_catalog: Callable[[], bool],
        published: np.ndarray,
    ) -> None:
        self._loop, self._shard = loop, shard
        self._read_catalog = read_catalog
        references = References(
            payloads_of(shard.config, peers, monotonic_ms), shard.topic_of, shard.config
        )
        self._producing = Producing(
            shard.logs,
            shard.config,
            shard.drain,
            shard.throttle,
            references,
        )
        self._quick_fetch = QuickFetch(shard)
        self._buffers = BufferPool(shard.config.socket_request_max_bytes)
        self._connections: dict[int, Connection] = {}  # By descriptor.
        self._acks = Acks(shard)
        slots = max(log.memory.layout.partition_capacity for log in shard.logs.values())
        self._polls = LongPolls(loop, slots)
        self._answering = Answering(peers, self._polls, Steps(loop))
        self._quick_turns = QuickTurns(
            loop.fileno(),
            shard,
            self._producing,
            self._quick_fetch,
            self._polls.watched,
            published,
        )
        self._expiry: Timer | None = None  # Of fetches that wait in the kernel's table.
        self._touched: set[Connection | Session] = set()  # In this turn.
        self.door: Door | None = None
        self.when_catalog_changes: list[Callable[[], None]] = [
            self._producing.forget_rules,
            self._unpark_all,
            self._polls.look_again,
        ]
        self._acceptor: Acceptor | None = None
        loop.quick, loop.sleep = self._take_turns, self._sleep
        loop.turn_starts.append(self._begin_turn)
        loop.turn_ends.append(self._end_turn)

    def invariants(self) -> None:
        """Raise AssertionError when someone waits for what nobody brings about, between turns."""
        self._polls.invariants()
        self._acks.invariants()
        self._buffers.invariants(self._connections.values())

    # --- connections -----------------------------------------------------------------------------

    def listen(self, listener: socket.socket) -> None:
        """Accept clients on a listening TCP socket."""
        self._acceptor = Acceptor(self._loop, listener, self._accepted)

    def _accepted(self, sock: socket.socket, address: tuple[str, int]) -> None:
        if len(self._connections) >= self._shard.config.max_connections:
            sock.close()
            return
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if address[0] == sock.getsockname()[0]:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, HOST_SEND_BYTES)
        connection = Connection(self._loop, sock, address[0], self)
        connection.last_used_ns = monotonic_ns()
        self._connections[connection.fd] = connection
        self._touched.add(connection)

    def gone(self, connection: Connection) -> None:
        """See Owner."""
        del self._connections[connection.fd]
        self._quick_turns.forget(connection.fd)
        self._buffers.drop(connection.rest)
        for poll in connection.polls:
            self._polls.drop(poll)
        connection.polls.clear()

    def connection_count(self) -> int:
        """How many clients are connected."""
        return len(self._connections)

    def close_idle(self) -> None:
        """Close connections that have asked for nothing for too long."""
        idle_ns = self._shard.config.connections_max_idle_ms * 1_000_000
        oldest = monotonic_ns() - idle_ns
        for connection in list(self._connections.values()):
            used_ns = max(connection.last_used_ns, self._quick_turns.last_used_ns(connection.fd))
            is_waiting = connection.slots or self._quick_turns.is_parked(connection.fd)
            if used_ns < oldest and not is_waiting:
                connection.close()

    def stop(self) -> None:
        """Take no new clients and no new requests; answer what was asked."""
        if self._acceptor is not None:
            self._acceptor.stop()
        self._unpark_all()
        for connection in list(self._connections.values()):
            for poll in list(connection.polls):
                self._polls.end(poll)
            connection.close_after_answers()

    # --- receiving -------------------------------------------------------------------------------

    def readable(self, connection: Connection) -> None:
        """See Owner."""
        self._touched.add(connection)
        if self._quick_turns.is_parked(connection.fd):
            self._unpark(connection.fd)
        buffer = self._buffers.take(connection.rest)
        try:
            count = connection.socket.recv_into(buffer.room())
        except BlockingIOError:
            count = -1
        except OSError:
            count = 0
        if count > 0:
            buffer.end += count
            connection.last_used_ns = monotonic_ns()
            self._loop.spin.wanted_ns = SPIN_MAX_NS if count <= SMALL_BYTES else 0
            self._take(connection, buffer)
        elif count == 0:
            connection.close()
        self._put_back(connection, buffer)

    def take_awake(self) -> bool:
        """Have a kernel look at the sessions that are awake; False: it has found nothing."""
        return self._quick_turns.may_run() and self._run_turns()

    def _take_turns(self, events: list[tuple[int, int]]) -> bool:
        """Have a kernel take these events, and turns that follow; False: nothing was taken."""
        quick = self._quick_turns
        if not quick.may_run():
            return False
        if not all(mask == select.EPOLLIN and quick.takes(fd) for fd, mask in events):
            return False
        return self._run_turns()

    def _sleep(self, due_ns: int) -> bool:
        """Have a kernel sleep, and take what comes meanwhile; False: the loop must sleep itself."""
        if not self._quick_turns.may_run():
            return False
        self._run_turns(due_ns)
        return True

    def _run_turns(self, due_ns: int = 0) -> bool:
        quick, door = self._quick_turns, self.door
        self._note_touched()
        buffer = self._buffers.take(Rest())
        if door is not None:
            door.hand_over()
        is_watched = door is not None and door.is_watching
        has_taken = quick.run(buffer.array, self._loop.spin, due_ns, is_watched=is_watched)
        if has_taken:
            self._take_left(buffer)
            self._watch_expiry()
            self._note_touched()
        else:
            self._buffers.put_back(buffer, Rest())
        if door is not None:
            door.take_back()
        return has_taken

    def _take_left(self, buffer: Buffer) -> None:
        """Do what the kernel's turns have left."""
        quick = self._quick_turns
        for fd, answers, marks in quick.unsent():
            self._queue_acks(self._client(fd), answers, marks)
        if (unsent := quick.unsent_fetch()) is not None:
            self._send_left(*unsent)
        if (rung := quick.rung()) is not None:
            session, bells = rung
            session.rung(bells)
        left = quick.left()
        if left is None:
            self._buffers.put_back(buffer, Rest())
            return
        fd, stop, end = left
        produced = self._producing.resume(buffer.array, self._shard.directory, stop)
        client = self._client(fd)
        if isinstance(client, Session):
            assert self.door is not None
            self.door.produced(client, buffer.array, end, produced)
            self._buffers.put_back(buffer, Rest())
            return
        buffer.end = end
        self._touched.add(client)
        self._taken(client, buffer, produced, wall_ms())
        if produced.stop != STOP_NEED_MORE:
            self._take(client, buffer)
        self._put_back(client, buffer)

    def _client(self, fd: int) -> Connection | Session:
        return self._connections.get(fd) or self._quick_turns.sessions.at(fd)

    def _send_left(self, fd: int, answer: Answer) -> None:
        """Send the rest of a Fetch's answer when the socket takes it."""
        connection = self._connections[fd]
        connection.slots.append(Slot(answer, is_open=True))
        self._answering.dirty[connection] = None

    # --- fetches that wait in the kernel's table -------------------------------------------------

    def _unpark(self, fd: int) -> None:
        """A fetch that waits there is asked again, here, and waits here if there is too little."""
        connection = self._connections[fd]
        request, due_ns = self._quick_turns.unpark(fd)
        self._touched.add(connection)
        self._take_request(connection, request, 0, len(request))
        for poll in connection.polls:
            self._polls.hurry(poll, due_ns)

    def _unpark_all(self) -> None:
        for fd in self._quick_turns.waiting.clients():
            self._unpark(fd)

    def _watch_expiry(self) -> None:
        """Have a timer run when the first of them is due."""
        due_ns = self._quick_turns.waiting.due_ns
        if due_ns < (NEVER_NS if self._expiry is None else self._expiry.due_ns):
            if self._expiry is not None:
                self._expiry.cancel()
            self._expiry = self._loop.call_at(due_ns, self._expire)

    def _expire(self) -> None:
        self._expiry = None
        for fd in self._quick_turns.waiting.due(monotonic_ns()):
            connection = self._connections[fd]
            self._unpark(fd)  # Which may close it.
            for poll in list(connection.polls):
                self._polls.end(poll)
        self._watch_expiry()

    def resumable(self, connection: Connection) -> None:
        """See Owner."""
        self._touched.add(connection)
        buffer = self._buffers.take(connection.rest)
        self._take(connection, buffer)
        self._put_back(connection, buffer)

    def _put_back(self, connection: Connection, buffer: Buffer) -> None:
        if connection.closed or connection.is_closing:
            buffer.start = buffer.end  # Nothing more of it is taken.
        now_ns = monotonic_ns()
        self._buffers.put_back(buffer, connection.rest, now_ns)
        connection.pause_if_full()
        for slow in self._buffers.slowest(self._connections.values(), now_ns):
            slow.close()

    def _take(self, connection: Connection, buffer: Buffer) -> None:
        """Handle every whole request in a buffer."""
        directory, now_ms, connection.spent = self._shard.directory, wall_ms(), 0
        while buffer.start < buffer.end and not (
            connection.closed or connection.is_closing or connection.is_full
        ):
            produced = self._producing.run(
                buffer.array, buffer.start, buffer.end, directory, now_ms
            )
            self._taken(connection, buffer, produced, now_ms)
            if produced.stop == STOP_NEED_MORE:
                break
            if produced.stop == STOP_PLAN_FULL:
                connection.spent = SHARE  # A plan takes milliseconds.
            connection.end_share()

    def _taken(
        self, connection: Connection, buffer: Buffer, produced: Produced, now_ms: int
    ) -> None:
        """Carry on with what came of a buffer's Produce requests."""
        throttle = self._shard.throttle
        if produced.answers:
            self._queue_acks(connection, bytes(produced.answers), produced.marks)
        if throttle.is_on and produced.consumed_to > buffer.start:
            connection.mute(throttle.charge(produced.consumed_to - buffer.start, now_ms))
        buffer.start = produced.consumed_to
        is_flood = produced.refused and connection.patience.ends(produced.refused, now_ms)
        if produced.close or produced.stop == STOP_MALFORMED or is_flood:
            connection.close_after_answers()
        elif produced.stop == STOP_OTHER_API and connection.acks_due:
            connection.is_held = True  # It is to see what was acknowledged before it.
        elif produced.stop == STOP_OTHER_API:
            self._take_other(connection, buffer)

    def produce(
        self, session: Session, data: np.ndarray, end: int, first: Produced | None = None
    ) -> str:
        """Take the whole requests in data[:end]; "" or what is wrong with them.

        `first` is what has come of them so far.
        """
        shard, now_ms = self._shard, wall_ms()
        produced = first or self._producing.run(data, 0, end, shard.directory, now_ms)
        while True:
            if produced.answers:
                self._queue_acks(session, bytes(produced.answers), produced.marks)
            if produced.close:
                return "a request that wants no answer has failed"
            if produced.refused and session.patience.ends(produced.refused, now_ms):
                return "it floods us with handles to nothing"
            start = produced.consumed_to
            if start == end:
                break
            if produced.stop != STOP_PLAN_FULL:
                return _WRONG.get(produced.stop, "a request is malformed")
            produced = self._producing.run(data, start, end, shard.directory, now_ms)
        if shard.throttle.is_on:
            session.mute(shard.throttle.charge(end, now_ms))
        return ""

    def _queue_acks(self, client: Connection | Session, answers: bytes, marks: Marks) -> None:
        self._acks.queue(client, answers, marks)
        self._touched.add(client)

    def _take_other(self, connection: Connection, buffer: Buffer) -> None:
        """Handle the request at the buffer's start, which is whole and no Produce."""
        start, end = buffer.start + SIZE_BYTES, buffer.start + buffer.wanted_bytes()
        buffer.start = end
        self._take_request(connection, buffer.array, start, end)
        connection.charge(end - start)

    def _take_request(self, connection: Connection, data: np.ndarray, start: int, end: int) -> None:
        """Handle the request in data[start:end]."""
        request = data.data[start:end]
        if request[:API_KEY_BYTES] == _FETCH and self._take_fetch(connection, data, start, end):
            return
        try:
            dispatched = dispatch(request, self._shard, wall_ms())
        except PeerError:
            connection.close_after_answers()
            return
        slot = Slot(is_open=False)
        connection.slots.append(slot)
        if isinstance(dispatched.result, Relay):
            self._answering.relay(connection, slot, request)
        else:
            self._answering.settle(connection, slot, dispatched, dispatched.result)

    def _take_fetch(self, connection: Connection, data: np.ndarray, start: int, end: int) -> bool:
        """Handle a fetch of the frequent kind; False: it is another one."""
        result = self._quick_fetch.run(data, start, end)
        if result is None:
            return False
        slot = Slot(is_open=False)
        connection.slots.append(slot)
        if isinstance(result, list):
            slot.fill(result)
            self._answering.dirty[connection] = None
        else:
            header, _ = read_request_header(data.data[start:end], 0)
            dispatched = Dispatched(API_BY_KEY[FETCH_KEY], header, result)
            self._answering.wait(connection, slot, dispatched, result)
        return True

    # --- the turn --------------------------------------------------------------------------------

    def _begin_turn(self) -> None:
        if self._read_catalog():
            for changed in self.when_catalog_changes:
                changed()

    def _end_turn(self) -> None:
        shard = self._shard
        if DURABILITY_MEMORY in shard.levels:
            for log in shard.logs.values():
                shard.publish(log, DURABILITY_MEMORY)
            self._tell_moved()
        self._acks.write()
        if self._acks.show_synced():  # The disk, or who asks again at once.
            self._loop.spin.wanted_ns = SPIN_SYNC_NS
        self._tell_moved()
        for client in self._acks.open():
            self._answering.dirty[client] = None
        dirty, self._answering.dirty = self._answering.dirty, {}
        for connection in dirty:
            connection.flush()
        self._touched.update(dirty)
        self._note_touched()
        self._touched.clear()

    def _note_touched(self) -> None:
        """Have the kernel know how it stands with those of this turn: it may run more than once."""
        for client in self._touched.union(self._answering.dirty):
            self.note(client)

    @property
    def sessions(self) -> SessionTable:
        """Those the kernel serves."""
        return self._quick_turns.sessions

    def note(self, client: Connection | Session) -> None:
        """Something has been done with it: the kernel is to know whether it may take the next."""
        if not client.closed:
            self._quick_turns.note(client)

    def forget(self, session: Session) -> None:
        """It is closed."""
        self._quick_turns.sessions.remove(session)
        self._quick_turns.forget(session.fd)

    def _tell_moved(self) -> None:
        if self._shard.moved:
            places = self._shard.take_moved()
            if len(self._quick_turns.waiting):
                for fd in self._quick_turns.waiting.concerned(slot for _, slot in places):
                    self._unpark(fd)
            self._polls.moved(places)
            if self.door is not None:
                self.door.moved(places)
