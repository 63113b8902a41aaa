"""Who calls, what that lets him do, and how long: each call is judged when it begins, and an open
stream again when users or rules change, and when its login ends.

    call ──▶ CallGate.enter: login, certificate, or nobody ──▶ Call ──▶ handler
                                                               ▲
                       CallGate.judge_all: users, rules, time ─┘

A handler reads, writes and asks for rights by its Call. So a message is read or written after each
change of the rules only if the rules as they are now allow it. A stream that is allowed no more
ends: UNAUTHENTICATED if its login holds no more, PERMISSION_DENIED if a right is gone.

Quotas count as on the wire: who owes waits before his next message.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ssl import PEM_cert_to_DER_cert
from typing import Any, NamedTuple, TypeAlias

import grpc

from smq.agent.read_records import WrittenAnswer
from smq.agent.rpc_rights import RpcRights, rights_of_rpc
from smq.agent.topic_names import TopicName
from smq.app.agent.apart import COPIED_AT_ONCE_BYTES, done_apart
from smq.app.agent.connections import address_of, end_connection
from smq.app.agent.logins import MetadataLogins
from smq.app.agent.refusals import CallRefused, NotAllowed, no_topic
from smq.app.process.clock import monotonic_ms
from smq.front.logins import LoggedIn
from smq.model.client_quotas import CONSUME, PRODUCE
from smq.model.config import Config
from smq.security.access import AccessView, NothingPublished
from smq.security.acls import CLUSTER_NAME, Operation, ResourceType
from smq.security.caller import certified
from smq.security.distinguished_names import MappingRules
from smq.security.principals import ANONYMOUS, USER, Peer, Principal
from smq.shard.quotas import ClientLimits, ClientQuotas

LOOK_S = 0.1  # Between two looks at what may end a stream.
STEP = 100  # Streams are judged in steps, for one with many claims takes some microseconds.
CLIENT_ID_CHARACTERS_MAX = 255  # As on the wire.
OPEN_READS_MAX, OPEN_READ_S_MAX = 16, 5.0  # Of calls without a login.
WAIT_S_MAX = 1.0  # Then quotas are looked at again: they may have changed.
WAITING = frozenset(
    {
        "FetchMessage",
        "GetUnflushedMessages",
        "ServerReflectionInfo",
        "SubscriberToSubCoordinator",
    }
)
"""They end with the process. Subscribers are told their end, and publishers their last answers."""

RpcContext: TypeAlias = grpc.aio.ServicerContext
Claim: TypeAlias = tuple[Operation, ResourceType, str]


class KnownCaller(NamedTuple):
    """Who calls, and the login by which that is known; None: there is none."""

    peer: Peer
    login: LoggedIn | None = None


class Call:
    """A call, as its handler has it."""

    def __init__(
        self, gate: "CallGate", context: RpcContext, method: str, who: KnownCaller
    ) -> None:
        self._gate, self._context, self._login = gate, context, who.login
        self.rights = gate.access.rights_of(who.peer)
        self.rights.api = f"gRPC {method}"
        self.asker = who.peer if gate.has_rules else None
        """In whose name the broker is asked; None: in its own."""
        self.method, self.owner = method, str(who.peer.principal)
        self._needs: RpcRights = rights_of_rpc(method)
        self._claims: list[Claim] = []
        self._client_id = ""
        self.limits: ClientLimits | None = None
        self._task = asyncio.current_task()
        self._judged = gate.access.version
        self._ends_ms = None if who.login is None else _end_ms(who.login, gate.lifetime_ms)
        self.ended: CallRefused | None = None
        self.is_interrupted = False
        self.look_up_limits()

    # --- what gRPC's contexts have ---------------------------------------------------------------

    async def read(self) -> Any:  # noqa: ANN401  (a message, or EOF)
        """The next request."""
        if self.limits is not None:
            await self._pay(PRODUCE)
        request = await self._context.read()
        if isinstance(request, CallRefused):  # It was no request.
            raise request
        self.stand()
        if self._needs.quota == PRODUCE and request is not grpc.aio.EOF and self.limits is not None:
            self.limits.produced(_bytes_of(request), monotonic_ms())
        return request

    async def write(self, answer: Any) -> None:  # noqa: ANN401  (a message)
        """Send an answer. Raises CallRefused, also if the client has gone."""
        if self.limits is not None:
            await self._pay(CONSUME)
        if isinstance(answer, WrittenAnswer) and answer.ByteSize() > COPIED_AT_ONCE_BYTES:
            await done_apart(answer.join)
        self.stand()
        try:
            await self._context.write(answer)
        except grpc.aio.InternalError as error:
            sentence = "the client has gone"
            raise CallRefused(grpc.StatusCode.CANCELLED, sentence) from error
        self.charge_answer(answer)

    async def abort(self, status: grpc.StatusCode, sentence: str) -> None:
        """End with a status."""
        await self._context.abort(status, sentence)

    def when_done(self, function: Callable[[], object]) -> None:
        """Call it once the call has ended, and its answer is sent."""
        self._context.add_done_callback(lambda _: function())

    def give_up_after(self, seconds: float) -> None:
        """End the client's connection, with all its calls, if this one has not ended by then: gRPC
        has no way to end a call whose answer is not taken."""
        cutting = asyncio.get_running_loop().call_later(seconds, self._cut_off)
        self.when_done(cutting.cancel)

    def _cut_off(self) -> None:
        asyncio.get_running_loop().run_in_executor(None, end_connection, self.peer())

    def peer(self) -> str:
        """The address of the other end, as gRPC writes it."""
        return str(self._context.peer())

    def invocation_metadata(self) -> Any:  # noqa: ANN401  (as gRPC has it)
        """What came with the call."""
        return self._context.invocation_metadata()

    # --- rights ----------------------------------------------------------------------------------

    def check(self, topic: TopicName | None = None, group: str = "") -> None:
        """Have the rights that the method's row asks for, now and until the call ends.

        Raises NotAllowed, and CallRefused as for a topic that there is not.
        """
        names = {
            ResourceType.TOPIC: "" if topic is None else topic.kafka_name,
            ResourceType.GROUP: group,
            ResourceType.CLUSTER: CLUSTER_NAME,
        }
        for needed in self._needs.needs:
            if name := names[needed.resource]:
                if not self.rights.asks(needed.operation, needed.resource, name):
                    if needed.resource is ResourceType.TOPIC and not self.sees(name):
                        raise no_topic(topic)
                    raise NotAllowed(f"this needs {needed} {name}")
                self._claims.append((needed.operation, needed.resource, name))

    def sees(self, topic: str) -> bool:
        """Whether the caller may know of a topic, by Kafka's name."""
        return self.rights.topic(Operation.DESCRIBE, topic)

    # --- quotas ----------------------------------------------------------------------------------

    def name_client(self, client_id: str) -> None:
        """The client has named itself."""
        self._client_id = client_id[:CLIENT_ID_CHARACTERS_MAX]
        self.look_up_limits()

    def look_up_limits(self) -> None:
        """Quotas may have changed."""
        quotas = self._gate.quotas
        user = self.rights.peer.principal.name
        self.limits = quotas.of(user, self._client_id) if quotas.is_on else None

    def charge_answer(self, answer: Any) -> None:  # noqa: ANN401  (a message)
        """Charge the caller for an answer."""
        if self.limits is not None and self._needs.quota == CONSUME:
            self.limits.fetched(_bytes_of(answer), monotonic_ms())

    async def pay(self) -> None:
        """Wait until the caller owes nothing."""
        await self._pay(self._needs.quota)

    async def _pay(self, quota: str) -> None:
        while self.limits is not None and quota and quota == self._needs.quota:
            charge = self.limits.produced if quota == PRODUCE else self.limits.fetched
            wait_ms = charge(0, monotonic_ms())
            if not wait_ms:
                return
            await asyncio.sleep(min(WAIT_S_MAX, wait_ms / 1000))

    # --- being judged ----------------------------------------------------------------------------

    def stand(self) -> None:
        """Go on only if the call still may. Raises CallRefused."""
        if self._gate.access.refresh() != self._judged:
            self._judge()
        if self.ended is not None:
            raise self.ended

    def look(self, now_ms: int) -> None:
        """End the call, whatever it waits for, if it may not go on."""
        if self._ends_ms is not None and now_ms >= self._ends_ms and self.ended is None:
            self.end(grpc.StatusCode.UNAUTHENTICATED, "the login has ended; log in again")
        if self._gate.access.refresh() != self._judged:
            self._judge()
        if self.ended is not None and not self.is_interrupted:
            assert self._task is not None
            self.is_interrupted = self._task.cancel()

    def _judge(self) -> None:
        self._judged = self._gate.access.refresh()
        if self._login is not None and not self._login.checked.is_current():
            self.end(grpc.StatusCode.UNAUTHENTICATED, "the login holds no more")
        for operation, resource, name in self._claims:
            if self.ended is None and not self.rights.asks(operation, resource, name):
                sentence = f"{operation.name} on {resource.name.lower()} {name} is allowed no more"
                self.end(grpc.StatusCode.PERMISSION_DENIED, sentence)

    def end(self, status: grpc.StatusCode, sentence: str) -> None:
        """Let the call go on no more."""
        self.ended = CallRefused(status, sentence)


class CallGate:
    """What calls come through at one port.

    has_rules    access rules decide who may do what
    lifetime_ms  after which who has logged in must do so again; 0: he need not
    """

    def __init__(  # noqa: PLR0913  (what decides about a call)
        self,
        listener: str,
        access: AccessView,
        quotas: ClientQuotas,
        *,
        logins: MetadataLogins | None = None,
        naming: MappingRules | None = None,
        lifetime_ms: int = 0,
    ) -> None:
        self._listener, self.access, self.quotas = listener, access, quotas
        self._logins, self._naming, self.lifetime_ms = logins, naming, lifetime_ms
        self.has_rules = access.authorizer is not None
        self._open: set[Call] = set()
        self._quotas_version = quotas.version

    @property
    def reads_late(self) -> bool:
        """Whether nothing of a call is read before it is let in."""
        return self._logins is not None

    async def first(self, context: RpcContext) -> Any:  # noqa: ANN401  (a message, or EOF)
        """The first request of a call that is let in."""
        return await context.read()

    async def enter(self, context: RpcContext, method: str) -> Call:
        """Let a call in. Raises CallRefused."""
        return Call(self, context, method, await self._who(context))

    async def _who(self, context: RpcContext) -> KnownCaller:
        host = host_of(context.peer())
        if self._logins is not None:
            found = await self._logins.find(context.invocation_metadata() or (), host)
            return KnownCaller(Peer(Principal(USER, found.user), host, self._listener), found)
        principal: Principal | None = ANONYMOUS
        if self._naming is not None:
            principal = certified(_certificate(context), self._naming)
        if principal is None:
            sentence = "the certificate names nobody who may come in"
            self.access.audit.login_failed(host, self._listener, "certificate")
            raise CallRefused(grpc.StatusCode.UNAUTHENTICATED, sentence)
        return KnownCaller(Peer(principal, host, self._listener))

    @contextmanager
    def opened(self, call: Call) -> Iterator[None]:
        """While a handler works on a call, it may be ended. Raises CallRefused if it was."""
        self._open.add(call)
        try:
            yield
        except NotAllowed as refused:
            raise CallRefused(grpc.StatusCode.PERMISSION_DENIED, str(refused)) from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None
            if call.ended is None or not call.is_interrupted or task.uncancel():
                raise  # The client has gone.
            raise call.ended from None
        finally:
            self._open.discard(call)

    def stop(self) -> None:
        """The process ends, and what only waits with it: a call that may wait for a minute."""
        for call in self._open:
            if call.method in WAITING:
                call.end(grpc.StatusCode.UNAVAILABLE, "the broker stops")
                call.look(monotonic_ms())

    async def look(self) -> None:
        """Judge what is open, if anything has changed. Called every LOOK_S."""
        now_ms = monotonic_ms()
        quotas_moved = self.quotas.version != self._quotas_version
        self._quotas_version = self.quotas.version
        for number, call in enumerate([*self._open], 1):
            if call not in self._open:
                continue
            call.look(now_ms)
            if quotas_moved:
                call.look_up_limits()
            if not number % STEP:
                await asyncio.sleep(0)


class OpenGate(CallGate):
    """Lets everybody in, whatever the rules say, but few at a time until their requests are here: a
    request may have megabytes."""

    def __init__(self) -> None:
        super().__init__("", AccessView(NothingPublished(), Config()), ClientQuotas())
        self._reading = 0

    @property
    def reads_late(self) -> bool:
        """See CallGate."""
        return True

    async def first(self, context: RpcContext) -> Any:  # noqa: ANN401  (a message, or EOF)
        """See CallGate."""
        if self._reading >= OPEN_READS_MAX:
            raise CallRefused(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many calls; try again")
        self._reading += 1
        try:
            async with asyncio.timeout(OPEN_READ_S_MAX):
                return await context.read()
        except TimeoutError:
            sentence = "the request did not come"
            raise CallRefused(grpc.StatusCode.DEADLINE_EXCEEDED, sentence) from None
        finally:
            self._reading -= 1


def host_of(peer: str) -> str:
    """The address in what gRPC calls a peer, as rules name it."""
    found = address_of(peer)
    return "" if found is None else found[0]


def _certificate(context: RpcContext) -> bytes | None:
    """The client's, in DER; None: it has shown none. Of a session that was resumed it is no
    certificate: nobody has proved to have its key."""
    known = context.auth_context()
    shown = known.get("x509_pem_cert")
    if not shown:
        return None
    is_resumed = known.get("ssl_session_reused") == [b"true"]
    return b"" if is_resumed else PEM_cert_to_DER_cert(shown[0].decode("ascii"))


def _end_ms(login: LoggedIn, lifetime_ms: int) -> int | None:
    """When a login ends, by the monotonic clock; None: never."""
    lasts_ms = min(1000 * login.seconds, lifetime_ms or 1000 * login.seconds)
    return None if lasts_ms == float("inf") else monotonic_ms() + int(lasts_ms)


def _bytes_of(message: Any) -> int:  # noqa: ANN401  (a message, or a Received)
    return int(message.ByteSize()) if hasattr(message, "ByteSize") else len(message.data)
