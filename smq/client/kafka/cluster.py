"""A cluster as a client sees it: which broker leads which partition, and how to reach it.

`Cluster` keeps a connection to each broker, and the last Metadata. `retrying` repeats work that
fails with a transient error (a leader moves, a broker restarts), with fresh metadata, until it
succeeds or the deadline passes. It ends early where brokers go on closing connections that do not
log in. Waits for answers end at the deadline too. Where any broker will do, a silent one is left
early for another, and is asked last until it has answered again. Then it also goes on while one of
them may answer soon, even if others have refused us: those are not asked again by the same work.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from smq.client.clock import SYSTEM_CLOCK, Clock
from smq.client.errors import Act, BrokerUnavailable, ClosedUnanswered, NoSuchTopic, explained
from smq.client.kafka.answers import only
from smq.client.kafka.connection import (
    ANSWER_SECONDS_MAX,
    ATTEMPT_SECONDS_MIN,
    KafkaConnection,
)
from smq.client.kafka.questions import METADATA, Question
from smq.client.secure.opening import PORT_MAX, is_path
from smq.client.secure.security import PLAINTEXT, Security
from smq.model.errors import BrokerError, ErrorCode, PeerError
from smq.wire.api import Request, Response
from smq.wire.generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponseTopic,
)

DEADLINE_SECONDS = 30.0
METADATA_MAX_AGE_S = 300.0  # Kafka's metadata.max.age.ms.
RETRY_SECONDS = 0.1
CLOSED_SECONDS = 1.0  # A broker that ends closes connections once, or twice, and not for so long.
SILENT_SECONDS_MAX = 5.0  # Then another broker is asked, if any will do.
OWN_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})  # No other host is reached by them.

# Transient errors: this broker or another one may answer the same question soon.
PASSING = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """What Metadata says of a topic: of each partition its leader, and the leader's epoch (KIP-320;
    -1: the broker does not say).

    A topic that is deleted and created again has another id. Brokers without ids say ZERO_UUID.
    """

    name: str
    leaders: tuple[int, ...]
    leader_epochs: tuple[int, ...]
    is_internal: bool
    topic_id: UUID


def check(error_code: int, message: str | None = None, act: Act | None = None) -> None:
    """Raise BrokerError unless the code is NONE; `act` is what was asked for."""
    if error_code == ErrorCode.NONE:
        return
    try:
        code = ErrorCode(error_code)
    except ValueError:
        raise BrokerError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"the broker's error code {error_code}"
        ) from None
    raise BrokerError(code, explained(code, message, act))


class Cluster:
    """The brokers behind bootstrap addresses, one of which must answer now.

    Raises ValueError (not an address), BrokerUnavailable, AuthenticationFailed.
    """

    def __init__(
        self,
        bootstrap: str,
        deadline_seconds: float = DEADLINE_SECONDS,
        clock: Clock = SYSTEM_CLOCK,
        security: Security = PLAINTEXT,
    ) -> None:
        self.bootstrap = bootstrap
        self.security = security
        self._bootstrap = addresses_of(bootstrap)
        self._deadline_seconds = deadline_seconds
        self.clock = clock
        self.cluster_id = ""  # From Metadata.
        self._addresses: dict[int, tuple[str, int]] = {}
        self._connections: dict[tuple[str, int], KafkaConnection] = {}
        self._topics: dict[str, TopicFacts] = {}
        self._silent: set[tuple[str, int]] = set()  # They did not answer the last time.
        self._deadline: float | None = None  # Of the work in progress.
        self._refused: dict[tuple[str, int], BrokerError] = {}  # By whom, during this work.
        self._closed_since: float | None = None  # Connections without a login, as it seems.
        self.within(deadline_seconds, self.anyone)

    def names_host(self, host: str) -> bool:
        """Whether a bootstrap address names this host, as it is written or by another name that
        every host has for itself."""
        names = {name.lower() for name, _ in self._bootstrap}
        return host.lower() in (names if names.isdisjoint(OWN_NAMES) else names | OWN_NAMES)

    def close(self) -> None:
        """Close all connections."""
        self._drop_broken()
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def _drop_broken(self) -> None:
        broken = [address for address, each in self._connections.items() if each.is_closed]
        self._silent.update(broken)
        for address in broken:
            del self._connections[address]

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def retrying(self, work: Callable[[], Result]) -> Result:
        """The result of some work, which is repeated while it fails with a transient error."""
        return self.within(self._deadline_seconds, lambda: self._retry(work))

    def _retry(self, work: Callable[[], Result]) -> Result:
        while True:
            try:
                result = work()
            except NoSuchTopic:
                raise
            except BrokerError as error:
                is_over = self._seconds_left() <= 0 or self._is_shut_out(error)
                if error.code not in PASSING or is_over:
                    raise
            else:
                self._closed_since = None
                return result
            self.forget()
            self.clock.sleep(RETRY_SECONDS)

    def _is_shut_out(self, error: BrokerError) -> bool:
        """Whether brokers have closed each connection for long enough: they want a login."""
        if not (isinstance(error, ClosedUnanswered) and error.wants_login):
            self._closed_since = None
            return False
        now = self.clock.monotonic_s()
        self._closed_since = now if self._closed_since is None else self._closed_since
        return now - self._closed_since >= CLOSED_SECONDS

    def within(self, seconds: float, work: Callable[[], Result]) -> Result:
        """Run some work, which waits for answers for this long in total."""
        outer, deadline = self._deadline, self.clock.monotonic_s() + seconds
        if outer is None:
            self._closed_since = None
        self._deadline = deadline if outer is None else min(outer, deadline)
        try:
            return work()
        finally:
            self._deadline = outer
            if outer is None:
                self._refused.clear()

    def _seconds_left(self) -> float:
        if self._deadline is None:
            return self._deadline_seconds
        return self._deadline - self.clock.monotonic_s()

    def _patience(self, others: int = 0) -> float:
        """How long to wait for a broker's answer if `others` could be asked instead."""
        left = self._seconds_left()
        return max(min(left / 2, SILENT_SECONDS_MAX) if others else left, ATTEMPT_SECONDS_MIN)

    def forget(self) -> None:
        """Drop metadata and connections, which may be stale."""
        self.forget_topics()
        self.close()

    def forget_topics(self) -> None:
        """Drop the metadata of topics: they may have got more partitions."""
        self._topics.clear()

    def anyone(self) -> KafkaConnection:
        """A connection to any broker that answers."""
        return self.within(self._deadline_seconds, self._anyone)

    def _anyone(self) -> KafkaConnection:
        self._drop_broken()
        failures: list[BrokerError] = []
        left = self._known()
        while left:
            address = left.pop(0)
            try:
                return self._connection(address, len(left))
            except BrokerError as error:
                failures.append(error)
            if self._seconds_left() <= 0:  # A broker may name any number of others.
                break
        raise self._failure_of_all(failures)

    def _failure_of_all(self, failures: list[BrokerError]) -> BrokerError:
        """Why none of several brokers will do: it passes if one of them passes. It tells of a
        refusal too."""
        passing = next((each for each in failures if each.code in PASSING), None)
        refused = next(iter(self._refused.values()), None)
        if passing is not None and refused is not None:
            return BrokerUnavailable(f"{passing.message}; {refused.message}")
        return failures[0]

    def _known(self) -> list[tuple[str, int]]:
        """All addresses; those first that answered the last time."""
        known = [*self._connections, *self._bootstrap, *self._addresses.values()]
        return sorted(dict.fromkeys(known), key=self._silent.__contains__)

    def broker(self, node_id: int) -> KafkaConnection:
        """The connection to the broker with this id."""
        return self._connection(self.address(node_id))

    def connect(self, node_id: int) -> KafkaConnection:
        """A new connection, for questions that the broker answers late."""
        connection = self._opened(self.address(node_id))
        connection.wait_at_most(ANSWER_SECONDS_MAX)
        return connection

    def address(self, node_id: int) -> tuple[str, int]:
        """Host and port of the broker with this id."""
        if node_id not in self._addresses:
            raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, f"there is no broker {node_id} now")
        return self._addresses[node_id]

    def brokers(self) -> list[KafkaConnection]:
        """Connections to all brokers."""
        self.metadata([])
        return [self.broker(node_id) for node_id in sorted(self._addresses)]

    def some_broker(self) -> tuple[int, KafkaConnection]:
        """A broker from Metadata and its id; one that has answered, if there is any."""
        return self.within(self._deadline_seconds, self._some_broker)

    def _some_broker(self) -> tuple[int, KafkaConnection]:
        def is_new(node_id: int) -> tuple[bool, bool]:
            address = self._addresses[node_id]
            return address in self._silent, address not in self._connections

        self._drop_broken()
        failures: list[BrokerError] = []
        left = sorted(self._addresses, key=is_new)
        while left:
            node_id = left.pop(0)
            try:
                return node_id, self._connection(self.address(node_id), len(left))
            except BrokerError as error:
                failures.append(error)
            if self._seconds_left() <= 0:
                break
        if not failures:
            raise BrokerError(ErrorCode.BROKER_NOT_AVAILABLE, "no broker is known")
        raise self._failure_of_all(failures)

    def ask_each(
        self, question: Question[Request, Response], requests: Mapping[int, Request]
    ) -> list[Response]:
        """Ask several brokers at the same time; requests by broker id."""
        asked = [(self.broker(node_id), request) for node_id, request in requests.items()]
        try:
            for connection, request in asked:
                connection.start(question, request)
            return [connection.finish() for connection, _ in asked]
        except BaseException:
            self.close()  # Else an answer still owed would be taken for that of a later question.
            raise

    def topic(self, name: str) -> TopicFacts:
        """A topic, cached or from the cluster. Raises NoSuchTopic."""
        if name not in self._topics:
            found = only(self.metadata([name]), "topic")
            if found.name != name:
                raise PeerError(f"it was asked about topic {name}, and answers about {found.name}")
            if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise NoSuchTopic(name)
            check(found.error_code, act=Act("describe", topic=name))
            if not found.partitions:
                raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, f"{name} has no partition now")
            self._topics[name] = _facts(found)
        return self._topics[name]

    def topics(self) -> list[TopicFacts]:
        """All topics, by name."""
        return sorted(map(_facts, self.metadata(None)), key=lambda topic: topic.name)

    def by_leader(self, topic: str, partitions: Iterable[int]) -> dict[int, list[int]]:
        """Partitions of a topic, grouped by the broker that leads them."""
        partitions, leaders = list(partitions), self.topic(topic).leaders
        if max(partitions, default=0) >= len(leaders):  # The topic may have got more.
            self.forget_topics()
            leaders = self.topic(topic).leaders
        groups: dict[int, list[int]] = {}
        for partition in partitions:
            if not 0 <= partition < len(leaders):
                raise BrokerError(
                    ErrorCode.INVALID_PARTITIONS,
                    f"topic {topic} has no partition {partition}, only 0 to {len(leaders) - 1}",
                )
            if leaders[partition] < 0:
                raise BrokerError(
                    ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader now"
                )
            groups.setdefault(leaders[partition], []).append(partition)
        return groups

    def metadata(self, names: list[str] | None) -> list[MetadataResponseTopic]:
        """Ask about these topics, or about all (None); also refreshes the brokers."""
        topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        broker = self.anyone()
        broker.wait_at_most(self._patience(others=len(self._known()) - 1))
        response = broker.ask(METADATA, request)
        self._addresses = {each.node_id: (each.host, each.port) for each in response.brokers}
        self._forget_others()
        self.cluster_id = response.cluster_id or ""
        return list(response.topics)

    def _forget_others(self) -> None:
        """Drop what is known of brokers that have gone: there may be others each time."""
        known = {*self._bootstrap, *self._addresses.values()}
        self._silent &= known
        for address in self._connections.keys() - known:
            self._connections.pop(address).close()

    def _opened(self, address: tuple[str, int], others: int = 0) -> KafkaConnection:
        patience_s, left_s = self._patience(others), self._seconds_left()
        return KafkaConnection(*address, patience_s, self.clock, self.security, left_s)

    def _connection(self, address: tuple[str, int], others: int = 0) -> KafkaConnection:
        connection = self._connections.get(address)
        if connection is None or connection.is_closed:
            if address in self._refused:
                raise self._refused[address].with_traceback(None)
            self._silent.add(address)  # Until it answers.
            try:
                connection = self._opened(address, others)
            except BrokerError as error:
                if error.code not in PASSING and self._deadline is not None:
                    self._refused[address] = error
                raise
            self._connections[address] = connection
            self._silent.remove(address)
        connection.wait_at_most(self._patience())
        return connection


def addresses_of(bootstrap: str) -> list[tuple[str, int]]:
    """Hosts and ports; with port 0 the paths of unix sockets. Raises ValueError."""
    if is_path(bootstrap):
        return [(each, 0) for each in bootstrap.split(",")]
    return [_address(each.strip()) for each in bootstrap.split(",")]


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not (colon and host and port.isdecimal()):
        raise ValueError(f"a broker's address is host:port, and not {text!r}")
    if int(port) > PORT_MAX:
        raise ValueError(f"a port is at most {PORT_MAX}, and not {port}")
    host = host.strip("[]")
    try:
        host.encode("idna")  # The resolver does this too, and would fail later.
    except UnicodeError as error:
        raise ValueError(f"{host!r} is no name of a host") from error
    return host, int(port)


def _facts(topic: MetadataResponseTopic) -> TopicFacts:
    partitions = sorted(topic.partitions, key=lambda each: each.partition_index)
    if any(each.partition_index != number for number, each in enumerate(partitions)):
        raise BrokerError(
            ErrorCode.LEADER_NOT_AVAILABLE, f"not every partition of {topic.name} is named once"
        )
    leaders = tuple(each.leader_id for each in partitions)
    epochs = tuple(each.leader_epoch for each in partitions)
    return TopicFacts(topic.name or "", leaders, epochs, topic.is_internal, topic.topic_id)
