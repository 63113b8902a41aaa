"""The outer layer of a shard: sockets, the turn, long polls, relays. Decisions are made elsewhere.

A turn of the loop, where a kernel does not take it whole (smq.app.shard.turns.quick_turns):

    look at the catalog's version
    read what arrived     one recv a connection; all its Produce requests in one kernel call
    write                 one pwrite for everything the turn has appended
    show                  high watermarks move; waiting fetches are answered
    send                  the acks, then everything else that is open
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from gateway.context import Ask, Message, Wait
from gateway.dispatch import dispatch
from gateway.quick_fetch import QuickFetch
from shm.kernels.base.words import DURABILITY_DISK, DURABILITY_MEMORY, STOP_NEED_MORE
from shm.kernels.turn.spin import SPIN_MAX_NS, SPIN_SYNC_NS
from shm.timings import NodeTimings
from smq.app.process.clock import monotonic_ms, monotonic_ns
from smq.app.process.loop import Loop
from smq.app.process.peers import Peers
from smq.app.process.steps import Steps
from smq.app.shard.connections.clients import Clients
from smq.app.shard.connections.connection import Connection
from smq.app.shard.connections.entrance import Entrance
from smq.app.shard.connections.limited import look
from smq.app.shard.connections.receive import Buffer, BufferPool
from smq.app.shard.connections.request_times import PRODUCE_KEY, RequestTimes
from smq.app.shard.door.session import Session
from smq.app.shard.requests.acks import Acks
from smq.app.shard.requests.answering import Answering
from smq.app.shard.requests.fair_lane import Submit
from smq.app.shard.requests.legacy import requests_of
from smq.app.shard.requests.logins import Logins
from smq.app.shard.requests.replies import Replies
from smq.app.shard.requests.unfinished import UnfinishedRequests
from smq.app.shard.turns.kernel_turns import KernelTurns
from smq.app.shard.turns.quick_turns import QuickTurns
from smq.app.shard.waiting.held_answers import HeldAnswer, HeldAnswers
from smq.app.shard.waiting.long_polls import LongPolls
from smq.app.shard.waiting.parked_fetches import Parked, ParkedFetches
from smq.app.shard.waiting.payloads import payloads_of
from smq.model.config import Config
from smq.model.now import Now
from smq.security.caller import Caller
from smq.shard.checks import TurnRoom
from smq.shard.loans import Loan
from smq.shard.produce import Produced, Producing
from smq.shard.references import References
from smq.shard.shard import Shard
from smq.shard.validation import Validation

SMALL_BYTES = 4096  # Per recv: a client that sends this little waits for the answer.


class ShardServer:
    """Serves clients for a shard. `peers` reaches coordinator and sealer.

    `published` is the version of the last published catalog (int64); `read_catalog` has the shard
    take it. A simulation brings its own `acks`. `timings` counts requests' times and errors,
    for other processes to read.
    """

    def __init__(  # noqa: PLR0913, PLR0917  (what a server is made of)
        self,
        loop: Loop,
        shard: Shard,
        peers: Peers,
        read_catalog: Callable[[], bool],
        published: np.ndarray,
        acks: Acks | None = None,
        timings: NodeTimings | None = None,
        submit: Submit | None = None,
    ) -> None:
        self._loop, self._shard, self._read_catalog = loop, shard, read_catalog
        self._config, self._quotas_version = shard.config, shard.quotas.version
        self._access_version, self._changed_users = -1, set[str]()  # None is followed yet.
        shard.access.when_user_changes = self._changed_users.add
        payloads = payloads_of(shard.config, peers, monotonic_ms)
        room = self._room = TurnRoom()
        references = self._references = References(payloads, shard.topic_of, shard.config, room)
        checks = self._checks = Validation(references, shard.topic_of, shard.config, room)
        timings = timings or NodeTimings.private()
        make_producing = partial(
            Producing, shard.logs, shard.config, shard.drain, checks,
            leader_of=shard.leader_elsewhere, errors=timings.errors.table[PRODUCE_KEY],
        )  # fmt: skip
        producing, in_steps = make_producing(), make_producing(in_steps=True)
        fetching = QuickFetch(shard, self._answer_left)
        self._buffers = BufferPool(shard.config.socket_request_max_bytes)
        acks = acks or Acks(shard)
        times = RequestTimes(timings, shard.config.slow_request_ms)
        self._times = acks.times = times
        slots = max(log.memory.layout.partition_capacity for log in shard.logs.values())
        self.polls = LongPolls(loop, slots)
        steps = Steps(loop)
        answering = Answering(peers, self.polls, steps, timings.errors)
        quick_turns = self._quick_turns = QuickTurns(
            loop.fileno(), shard, producing, fetching, self.polls.watched, published,
            partial(HeldAnswers, slow_ns=times.slow_ns, take_over=self._take_over_held),
        )  # fmt: skip
        self._held = quick_turns.held
        replies = self._replies = Replies(acks, answering, quick_turns.note)
        self.clients = Clients(loop, shard, self, self._welcome, quick_turns.last_used_ns)
        shared = self.clients.shared
        logins = self.logins = Logins(loop, shard, replies, submit, self._release, shared)
        unfinished = self._unfinished = UnfinishedRequests(
            loop, steps, peers, shard, in_steps, replies, self._buffers
        )
        self.requests = requests_of(steps, shard, producing, fetching, replies, unfinished, times)
        self.requests.renews = logins.renews
        self._parked = ParkedFetches(loop, quick_turns.parked, quick_turns.clients, self._take_over)
        self.turns = KernelTurns(
            loop, quick_turns, producing, self._buffers, replies, self._parked, self.clients,
            self._resume,
        )  # fmt: skip
        self.sessions = quick_turns.sessions
        self.when_catalog_changes: list[Callable[[], None]] = [
            producing.forget_rules, in_steps.forget_rules,
            self._parked.look_again, self.polls.look_again, unfinished.look_again,
        ]  # fmt: skip
        loop.turn_starts.append(self._begin_turn)
        loop.turn_ends.append(self._end_turn)

    def invariants(self) -> None:
        """Raise AssertionError if a request waits, between turns, for something that will never
        happen."""
        self.polls.invariants()
        self._replies.acks.invariants()
        self._held.invariants()
        self._unfinished.invariants()
        self._buffers.invariants(self.clients.by_fd.values())
        self.logins.invariants()

    # --- connections -----------------------------------------------------------------------------

    def _welcome(self, connection: Connection, entrance: Entrance) -> None:
        self._replies.touch(connection)
        self.logins.welcome(connection, entrance)

    def gone(self, connection: Connection) -> None:
        """See ConnectionOwner."""
        self.clients.remove(connection)
        self.logins.gone(connection)
        self._quick_turns.forget(connection.fd)
        self._buffers.drop(connection.rest)
        for poll in connection.polls:
            self.polls.drop(poll)
        connection.polls.clear()
        self._unfinished.gone(connection)

    def count_turns(self) -> None:
        """Count how long the kernel's turns took; called once a second."""
        self._times.count_turns(self._quick_turns.words)

    def serve_syncs(self, fd: int) -> None:
        """The log's sync thread writes to this descriptor."""
        self._quick_turns.syncs_fd = fd

    def stop(self) -> None:
        """Take no new clients or requests; answer those received."""
        self.clients.stop()
        self._parked.unpark_all()
        self._held.release_all()
        self._unfinished.stop()
        for connection in list(self.clients.by_fd.values()):
            for poll in list(connection.polls):
                self.polls.end(poll)
            connection.close_after_answers()

    # --- receiving -------------------------------------------------------------------------------

    def readable(self, connection: Connection) -> None:
        """See ConnectionOwner."""
        self.logins.run(connection, self._read)

    def _read(self, connection: Connection) -> None:
        self._replies.touch(connection)
        self._release(connection)
        buffer = self._buffers.take(connection.rest)
        try:
            room = buffer.room()
            if connection.needs_loop:
                room = self.logins.room(connection, room)
            count = connection.socket.recv_into(room)
        except BlockingIOError:
            count = -1
        except OSError:
            count = 0
        if count == 0:
            connection.close()
        if connection.needs_loop:
            self.logins.received(connection, max(0, count))
        if count > 0 and not connection.closed:
            buffer.end += count
            connection.last_used_ns = monotonic_ns()
            self._loop.spin.wanted_ns = SPIN_MAX_NS if count <= SMALL_BYTES else 0
            self._take(connection, buffer)
        self._put_back(connection, buffer)

    def _take(self, connection: Connection, buffer: Buffer) -> None:
        """Take what was received: a login, requests, or a login behind requests."""
        if connection.needs_loop or connection.session is not None:
            self.logins.look(connection, buffer)
        while not connection.closed:
            if connection.login is not None:
                self.logins.take(connection, buffer)
                if connection.login is not None:
                    return
            self.requests.take(connection, buffer)
            if connection.login is None:
                return

    def _release(self, connection: Connection) -> None:
        """Take a connection back from the kernel's tables."""
        self._parked.unpark(connection.fd)
        self._held.release(connection.fd)

    def _take_over(self, fd: int, parked: Parked) -> None:
        """See ParkedFetches."""
        connection = self.clients.by_fd[fd]
        connection.last_used_ns = monotonic_ns()
        self._replies.touch(connection)
        self.requests.take_over(connection, parked)
        if parked.is_outdated:
            self.polls.outdate(list(connection.polls))

    def _take_over_held(self, fd: int, answer: HeldAnswer) -> None:
        """See HeldAnswers."""
        connection = self.clients.by_fd[fd]
        connection.last_used_ns = monotonic_ns()
        self._replies.touch(connection)
        acks = self._replies.acks
        acks.queue(connection, answer.rest, answer.marks, began_ns=answer.began_ns)

    def _answer_left(self, request: memoryview, caller: Caller, loan: Loan) -> Message | Ask | Wait:
        """Answer a waiting fetch that the kernel leaves. It has no session: it asks no clock."""
        return dispatch(request, self._shard, Now(0, 0), caller, loan).result

    def resumable(self, connection: Connection) -> None:
        """See ConnectionOwner."""
        self.logins.run(connection, self._take_rest)

    def _take_rest(self, connection: Connection) -> None:
        self._replies.touch(connection)
        buffer = self._buffers.take(connection.rest)
        self._take(connection, buffer)
        self._put_back(connection, buffer)
        may_read = not (connection.closed or connection.is_closing or connection.is_full)
        if may_read and connection in self.logins.newcomers:
            self._read(connection)  # It may have waited for its turn to do so.

    def _resume(self, connection: Connection, buffer: Buffer, produced: Produced) -> None:
        """Continue with the requests of a connection that a kernel left."""
        self._replies.touch(connection)
        self.requests.go_on(connection, buffer, produced, monotonic_ms())
        if produced.stop != STOP_NEED_MORE:
            self._take(connection, buffer)
        self._put_back(connection, buffer)

    def _put_back(self, connection: Connection, buffer: Buffer) -> None:
        if connection.closed or connection.is_closing:
            buffer.start = buffer.end  # Take nothing more from it.
        now_ns = monotonic_ns()
        self._buffers.put_back(buffer, connection.rest, now_ns)
        connection.pause_if_full()
        for slow in self._buffers.slowest(self.clients.by_fd.values(), now_ns):
            slow.close()
        self._read_on(connection)

    def _read_on(self, connection: Connection) -> None:
        """Read in the next turn what TLS holds: the socket does not announce it."""
        tls = connection.tls
        if tls is None or tls.is_due or not tls.wants_turn or connection.closed:
            return
        if not (connection.is_closing or connection.is_full):
            tls.is_due = True

            def read() -> None:
                tls.is_due = False
                connection.pause_if_full()  # It may have been throttled since: then it resumes.
                if not (connection.closed or connection.is_closing or connection.is_full):
                    self.readable(connection)

            self._loop.call_later(0, read)

    # --- the turn --------------------------------------------------------------------------------

    def _begin_turn(self) -> None:
        self._room.begin_turn()
        self.clients.shared.begin_turn()
        self._follow_access()
        if self._read_catalog():
            if self._shard.config is not self._config:
                self._take_settings(self._shard.config)
            if self._shard.quotas.version != self._quotas_version:
                self._quotas_version = self._shard.quotas.version
                self._held.release_all()
                for connection in self.clients.by_fd.values():
                    look(connection, self._shard.quotas)
                    self._replies.touch(connection)
            for changed in self.when_catalog_changes:
                changed()

    def _follow_access(self) -> None:
        """Answer what waits by the rights of now, and drop who has logged in with what the user's
        password is no longer checked with."""
        access = self._shard.access
        access.refresh()
        if access.version == self._access_version:
            return
        self._access_version = access.version
        if self._quick_turns.limits is not None:
            self._quick_turns.limits.follow(access.version)
            self._parked.look_again()
        self.polls.look_again()
        self.logins.drop_changed(self._changed_users)
        self._changed_users.clear()

    def _take_settings(self, config: Config) -> None:
        """Use other settings from now on."""
        self._config = config
        self._references.config = self._checks.config = config
        self._quick_turns.take_settings(config)
        self.clients.take_settings(config)
        if self.turns.door is not None:
            self.turns.door.take_settings(config)

    def _end_turn(self) -> None:
        shard = self._shard
        if DURABILITY_MEMORY in shard.levels:
            for log in shard.logs.values():
                shard.publish(log, DURABILITY_MEMORY)
            self._tell_moved()
        acks = self._replies.acks
        self._held.release_due(is_shown=DURABILITY_DISK in shard.levels)
        acks.write()
        if acks.show_synced():  # Woken by the disk, or by a client that asks again at once.
            self._loop.spin.wanted_ns = SPIN_SYNC_NS
        self._tell_moved()
        self._replies.end_turn()

    def _tell_moved(self) -> None:
        if self._shard.moved:
            places = self._shard.take_moved()
            self._parked.moved(slot for _, slot in places)
            self.polls.moved(places)
            if self.turns.door is not None:
                self.turns.door.moved(places)

    # --- for the local door (door/sessions.py, RequestHandler) -----------------------------------

    def produce(
        self, session: Session, data: np.ndarray, end: int, first: Produced | None = None
    ) -> str:
        """See Requests."""
        return self.requests.produce(session, data, end, first)

    def take_awake(self) -> bool:
        """See KernelTurns."""
        return self.turns.take_awake()

    def note(self, client: Session) -> None:
        """See Replies."""
        self._replies.note(client)

    def forget(self, session: Session) -> None:
        """Forget a closed session."""
        self.sessions.remove(session)
        self._quick_turns.forget(session.fd)
