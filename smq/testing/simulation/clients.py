"""Clients of the broker: they speak Kafka's protocol over simulated connections.

A client sends a request and gets the answer, or learns that its connection has closed; it
reconnects after a pause. The ledger records the answers.
"""

import heapq
import select
from collections import deque
from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any, NamedTuple, TypeAlias

from smq.model.errors import ErrorCode
from smq.testing.simulation.clock import MS
from smq.testing.simulation.environment import Environment
from smq.testing.simulation.host import node_address
from smq.testing.simulation.ledger import Broken, Incarnation, Part
from smq.testing.simulation.logging_in import SimLogin
from smq.testing.simulation.people import UID, Identity
from smq.wire.codec import Writer
from smq.wire.generated.apis import API_BY_NAME
from smq.wire.headers import RequestHeader, read_response_header, write_request_header

PAUSE_MS = 20.0  # Before it reconnects or retries.
VAIN_MAX, LONG_PAUSE_MS = 50, 250.0  # A log may be full for minutes.
RECEIVE_BYTES = 1 << 16
PAUSED_BYTES = 64  # Of answers in the socket of a client that reads nothing.
Message: TypeAlias = Any
"""One of the generated requests or responses, of which there are many."""

MOVED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
)
"""Another node may lead, or in another epoch: clients ask for metadata and try again."""

Answered = Callable[[Message], None]


class RequestInFlight(NamedTuple):
    """A request in flight. `may_not`: why it must not be served."""

    correlation: int
    name: str
    version: int
    answered: Answered
    sent_ns: int
    wait_ms: int
    may_not: str = ""


class HeldRequest(NamedTuple):
    """A request that waits for a login."""

    name: str
    version: int
    message: Message
    answered: Answered
    asked_ns: int
    wait_ms: int


class SimConnection:
    """A connection to one node, until it breaks. Answers come in the order of the requests.

    held    requests that wait for its login
    """

    def __init__(self, client: "SimClient", node: int) -> None:
        world, identity = client.world, client.identity
        self.client, self.node = client, node
        self.socket = world.network.connect(node_address(node, identity), (client.name, 1))
        self.socket.owner = client
        self.asked: deque[RequestInFlight] = deque()
        self.held: deque[HeldRequest] = deque()
        self._out, self._received = bytearray(), bytearray()
        self.is_open, self.is_paused = True, False
        self.login: SimLogin | None = None
        if identity is not None and identity.mechanism:
            self.login = SimLogin(
                world, self, identity, client.password, client.make_nonce, renews=client.renews
            )
        elif identity is not None:
            self.socket.uid = UID

    def begin(self) -> None:
        """Log in, if clients must."""
        if self.login is not None:
            self.login.begin()

    def ask(
        self, name: str, version: int, message: Message, answered: Answered, wait_ms: int = 0
    ) -> None:
        """Send a request, once it has logged in; `answered` gets the response, or None if the
        connection breaks."""
        may_ask = self._may_ask()
        if not self.is_open:  # It broke meanwhile.
            answered(None)
        elif may_ask:
            self.send(name, version, message, answered, wait_ms)
        else:
            now_ns = self.client.world.clock.now_ns
            self.held.append(HeldRequest(name, version, message, answered, now_ns, wait_ms))

    def _may_ask(self) -> bool:
        """Whether requests may be sent. If a login is due it begins, once all is answered."""
        login = self.login
        if not self.is_open:
            return False
        if login is None or not (login.is_busy or login.is_due):
            return True
        if not (login.is_busy or self.asked):
            login.begin()
        return False

    @property
    def is_free(self) -> bool:
        """Whether nothing is asked of it but its login."""
        is_logging_in = self.login is not None and self.login.is_busy
        return not self.held and (is_logging_in or not self.asked)

    def is_in(self) -> None:
        """See LoggingIn."""
        held, self.held = self.held, deque()
        for each in held:
            self.ask(each.name, each.version, each.message, each.answered, each.wait_ms)

    def send(
        self, name: str, version: int, message: Message, answered: Answered, wait_ms: int = 0
    ) -> None:
        """Send a request."""
        api = API_BY_NAME[name]
        correlation = next(self.client.correlations)
        writer = Writer()
        write_request_header(RequestHeader(api.key, version, correlation, "simulated"), writer)
        api.write_request(message, version, writer)
        body = writer.to_bytes()
        self._out += len(body).to_bytes(4) + body
        now_ns, may_not = self.client.world.clock.now_ns, self._may_not(name)
        self.client.is_touched = True
        self.asked.append(
            RequestInFlight(correlation, name, version, answered, now_ns, wait_ms, may_not)
        )
        self.turn()

    def _may_not(self, name: str) -> str:
        """Why a request that is sent now must not be served; "": it may."""
        login = self.login
        if login is None or login.is_busy:
            return ""
        if login.is_dead:
            return f"{name} after its password was changed"
        return f"{name} after its session" if login.is_over else ""

    def turn(self) -> None:
        """Send and receive as much as possible."""
        try:
            while self._out:
                del self._out[: self.socket.send(self._out)]
        except BlockingIOError:
            pass
        except OSError:
            self.broken()
            return
        if self.is_paused:
            return
        try:
            while data := self.socket.recv(RECEIVE_BYTES):
                self._received += data
                self._take_answers()
        except BlockingIOError:
            return
        except OSError:
            pass
        self.broken()

    def _take_answers(self) -> None:
        while len(self._received) >= 4 and self.is_open:
            end = 4 + int.from_bytes(self._received[:4])
            if len(self._received) < end:
                return
            body = bytes(self._received[4:end])
            del self._received[:end]
            if not self.asked:
                raise Broken(f"{self.client.name} gets an answer without a request")
            asked = self.asked.popleft()
            if int.from_bytes(body[:4]) != asked.correlation:
                raise Broken(f"{self.client.name} gets another answer than that to {asked.name}")
            if asked.may_not:
                raise Broken(f"{self.client.name} is served {asked.may_not}")
            api = API_BY_NAME[asked.name]
            _, at = read_response_header(body, 0, api.key, asked.version)
            asked.answered(api.read_response(body, at, asked.version))
            if self.held and self._may_ask():
                self.is_in()

    def pause(self, ms: float) -> None:
        """Read nothing for about this long: little waits in the socket, the rest at the peer."""
        self.is_paused = True
        self.socket.narrow(PAUSED_BYTES)
        self.client.later(ms, self.resume)

    def resume(self) -> None:
        """Read again."""
        self.is_paused, self.client.is_touched = False, True
        self.socket.narrow(None)

    def broken(self) -> None:
        """Close it and fail the waiting requests."""
        if self.is_open:
            self.is_open = False
            self.socket.close()
            del self.client.connections[self.node]
            self.client.not_before[self.node] = self.client.after_ns(PAUSE_MS)
            while self.asked:
                self.asked.popleft().answered(None)
            while self.held:
                self.held.popleft().answered(None)

    def is_ready(self) -> bool:
        """Whether a turn would do anything."""
        mask = self.socket.events()
        is_readable = bool(mask & ~select.EPOLLOUT) and not self.is_paused
        return is_readable or bool(self._out and mask & select.EPOLLOUT)

    def next_due_ns(self) -> int | None:
        """When the next bytes arrive that it will read; while it is paused, its client's timer is
        due."""
        return None if self.is_paused else self.socket.next_due_ns()


class SimClient:
    """A client, with a connection to each node it needs.

    identity   who it is; None: nobody asks
    renews     whether it logs in again before its session ends
    """

    renews = True

    def __init__(self, world: Environment, name: str) -> None:
        self.world, self.name = world, name
        self.identity: Identity | None = world.identity_of(name)
        self.chance = Random(f"{world.seed} {name}")  # noqa: S311
        self.connections: dict[int, SimConnection] = {}
        self._home = self.chance.randrange(4)
        self.not_before: dict[int, int] = {}
        self._logs: dict[Part, int] = {}  # Of partitions that were led elsewhere than at first.
        self.correlations = count(1)
        self.is_touched = False
        self.in_vain = 0  # So many retries since something was taken.
        self._arrival_ns: int | None = None
        self._later: list[tuple[int, int, Callable[[], None]]] = []
        self._tie_breaker = count()

    @property
    def password(self) -> int:
        """Which of its passwords it uses."""
        return 0

    def make_nonce(self) -> str:
        """What makes a login another one than those before."""
        return f"{self.chance.getrandbits(96):x}"

    def before_call(self, _method: str) -> None:
        """See SocketOwner. Clients never die."""

    def after_ns(self, delay_ms: float) -> int:
        """A time this long from now, with jitter."""
        return self.world.clock.now_ns + int(delay_ms * (0.5 + self.chance.random()) * MS)

    def later(self, delay_ms: float, action: Callable[[], None]) -> None:
        """Run an action after a delay, with jitter."""
        due_ns = self.after_ns(delay_ms)
        heapq.heappush(self._later, (due_ns, next(self._tie_breaker), action))

    def again(self, action: Callable[[], None]) -> None:
        """Retry after a pause, a longer one after many retries in vain."""
        self.in_vain += 1
        self.later(PAUSE_MS if self.in_vain < VAIN_MAX else LONG_PAUSE_MS, action)

    def connection(self, node: int) -> SimConnection | None:
        """A connection to a node; None if there is none now."""
        if node not in self.connections:
            if self.world.clock.now_ns < self.not_before.get(node, 0):
                return None
            try:
                connection = self.connections[node] = SimConnection(self, node)
            except OSError:
                self.not_before[node] = self.after_ns(PAUSE_MS)
                return None
            connection.begin()
        return self.connections.get(node)

    def leader_of(self, incarnation: Incarnation, partition: int) -> int:
        """The node that leads a partition, as far as it knows."""
        log = self._logs.get((incarnation, partition), incarnation.topic.logs[partition])
        return self.world.host.leader_of(log)

    def look_again(self, incarnation: Incarnation, partition: int) -> None:
        """Another node may lead a partition now: find out, as by Metadata."""
        self._logs[incarnation, partition] = self.world.log_of(incarnation, partition)

    def any_connection(self) -> SimConnection | None:
        """A connection to any node: always the same one until it fails."""
        connection = self.connection(1 + self._home % self.world.host.config.shards)
        if connection is None:
            self._home += 1
        return connection

    def ask_until(  # noqa: PLR0913, PLR0917  (A request, and what is wanted of its answer.)
        self,
        name: str,
        version: int,
        message: Message,
        is_enough: Callable[[Message], bool],
        attempts: int = 30,
        wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        """Ask any node, repeatedly until the answer is accepted."""

        def again() -> None:
            if attempts > 1 and wanted():
                self.later(
                    PAUSE_MS,
                    lambda: self.ask_until(name, version, message, is_enough, attempts - 1, wanted),
                )

        def answered(response: Message) -> None:
            if response is None or not is_enough(response):
                again()

        connection = self.any_connection()
        if connection is None:
            again()
        else:
            connection.ask(name, version, message, answered)

    def is_ready(self, now_ns: int) -> bool:
        """Whether a turn would do anything."""
        if self._later and self._later[0][0] <= now_ns:
            return True
        if self.is_touched or (self._arrival_ns is not None and self._arrival_ns <= now_ns):
            connections = self.connections.values()
            self.is_touched = any(each.is_ready() for each in connections)
            dues = [due for each in connections if (due := each.next_due_ns()) is not None]
            self._arrival_ns = min(dues, default=None)
        return self.is_touched

    def turn(self) -> None:
        """Do the due work."""
        now_ns = self.world.clock.now_ns
        self.is_touched = True
        for connection in list(self.connections.values()):
            if connection.is_open and connection.is_ready():
                connection.turn()
        while self._later and self._later[0][0] <= now_ns:
            heapq.heappop(self._later)[2]()

    def next_due_ns(self) -> int | None:
        """When it becomes ready by itself."""
        dues = [self._arrival_ns, self._later[0][0] if self._later else None]
        return min((due for due in dues if due is not None), default=None)

    def is_waiting(self) -> bool:
        """Whether it waits for an answer."""
        return any(each.asked or each.held for each in self.connections.values())

    def oldest_wait(self, now_ns: int) -> tuple[float, str]:
        """How long it has waited for an overdue answer, and for which."""
        waits = [
            ((now_ns - each.sent_ns) / MS - each.wait_ms, f"{self.name}: {each.name}")
            for connection in self.connections.values()
            for each in connection.asked
        ]
        waits += [
            ((now_ns - each.asked_ns) / MS - each.wait_ms, f"{self.name}: {each.name}, a login")
            for connection in self.connections.values()
            for each in connection.held
        ]
        return max(waits, default=(0.0, ""))
