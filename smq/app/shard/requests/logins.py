"""Who a connection belongs to: from accept to its login, and again when that has to be renewed.

    accept ─▶ TLS ─▶ SASL, or the client's certificate ─▶ requests ─▶ …
                      ▲                                              │ SaslHandshake
                      └──────── the login must be renewed ◀──────────┘

On a unix socket the kernel says which user has connected, and only the name is looked up. The front
says for whom it asks, and from where.

Until then a connection is a newcomer: its bytes, its time, the number of its like, and what they
take of a turn together are bounded, and no kernel touches it. Answers to a login stand in the order
of the requests before it. A failure is answered late, so that passwords are not tried quickly, and
counted from when the token came: how long its check took cannot be seen.
"""

from collections import deque
from collections.abc import Callable, Mapping, Set
from functools import partial

from gateway.login import Checking, Login, LoginSession, Reply
from shm.cluster import LoginCounts
from shm.kernels.base.wire import SIZE_BYTES
from shm.peer import peer_of
from smq.app.process import clock
from smq.app.process.clock import monotonic_ns
from smq.app.process.lane import ThreadLane
from smq.app.process.loop import Loop, Timer
from smq.app.process.unix_users import principal_of_user
from smq.app.shard.connections.connection import Connection, Slot
from smq.app.shard.connections.entrance import Entrance
from smq.app.shard.connections.newcomers import Newcomers
from smq.app.shard.connections.newcomers_queue import NewcomersQueue
from smq.app.shard.connections.receive import Buffer
from smq.app.shard.connections.tls_socket import SharedTurn, TlsSocket
from smq.app.shard.requests.fair_lane import FairLane, Submit
from smq.app.shard.requests.replies import Replies
from smq.model.errors import BrokerError, ErrorCode, PeerError
from smq.security.addresses import network_of
from smq.security.external import Named
from smq.security.principals import ANONYMOUS, Peer, Principal
from smq.security.sasl import RESERVED_PREFIX
from smq.shard.shard import Shard
from smq.wire.generated import apis

RENEWALS_NS = 1_000_000_000  # A login is renewed at most once a second, as in Kafka.
NOTICES_NS = 60 * 1_000_000_000  # Failed logins are told of once a minute.
LOOKS_A_TURN = 64  # At connections that may have to be closed, which takes up to 75 µs each.
FRAMES_A_TURN = 4  # Of one newcomer: as many as a login has, if it sends all of them at once.
UNIX_SOCKET, TLS = "unix socket", "TLS"  # How somebody logs in, in the audit log.
KEY_BYTES = 2
_FAILED = {int(ErrorCode.SASL_AUTHENTICATION_FAILED): 1}


class Guest:
    """What is known of a connection through an entrance that is not open."""

    __slots__ = (
        "entrance",
        "expiry",
        "has_expired",
        "is_doubtful",
        "received_bytes",
        "renewed_ns",
    )

    def __init__(self, entrance: Entrance) -> None:
        self.entrance = entrance
        self.received_bytes = 0  # Of a newcomer without TLS.
        self.expiry: Timer | None = None
        self.has_expired = False
        self.is_doubtful = False  # What it has logged in with may have changed.
        self.renewed_ns = 0  # When it last began to renew its login (monotonic); 0: never.


class Logins:
    """The logins of one shard.

    submit        hashes passwords and finds users' names; None: threads do, one for each, since a
                  directory service may take seconds. Fairly by `lane`, and by `names`
    release       takes a connection back from a kernel's tables
    shared        the time that newcomers have of a turn
    notices       of failed logins, for the operator
    """

    def __init__(  # noqa: PLR0913, PLR0917  (what they share with the server)
        self,
        loop: Loop,
        shard: Shard,
        replies: Replies,
        submit: Submit | None,
        release: Callable[[Connection], None],
        shared: SharedTurn,
    ) -> None:
        self._loop, self._shard, self._replies = loop, shard, replies
        self._release = release
        self.lane = FairLane(submit or ThreadLane(loop, "logins").submit)
        self.names = FairLane(submit or ThreadLane(loop, "users").submit)
        self.newcomers = Newcomers(loop)
        self._queue = NewcomersQueue(loop, shared, self.newcomers.host_of)
        self._known: dict[Connection, Guest] = {}
        self._doubtful: deque[Connection] = deque()  # To be looked at, some in a turn.
        self.logged_in_count = self.failed_count = self.expired_count = 0
        self._told_count, self._told_ns = 0, 0
        self.notices: list[str] = []

    def invariants(self) -> None:
        """Assert that each newcomer is known, and that no kernel may serve it."""
        self.newcomers.invariants()
        self._queue.invariants()
        for each in self.newcomers:
            assert isinstance(each, Connection)
            assert each in self._known
            assert each.needs_loop

    # --- newcomers -------------------------------------------------------------------------------

    def welcome(self, connection: Connection, entrance: Entrance) -> None:
        """A connection has come through an entrance. May close others."""
        self._identify(connection, ANONYMOUS, entrance)
        if entrance.is_open:
            return
        self._known[connection] = Guest(entrance)
        if entrance.users is not None:
            self._welcome_user(connection, entrance.users)
            return
        # The front waits behind no flood of this host's.
        address = entrance.listener if entrance.is_front else network_of(connection.caller.host)
        self.newcomers.add(connection, address)
        connection.needs_loop = True
        if entrance.rules is not None:
            connection.login = Login(entrance.rules, self._shard, connection.caller)

    def _welcome_user(self, connection: Connection, users: Mapping[int, Principal]) -> None:
        """A user of this host has connected."""
        assert not isinstance(connection.socket, TlsSocket), "the kernel tells who has connected"
        uid = peer_of(connection.socket).uid
        if uid in users:
            self._enter(connection, users[uid], UNIX_SOCKET)
            return
        address = f"{RESERVED_PREFIX}{uid}"
        self.newcomers.add(connection, address)
        connection.needs_loop = True
        connection.working += 1
        connection.pause_if_full()

        def found(principal: Principal | OSError) -> None:
            assert isinstance(principal, Principal), "it does not fail"
            connection.working -= 1
            if not connection.closed:
                self._enter(connection, principal, UNIX_SOCKET)
                self._replies.change(connection)

        self.names.add(connection, address, partial(principal_of_user, uid), found)

    def gone(self, connection: Connection) -> None:
        """It is closed."""
        self.newcomers.forget(connection)
        self._queue.forget(connection)
        self.lane.forget(connection)
        self.names.forget(connection)
        if connection.tls is not None and connection.tls.has_failed:
            self.failed_count += 1
            self._tell_failure(connection, TLS)
        known = self._known.pop(connection, None)
        if known is not None and known.expiry is not None:
            known.expiry.cancel()

    def run(self, connection: Connection, work: Callable[[Connection], None]) -> None:
        """Do what a connection wants; newcomers have turns."""
        if connection.needs_loop and connection in self.newcomers:
            self._queue.run(connection, work)
        else:
            work(connection)

    def room(self, connection: Connection, view: memoryview) -> memoryview:
        """Where to receive: a newcomer's bytes are bounded."""
        if connection not in self.newcomers or connection.tls is not None:
            return view
        left = self._shard.config.sasl_server_max_receive_size
        return view[: max(1, left - self._known[connection].received_bytes)]

    def received(self, connection: Connection, count: int) -> None:
        """So many bytes have come, or some of a TLS handshake. Lets in who has a certificate, or
        needs none; closes who sends too much."""
        if connection not in self.newcomers or connection.closed:
            return
        known, tls = self._known[connection], connection.tls
        known.received_bytes = known.received_bytes + count if tls is None else tls.received_bytes
        if known.received_bytes > self._shard.config.sasl_server_max_receive_size:
            connection.close()
        elif tls is not None and tls.is_established and connection.login is None:
            principal = known.entrance.principal_of(tls.peer_certificate())
            if principal is None:
                self._count_failure(connection, "certificate")
                connection.close()
            else:
                self._enter(connection, principal, TLS)

    # --- logins ----------------------------------------------------------------------------------

    def take(self, connection: Connection, buffer: Buffer) -> None:
        """Take what a connection says to log in, until it has; of a newcomer some of it a turn."""
        taken = 0
        while (
            connection.login is not None
            and not (connection.closed or connection.is_closing or connection.is_full)
            and (frame := self._frame(buffer)) is not None
        ):
            taken, began_ns = taken + 1, monotonic_ns()
            try:
                reply = connection.login.take(frame, clock.now())
            except PeerError:
                reply = Reply(b"", has_failed=True)
            if isinstance(reply, Checking):
                self._check(connection, reply, began_ns)
            else:
                self._carry(connection, reply, began_ns)
            if taken == FRAMES_A_TURN and connection in self.newcomers and not connection.is_full:
                self._queue.wait(connection)

    def _frame(self, buffer: Buffer) -> memoryview | None:
        """The next frame, which is taken, an empty one if its size is impossible; None: it is not
        whole."""
        if buffer.end - buffer.start < SIZE_BYTES:
            return None
        start = buffer.start + SIZE_BYTES
        size = int.from_bytes(buffer.view[buffer.start : start], signed=True)
        if not 0 <= size <= self._shard.config.sasl_server_max_receive_size:
            buffer.start = buffer.end
            return memoryview(b"")
        if buffer.end < start + size:
            return None
        buffer.start = start + size
        return buffer.view[start : start + size]

    def _check(self, connection: Connection, checking: Checking, began_ns: int) -> None:
        """Have a password hashed, and take nothing more meanwhile."""
        connection.working += 1

        def work() -> bytes | BrokerError:
            try:
                return checking.work()
            except BrokerError as failure:
                return failure

        def done(answer: bytes | BrokerError | OSError) -> None:
            assert not isinstance(answer, OSError), "it does no IO"
            connection.working -= 1
            if connection.closed:
                return
            try:
                reply = checking.then(answer)
            except PeerError:
                reply = Reply(b"", has_failed=True)
            self._carry(connection, reply, began_ns)

        session, fd = connection.session, connection.fd
        # Who renews a login is known, and waits behind no flood from his address.
        address = network_of(connection.caller.host) if session is None else str(session.principal)
        self.lane.add(connection, address, work, done, partial(self._loop.has_ended, fd))

    def _carry(self, connection: Connection, reply: Reply, began_ns: int) -> None:
        if reply.has_failed:
            self._fail(connection, reply.answer, began_ns)
            return
        assert connection.login is not None
        self._answer(connection, reply.answer)
        if connection.login.session is not None:
            self._log_in(connection, connection.login.session)

    def _answer(self, connection: Connection, answer: bytes) -> None:
        if answer:
            connection.slots.append(Slot([answer], is_open=True))
        self._replies.touch(connection)
        self._replies.change(connection)

    def _fail(self, connection: Connection, answer: bytes, began_ns: int) -> None:
        """Answer when the delay is over, then close."""
        login = connection.login
        self._count_failure(connection, login.mechanism if login is not None else "")
        connection.working += 1
        spent_ms = (monotonic_ns() - began_ns) // 1_000_000
        delay_ms = self._shard.config.connection_failed_authentication_delay_ms

        def end() -> None:
            connection.working -= 1
            if not connection.closed:
                self._answer(connection, answer)
                connection.close_after_answers()

        self._loop.call_later(max(0, delay_ms - spent_ms), end)

    def _count_failure(self, connection: Connection, how: str) -> None:
        self.failed_count += 1
        self._tell_failure(connection, how)
        self._replies.answering.errors.add(apis.SASL_AUTHENTICATE.key, _FAILED)

    def _tell_failure(self, connection: Connection, how: str) -> None:
        """Not of whom: where a user is expected, people type passwords."""
        peer = connection.caller.rights.peer
        self._shard.access.audit.login_failed(peer.host, peer.listener, how)

    def counts(self) -> LoginCounts:
        """How many there are and were."""
        waiting = len(self.newcomers)
        return LoginCounts(waiting, self.logged_in_count, self.failed_count, self.expired_count)

    def notice_failures(self) -> None:
        """Note failed logins for the operator, once a minute."""
        count, now_ns = self.failed_count - self._told_count, monotonic_ns()
        if count and now_ns - self._told_ns >= NOTICES_NS:
            self.notices.append(f"failed logins since the last such line: {count}")
            self._told_count, self._told_ns = self.failed_count, now_ns

    def _log_in(self, connection: Connection, session: LoginSession) -> None:
        connection.login, connection.session = None, session
        if isinstance(session.checked, Named):
            connection.caller.host = session.checked.host
        self._enter(connection, session.principal, session.mechanism)
        known = self._known[connection]
        if known.expiry is not None:
            known.expiry.cancel()
        known.has_expired = False
        if session.lifetime_ms:
            expire = partial(self._expire, connection)
            known.expiry = self._loop.call_later(session.lifetime_ms, expire)

    def _enter(self, connection: Connection, principal: Principal, how: str) -> None:
        """It is known, and a kernel may serve it if it is plain."""
        self.logged_in_count += 1
        self.newcomers.forget(connection)
        self._identify(connection, principal, self._known[connection].entrance)
        if not self._known[connection].entrance.is_front:  # It tells of its users' logins itself.
            self._shard.access.audit.logged_in(connection.caller.rights.peer, how)
        connection.needs_loop = connection.tls is not None
        self._replies.touch(connection)

    def _identify(self, connection: Connection, principal: Principal, entrance: Entrance) -> None:
        caller = connection.caller
        peer = Peer(principal, caller.host, entrance.listener)
        caller.rights = self._shard.access.rights_of(peer)

    # --- sessions --------------------------------------------------------------------------------

    def drop_changed(self, users: Set[str]) -> None:
        """Close connections of these users, some of whose passwords have changed, if they have
        logged in with such a one: at their next request, or when their turn comes."""
        for connection, known in self._known.items() if users else ():
            session = connection.session
            if session is not None and session.principal.name in users:
                known.is_doubtful = connection.needs_loop = True
                self._replies.touch(connection)
                self._doubt(connection)

    def drop_withdrawn(self) -> None:
        """Close connections that have logged in with a token whose key its issuer has withdrawn."""
        for connection in self._known:
            self._doubt(connection)

    def _doubt(self, connection: Connection) -> None:
        """Look at it soon: there may be thousands, and each that closes takes up to 75 µs."""
        if not self._doubtful:
            self._loop.call_later(0, self._look_at_some)
        self._doubtful.append(connection)

    def _look_at_some(self) -> None:
        for _ in range(min(LOOKS_A_TURN, len(self._doubtful))):
            self._settle(self._doubtful.popleft())
        if self._doubtful:
            self._loop.call_later(0, self._look_at_some)

    def _settle(self, connection: Connection) -> None:
        """Close it, or go on with it as before."""
        known, session = self._known.get(connection), connection.session
        if known is None or connection.closed:
            return
        if session is not None and not session.checked.is_current():
            connection.close()
        elif known.is_doubtful:
            known.is_doubtful = False
            is_asked = known.has_expired or connection.login is not None
            connection.needs_loop = connection.tls is not None or is_asked
            self._replies.touch(connection)

    def _expire(self, connection: Connection) -> None:
        """From now on nothing is taken but a renewal; what waits is answered."""
        self._known[connection].has_expired = connection.needs_loop = True
        self._release(connection)
        self._replies.touch(connection)

    def look(self, connection: Connection, buffer: Buffer) -> None:
        """If its session has expired, begin to renew it, or close."""
        known = self._known.get(connection)
        if known is not None and known.is_doubtful:
            self._settle(connection)
        if known is None or connection.closed or connection.login is not None:
            return
        expiry = known.expiry
        if expiry is not None and not known.has_expired and expiry.left_ms() == 0:
            expiry.cancel()  # A turn takes what has come before it looks at timers.
            self._expire(connection)
        if not known.has_expired:
            return
        start = buffer.start + SIZE_BYTES
        key = bytes(buffer.view[start : min(start + KEY_BYTES, buffer.end)])
        if len(key) < KEY_BYTES:
            return  # Nothing is taken of so little.
        is_handshake = key == apis.SASL_HANDSHAKE.key.to_bytes(KEY_BYTES)
        if not (is_handshake and self.renews(connection)):
            self.expired_count += 1
            connection.close()

    def renews(self, connection: Connection) -> bool:
        """Whether its next request, a SaslHandshake, begins a login: its session has an end, and
        was not renewed just now."""
        known, session = self._known.get(connection), connection.session
        now_ns = monotonic_ns()
        if known is None or session is None or not session.lifetime_ms:
            return False
        if known.renewed_ns and now_ns - known.renewed_ns < RENEWALS_NS:
            return False
        rules = known.entrance.rules
        assert rules is not None, "it has logged in by SASL"
        known.renewed_ns = now_ns
        connection.login = Login(rules, self._shard, connection.caller, session)
        connection.needs_loop = True
        return True
