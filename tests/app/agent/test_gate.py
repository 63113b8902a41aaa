"""What lets a call in, how long it stays, and what it may: with fakes for gRPC and for time."""

import asyncio
import threading
from collections.abc import Callable, Mapping
from ssl import DER_cert_to_PEM_cert
from typing import Any

import grpc
import pytest

from smq.agent.proto import mq_broker_pb2 as pb
from smq.agent.read_records import WrittenAnswer
from smq.agent.topic_names import TopicName
from smq.app.agent import gate as gate_room
from smq.app.agent.apart import COPIED_AT_ONCE_BYTES
from smq.app.agent.gate import Call, CallGate, OpenGate, host_of
from smq.app.agent.logins import MetadataLogins
from smq.app.agent.refusals import CallRefused, NotAllowed
from smq.front.logins import LoggedIn
from smq.model.client_quotas import CLIENT, CONSUME, PRODUCE, USER, key_of
from smq.model.config import Config
from smq.model.security_settings import STANDARD_AUTHORIZER
from smq.security.access import AccessView
from smq.security.acls import AclBinding, Operation, ResourceType
from smq.security.distinguished_names import MappingRules
from smq.shard.quotas import ClientQuotas
from tests.front.users import may, may_with_cluster
from tests.security.test_distinguished_names import certificate, cn, name

TOPIC = TopicName("shop", "orders")
KAFKA_NAME = "shop.orders"


class Block:
    """Where rules are published; only their version is looked at."""

    version = 0

    def has_moved(self, version: int) -> bool:
        return version != self.version


class Access(AccessView):
    """Rules that a test changes."""

    def __init__(self, *rules: AclBinding, has_rules: bool = True) -> None:
        named = {"authorizer_class_name": STANDARD_AUTHORIZER} if has_rules else {}
        super().__init__(Block(), Config(**named))  # type: ignore[arg-type]
        for each in rules:
            self.rules.add(each)

    def take_away(self, rule: AclBinding) -> None:
        self.rules.remove(rule)
        self.version += 1

    def refresh(self) -> int:
        return self.version


class Checked:
    """A user's credential."""

    holds = True

    def is_current(self) -> bool:
        return self.holds


class Logins:
    """Everybody is alice."""

    def __init__(self, seconds: float = float("inf")) -> None:
        self.checked, self._seconds = Checked(), seconds

    async def find(self, *_: Any) -> LoggedIn:
        return LoggedIn("alice", self.checked, self._seconds)


class Context:
    """gRPC's side of a call: `requests` are read, and then it waits."""

    def __init__(self, *requests: Any, auth: Mapping[str, Any] | None = None) -> None:
        self._requests, self.written, self._auth = [*requests], list[Any](), auth or {}

    def peer(self) -> str:
        return "ipv4:10.0.0.7:1234"

    def invocation_metadata(self) -> tuple[()]:
        return ()

    def auth_context(self) -> Mapping[str, Any]:
        return self._auth

    async def read(self) -> Any:
        if not self._requests:
            await asyncio.Event().wait()
        return self._requests.pop(0)

    async def write(self, message: Any) -> None:
        self.written.append(message)


def gate_with(
    access: Access, logins: Logins | None = None, quotas: ClientQuotas | None = None, **more: Any
) -> CallGate:
    found: Any = logins or Logins()
    return CallGate("GRPC", access, quotas or ClientQuotas(), logins=found, **more)


def called(
    gate: CallGate, method: str, work: Callable[[Call], Any], context: Context | None = None
) -> Any:
    """What some work gives, as a call's handler."""

    async def talk() -> Any:
        given: Any = context or Context()
        call = await gate.enter(given, method)
        with gate.opened(call):
            return await work(call)

    return asyncio.run(talk())


async def wait(_: Call) -> None:
    await asyncio.Event().wait()


# --- who ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:10.0.0.7:1234", "10.0.0.7"),
        ("ipv6:%5B2001:db8::1%5D:5", "2001:db8:0:0:0:0:0:1"),
        ("ipv6:[::ffff:10.0.0.7]:5", "10.0.0.7"),
        ("unix:/a/b", ""),
    ],
)
def test_a_peer_has_the_address_that_rules_name(peer: str, host: str) -> None:
    assert host_of(peer) == host


def test_a_call_is_asked_for_in_its_callers_name_where_rules_decide() -> None:
    async def asker(call: Call) -> Any:
        return call.asker, call.owner

    ruled = called(gate_with(Access()), "ListTopics", asker)
    assert (ruled[0].principal.name, ruled[0].host) == ("alice", "10.0.0.7")
    assert called(gate_with(Access(has_rules=False)), "ListTopics", asker) == (None, "User:alice")
    assert called(OpenGate(), "Check", asker) == (None, "User:ANONYMOUS")


def shown(der: bytes, reused: bytes = b"false") -> Context:
    pem = DER_cert_to_PEM_cert(der).encode()
    return Context(auth={"x509_pem_cert": [pem], "ssl_session_reused": [reused]})


def test_a_client_is_named_by_its_certificate_unless_it_resumes_a_session() -> None:
    async def owner(call: Call) -> str:
        return call.owner

    naming = MappingRules("RULE:^CN=(a.*)$/$1/")
    gate = CallGate("GRPC", Access(), ClientQuotas(), naming=naming)
    alice = certificate(name(cn("alice")))
    assert called(gate, "ListTopics", owner, shown(alice)) == "User:alice"
    assert called(gate, "ListTopics", owner, Context()) == "User:ANONYMOUS"
    for refused in (shown(alice, b"true"), shown(certificate(name(cn("bob"))))):
        with pytest.raises(CallRefused, match="names nobody"):
            called(gate, "ListTopics", owner, refused)


# --- rights ------------------------------------------------------------------------------------


async def check(call: Call) -> str:
    call.check(TOPIC, "g")
    return "ok"


def test_a_topic_that_its_caller_may_not_describe_is_none() -> None:
    describes = may("alice", Operation.DESCRIBE, KAFKA_NAME)
    reads = may("alice", Operation.READ, KAFKA_NAME)
    joins = may("alice", Operation.READ, "g", ResourceType.GROUP)
    with pytest.raises(CallRefused, match="there is no topic shop/orders"):
        called(gate_with(Access()), "SubscribeMessage", check)
    for rules, lacks in (([describes], "READ on the topic"), ([reads], "READ on the group g")):
        with pytest.raises(CallRefused, match=lacks) as raised:
            called(gate_with(Access(*rules)), "SubscribeMessage", check)
        assert raised.value.status is grpc.StatusCode.PERMISSION_DENIED
    assert called(gate_with(Access(reads, joins)), "SubscribeMessage", check) == "ok"


def test_a_right_on_the_cluster_is_asked_for_too() -> None:
    async def balance(call: Call) -> str:
        call.check()
        return "ok"

    with pytest.raises(CallRefused, match="ALTER on the cluster"):
        called(gate_with(Access()), "BalanceTopics", balance)
    rule = may_with_cluster("alice", Operation.ALTER)
    assert called(gate_with(Access(rule)), "BalanceTopics", balance) == "ok"


def test_a_handler_that_allows_nothing_ends_its_call_with_a_status() -> None:
    async def refuse(_: Call) -> None:
        raise NotAllowed("no")

    with pytest.raises(CallRefused, match="no") as raised:
        called(OpenGate(), "ListTopics", refuse)
    assert raised.value.status is grpc.StatusCode.PERMISSION_DENIED


# --- open calls --------------------------------------------------------------------------------


def looking(gate: CallGate, change: Callable[[], object], work: Callable[[Call], Any]) -> Any:
    """What a call gives that is at work while something changes and is looked at."""

    async def both(call: Call) -> Any:
        working = asyncio.ensure_future(work(call))
        try:
            await asyncio.sleep(0)
            change()
            looks = asyncio.create_task(gate.look())
            found = await working
            await looks
            return found
        finally:
            working.cancel()

    return called(gate, "FetchMessage", both)


async def check_and_wait(call: Call) -> None:
    call.check(TOPIC)
    await asyncio.Event().wait()


def test_a_call_that_waits_ends_when_its_right_goes() -> None:
    reads = may("alice", Operation.READ, KAFKA_NAME)
    access = Access(reads)
    with pytest.raises(CallRefused, match="is allowed no more") as raised:
        looking(gate_with(access), lambda: access.take_away(reads), check_and_wait)
    assert raised.value.status is grpc.StatusCode.PERMISSION_DENIED


def test_a_call_that_waits_ends_when_its_login_holds_no_more() -> None:
    access, logins = Access(may("alice", Operation.READ, KAFKA_NAME)), Logins()

    def change() -> None:
        access.version += 1
        logins.checked.holds = False

    with pytest.raises(CallRefused, match="holds no more") as raised:
        looking(gate_with(access, logins), change, check_and_wait)
    assert raised.value.status is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize(
    ("seconds", "lifetime_ms"), [(5, 0), (float("inf"), 5000), (9, 5000), (5, 9000)]
)
def test_a_call_ends_when_its_login_does(
    monkeypatch: pytest.MonkeyPatch, seconds: float, lifetime_ms: int
) -> None:
    now_ms = [1000]
    monkeypatch.setattr(gate_room, "monotonic_ms", lambda: now_ms[0])
    gate = gate_with(Access(has_rules=False), Logins(seconds), lifetime_ms=lifetime_ms)

    async def work(call: Call) -> None:
        call.look(5999)
        assert call.ended is None
        call.look(6000)
        await asyncio.sleep(0)

    with pytest.raises(CallRefused, match="has ended"):
        called(gate, "ListTopics", work)


@pytest.mark.parametrize(
    ("method", "is_ended"),
    [("FetchMessage", True), ("SubscriberToSubCoordinator", True), ("PublishMessage", False)],
)
def test_a_stop_ends_calls_that_only_wait(method: str, *, is_ended: bool) -> None:
    async def talk() -> Any:
        gate, given = gate_with(Access(has_rules=False)), Context()
        call = await gate.enter(given, method)
        with gate.opened(call):
            gate.stop()
            await asyncio.sleep(0)
        return "it goes on"

    if is_ended:
        with pytest.raises(CallRefused, match="the broker stops") as raised:
            asyncio.run(talk())
        assert raised.value.status is grpc.StatusCode.UNAVAILABLE
    else:
        assert asyncio.run(talk()) == "it goes on"


def test_a_client_that_goes_is_no_refusal() -> None:
    async def talk() -> None:
        task = asyncio.create_task(leave())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def leave() -> None:
        gate, context = gate_with(Access()), Context()
        call = await gate.enter(context, "ListTopics")
        with gate.opened(call):
            await wait(call)

    asyncio.run(talk())


def test_nothing_is_read_or_written_after_a_right_has_gone() -> None:
    reads = may("alice", Operation.READ, KAFKA_NAME)

    async def read(call: Call) -> None:
        call.check(TOPIC)
        access.take_away(reads)
        await call.read()

    async def write(call: Call) -> None:
        call.check(TOPIC)
        access.take_away(reads)
        await call.write("x")

    for work in (read, write):
        access, context = Access(reads), Context("request")
        with pytest.raises(CallRefused, match="allowed no more"):
            called(gate_with(access), "SubscribeMessage", work, context)
        assert context.written == []


@pytest.mark.parametrize("is_large", [False, True])
def test_a_large_answer_is_put_together_apart(*, is_large: bool) -> None:
    names = list[str]()

    class Answer(WrittenAnswer):
        def join(self) -> None:
            names.append(threading.current_thread().name.partition("_")[0])
            super().join()

    async def write(call: Call) -> None:
        await call.write(Answer(b"head", b"x" * (COPIED_AT_ONCE_BYTES - 4 + is_large)))

    context = Context()
    called(gate_with(Access(has_rules=False)), "SubscribeMessage", write, context)
    assert names == ["apart"] * is_large
    assert len(context.written[0].SerializeToString()) == COPIED_AT_ONCE_BYTES + is_large


# --- quotas ------------------------------------------------------------------------------------


def quotas_of(**rates: float) -> ClientQuotas:
    found = ClientQuotas()
    key = key_of({USER: "alice", CLIENT: "c"})
    found.take({key: {name: str(rate) for name, rate in rates.items()}})
    return found


class Clock:
    """Time that passes while somebody sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ms = 1000.0
        self._sleep = asyncio.sleep
        monkeypatch.setattr(gate_room, "monotonic_ms", lambda: int(self.now_ms))
        monkeypatch.setattr(asyncio, "sleep", self.sleep)

    async def sleep(self, seconds: float) -> None:
        self.now_ms += 1000 * seconds
        await self._sleep(0)


def test_records_that_come_in_are_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    message = pb.PublishMessageRequest(data=pb.DataMessage(value=bytes(10_000)))

    async def work(call: Call) -> list[int]:
        await call.read()  # Nobody is named yet.
        call.name_client("c")
        found = []
        for _ in range(3):
            await call.read()
            found.append(int(clock.now_ms - 1000) // 1000)
        return found

    gate = gate_with(Access(), quotas=quotas_of(**{PRODUCE: 1000}))
    assert called(gate, "PublishMessage", work, Context(*[message] * 4)) == [0, 9, 19]
    clock.now_ms = 1000.0
    assert called(gate, "SubscribeMessage", work, Context(*[message] * 4)) == [0, 0, 0]


def test_answers_with_records_are_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    message = pb.SubscribeMessageResponse(data=pb.DataMessage(value=bytes(10_000)))

    async def work(call: Call) -> list[int]:
        call.name_client("c")
        found = []
        for _ in range(3):
            await call.write(message)
            found.append(int(clock.now_ms - 1000) // 1000)
        return found

    gate = gate_with(Access(), quotas=quotas_of(**{CONSUME: 1000}))
    assert called(gate, "SubscribeMessage", work) == [0, 9, 19]


def test_a_caller_in_debt_for_an_answer_waits_before_the_next_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, answer = Clock(monkeypatch), pb.FetchMessageResponse(error="x" * 10_000)

    async def work(call: Call) -> int:
        call.name_client("c")
        await call.pay()
        call.charge_answer(answer)
        return int(clock.now_ms - 1000) // 1000

    gate = gate_with(Access(), quotas=quotas_of(**{CONSUME: 1000}))
    assert [called(gate, "FetchMessage", work) for _ in range(3)] == [0, 9, 19]


def test_quotas_that_change_hold_for_open_calls() -> None:
    quotas = ClientQuotas()
    gate = gate_with(Access(), quotas=quotas)

    async def work(call: Call) -> bool:
        assert call.limits is None
        quotas.take({key_of({USER: "alice"}): {PRODUCE: "1"}})
        await gate.look()
        return call.limits is not None

    assert called(gate, "PublishMessage", work)


def test_logins_are_those_of_metadata() -> None:
    logins = MetadataLogins(Logins(), takes_passwords=True)  # type: ignore[arg-type]
    gate = CallGate("GRPC", Access(), ClientQuotas(), logins=logins)
    assert gate.reads_late
    with pytest.raises(CallRefused, match="say who you are"):
        called(gate, "ListTopics", check)


def test_an_open_gate_reads_few_requests_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_room, "OPEN_READ_S_MAX", 0.01)

    async def talk() -> None:
        gate, context = OpenGate(), Context()
        assert gate.reads_late
        reading = [gate.first(context) for _ in range(gate_room.OPEN_READS_MAX + 1)]
        found = await asyncio.gather(*reading, return_exceptions=True)
        statuses = [each.status for each in found if isinstance(each, CallRefused)]
        *others, last = statuses
        assert {*others} == {grpc.StatusCode.DEADLINE_EXCEEDED}
        assert last is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await gate.first(Context("request")) == "request"

    asyncio.run(talk())
