"""Leaders, retries, and errors when retrying does not help."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from itertools import count
from typing import Any

import pytest

from smq.client.errors import (
    Act,
    AuthenticationFailed,
    BrokerUnavailable,
    ClosedUnanswered,
    NoSuchTopic,
)
from smq.client.kafka import cluster as module
from smq.client.kafka.cluster import CLOSED_SECONDS, Cluster, check
from smq.client.kafka.connection import KafkaConnection
from smq.client.kafka.questions import METADATA
from smq.model.errors import BrokerError, ErrorCode, PeerError
from smq.testing.credentials import UsersInMemory
from smq.testing.stepped_clock import SteppedClock
from smq.wire.generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
)
from tests.client.fake_kafka import HANDLERS, FakeKafka, FakePartition, fake_kafka
from tests.client.silent_endpoint import SAID, silent_endpoint

WAIT_S = 30


def test_partitions_are_grouped_by_their_leaders(kafka: FakeKafka, cluster: Cluster) -> None:
    kafka.add_topic("a", 3)
    assert cluster.by_leader("a", [0, 1, 2]) == {1: [0, 2], 2: [1]}
    with pytest.raises(BrokerError, match="has no partition 3, only 0 to 2"):
        cluster.by_leader("a", [3])


def test_all_topics_are_listed_by_name(kafka: FakeKafka, cluster: Cluster) -> None:
    for name in ("b", "__internal", "a"):
        kafka.add_topic(name)
    assert [topic.name for topic in cluster.topics()] == ["__internal", "a", "b"]
    assert [topic.is_internal for topic in cluster.topics()] == [True, False, False]


def test_a_topic_that_does_not_exist_is_not_waited_for(cluster: Cluster) -> None:
    with pytest.raises(NoSuchTopic, match="smq topic create nope"):
        cluster.retrying(lambda: cluster.topic("nope"))


def test_work_is_done_again_while_it_fails_in_a_way_that_passes(
    kafka: FakeKafka, cluster: Cluster
) -> None:
    kafka.add_topic("a")
    kafka.faults["Metadata"] += [ErrorCode.LEADER_NOT_AVAILABLE, "close"]
    assert cluster.retrying(lambda: cluster.topic("a")).leaders == (1,)


def test_brokers_that_want_a_login_are_not_asked_until_the_deadline(kafka: FakeKafka) -> None:
    clock = SteppedClock()
    with Cluster(kafka.bootstrap, clock=clock) as cluster:
        kafka.users = UsersInMemory({})
        for _ in range(2):
            begins = clock.monotonic_s()
            with pytest.raises(ClosedUnanswered, match="may want TLS, a login"):
                cluster.retrying(lambda: cluster.retrying(cluster.topics))
            assert CLOSED_SECONDS <= clock.monotonic_s() - begins < CLOSED_SECONDS + 0.5


class FakeConnection:
    is_closed = False

    def wait_at_most(self, seconds: float) -> None:
        pass

    def close(self) -> None:
        self.is_closed = True


class Doors:
    """What answers at two addresses: a broker, or why it does not. Each attempt takes a second."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, clock: SteppedClock) -> None:
        self.clock = clock
        self.tried: list[str] = []
        self.reasons: dict[str, BrokerError] = {}
        monkeypatch.setattr(module, "KafkaConnection", self._connect)

    def _connect(self, host: str, *_: object) -> FakeConnection:
        self.tried.append(host)
        self.clock.step(1)
        if host in self.reasons:
            raise self.reasons[host]
        return FakeConnection()


@pytest.mark.parametrize("bootstrap", ["refuses:1,restarts:1", "restarts:1,refuses:1"])
def test_a_broker_that_may_answer_soon_is_waited_for_beside_one_that_refuses(
    monkeypatch: pytest.MonkeyPatch, bootstrap: str
) -> None:
    clock = SteppedClock()
    doors = Doors(monkeypatch, clock)
    cluster = Cluster(bootstrap, deadline_seconds=10, clock=clock)
    doors.reasons["refuses"] = AuthenticationFailed("no login")
    doors.reasons["restarts"] = BrokerUnavailable("no broker answers")

    def work() -> KafkaConnection:
        if doors.tried.count("restarts") == 3:
            del doors.reasons["restarts"]
        return cluster.anyone()

    cluster.close()
    doors.tried.clear()
    cluster.retrying(work)
    assert doors.tried.count("restarts") == 4
    assert doors.tried.count("refuses") == 1, "it has said no"
    doors.reasons["restarts"] = BrokerUnavailable("no broker answers")
    for _ in range(2):
        cluster.close()
        begins, doors.tried[:] = clock.monotonic_s(), []
        with pytest.raises(BrokerUnavailable, match="no broker answers; no login"):
            cluster.retrying(cluster.anyone)
        assert clock.monotonic_s() - begins < 12
        assert doors.tried.count("refuses") == 1, "each work asks it anew"


def test_brokers_that_all_refuse_are_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SteppedClock()
    doors = Doors(monkeypatch, clock)
    cluster = Cluster("a:1,b:1", clock=clock)
    cluster.close()
    doors.reasons = {host: AuthenticationFailed(f"no login at {host}") for host in "ab"}
    doors.tried.clear()
    with pytest.raises(AuthenticationFailed, match="no login at a"):
        cluster.retrying(cluster.anyone)
    assert sorted(doors.tried) == ["a", "b"]
    cluster._addresses = {1: ("a", 1)}
    for _ in range(2):
        with pytest.raises(AuthenticationFailed):
            cluster.broker(1)
    assert len(doors.tried) == 4, "what is no repeated work asks each time"


def test_a_broker_that_restarts_and_closes_connections_is_asked_again(kafka: FakeKafka) -> None:
    clock = SteppedClock()
    with Cluster(kafka.bootstrap, clock=clock) as cluster:
        kafka.faults["Metadata"] += ["close"] * 5
        assert cluster.retrying(cluster.topics) == []
        clock.step(60)
        kafka.faults["Metadata"] += ["close"] * 5
        assert cluster.retrying(cluster.topics) == []
        kafka.faults["ApiVersions"] += ["close"] * 50  # What a proxy does while its broker is away.
        assert cluster.retrying(cluster.topics) == []


def test_other_failures_and_the_deadline_end_the_work(kafka: FakeKafka) -> None:
    kafka.add_topic("a")
    with Cluster(kafka.bootstrap, deadline_seconds=0) as cluster:
        kafka.faults["Metadata"] += [
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            *[ErrorCode.LEADER_NOT_AVAILABLE] * 3,
        ]
        for code in (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.LEADER_NOT_AVAILABLE):
            with pytest.raises(BrokerError) as raised:
                cluster.retrying(lambda: cluster.topic("a"))
            assert raised.value.code == code


def test_a_bootstrap_address_that_answers_is_enough(kafka: FakeKafka) -> None:
    kafka.add_topic("a")
    with Cluster(f"127.0.0.1:1, {kafka.bootstrap}") as cluster:
        assert cluster.topic("a").leaders == (1,)


@pytest.mark.parametrize("bootstrap", ["", "localhost", "host:port", ":9092", "a:1,"])
def test_an_address_without_port_is_refused(bootstrap: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        Cluster(bootstrap)


@pytest.mark.parametrize(
    ("bootstrap", "sentence"),
    [
        ("127.0.0.1:65536", "a port is at most 65535, and not 65536"),
        ("a..b:9092", "'a..b' is no name of a host"),
        ("\udcff:9092", r"'\\udcff' is no name of a host"),
    ],
)
def test_an_invalid_address_is_refused_with_the_reason(bootstrap: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Cluster(bootstrap)


def test_an_error_code_we_do_not_know_is_named_by_its_number() -> None:
    check(0)
    with pytest.raises(BrokerError, match="error code 999"):
        check(999)


def test_a_failure_leaves_no_answer_that_could_be_taken_for_another(
    kafka: FakeKafka, cluster: Cluster
) -> None:
    cluster.brokers()
    kafka.faults["Metadata"] += ["close"]
    request = MetadataRequest(topics=[MetadataRequestTopic(name="a")])
    with pytest.raises(BrokerError):
        cluster.ask_each(METADATA, {1: request, 2: request})
    kafka.add_topic("b")
    assert cluster.topic("b").name == "b"


def test_a_partition_that_is_not_known_may_have_come_since(
    kafka: FakeKafka, cluster: Cluster
) -> None:
    kafka.add_topic("a")
    assert cluster.by_leader("a", [0]) == {1: [0]}
    kafka.topics["a"].append(FakePartition(leader=2))
    assert cluster.by_leader("a", [0, 1]) == {1: [0], 2: [1]}
    with pytest.raises(BrokerError, match="has no partition 2, only 0 to 1"):
        cluster.by_leader("a", [2])


def test_a_connection_that_broke_is_made_anew(kafka: FakeKafka, cluster: Cluster) -> None:
    kafka.add_topic("a")
    kafka.faults["Metadata"].append("close")
    with pytest.raises(BrokerError, match="closed the connection"):
        cluster.topics()
    assert [topic.name for topic in cluster.topics()] == ["a"]


def in_time(work: Callable[[], object]) -> object:
    """What it returns or raises, long before a broker that is silent is given up by itself."""
    outcome = Future[object]()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BrokerError as error:
            outcome.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return outcome.result(WAIT_S)


def test_a_broker_that_accepts_and_does_not_answer_is_waited_for_until_the_deadline() -> None:
    with fake_kafka() as kafka:
        with Cluster(kafka.bootstrap, deadline_seconds=0.2) as cluster:
            kafka.asleep.add(1)
            with pytest.raises(BrokerUnavailable, match="timed out"):
                in_time(lambda: cluster.retrying(cluster.topics))
        with pytest.raises(BrokerUnavailable, match="timed out"):
            in_time(lambda: Cluster(kafka.bootstrap, deadline_seconds=0.2))


def test_a_token_endpoint_that_is_silent_is_waited_for_until_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = SteppedClock()
    security, waited = silent_endpoint(monkeypatch, clock)
    with pytest.raises(BrokerUnavailable, match=SAID):
        Cluster("127.0.0.1:1,127.0.0.1:2", 3.0, clock, security)
    assert waited == [3.0]


@pytest.mark.slow
def test_a_broker_that_is_silent_is_left_for_another_that_answers(
    kafka: FakeKafka,
) -> None:
    kafka.add_topic("a")
    with Cluster(kafka.bootstrap, deadline_seconds=4) as cluster:
        for node in (1, 2):
            kafka.asleep.add(node)
            found = in_time(lambda: cluster.retrying(lambda: cluster.metadata(["a"])))
            assert isinstance(found, list)
            kafka.wake()


def test_a_connection_of_ones_own_waits_for_answers_that_take_longer(
    kafka: FakeKafka,
) -> None:
    with Cluster(kafka.bootstrap, deadline_seconds=0.1) as cluster:
        cluster.metadata([])
        connection = cluster.connect(1)
        kafka.asleep.add(1)
        connection.start(METADATA, MetadataRequest(topics=[]))
        with pytest.raises(BrokerUnavailable):
            cluster.broker(1).ask(METADATA, MetadataRequest(topics=[]))
        kafka.wake()
        assert connection.finish().cluster_id == "fake"
        connection.close()


def answer_metadata(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[MetadataResponse], None]
) -> None:
    """Have all fakes change their Metadata so."""

    def handler(fake: FakeKafka, node: int, request: Any, code: ErrorCode) -> MetadataResponse:
        response: MetadataResponse = fake.metadata(node, request, code)
        change(response)
        return response

    monkeypatch.setitem(HANDLERS, "Metadata", handler)


@pytest.mark.parametrize("name", ["b", "../a", "", None])
def test_an_answer_about_another_topic_is_of_no_broker(
    kafka: FakeKafka, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, name: str | None
) -> None:
    """Of the kind of door fault 12: its leaders were taken for those of the topic."""

    def change(response: MetadataResponse) -> None:
        response.topics[0].name = name

    kafka.add_topic("a")
    answer_metadata(monkeypatch, change)
    with pytest.raises(PeerError, match="asked about topic a, and answers about"):
        cluster.topic("a")


@pytest.mark.parametrize("index", [0, 2, -1, 2**31 - 1])
def test_partitions_are_known_when_each_is_named_once(
    kafka: FakeKafka, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, index: int
) -> None:
    """Of the kind of door fault 12: a partition named twice counted as two."""

    def change(response: MetadataResponse) -> None:
        response.topics[0].partitions[1].partition_index = index

    kafka.add_topic("a", 2)
    answer_metadata(monkeypatch, change)
    with pytest.raises(BrokerError, match="not every partition of a is named once"):
        cluster.topic("a")


def test_brokers_that_have_gone_are_forgotten(
    kafka: FakeKafka, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the kind of door fault 12: one that names others each time filled the memory."""
    ports = count(1)

    def change(response: MetadataResponse) -> None:
        names = [MetadataResponseBroker(node_id=1, host="127.0.0.1", port=next(ports))]
        response.brokers = names

    answer_metadata(monkeypatch, change)
    for _ in range(5):
        cluster.metadata([])
        with suppress(BrokerUnavailable):
            cluster.broker(1)
    assert len(cluster._silent) <= 1
    assert len(cluster._connections) <= 1


def test_any_number_of_brokers_that_are_none_are_tried_until_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of the kind of door fault 12: each was given half a second."""
    with fake_kafka() as kafka:

        def change(response: MetadataResponse) -> None:
            response.brokers = [
                MetadataResponseBroker(node_id=each, host=f"127.0.0.{each}", port=9)
                for each in range(2, 250)
            ]

        answer_metadata(monkeypatch, change)
        with Cluster(kafka.bootstrap, deadline_seconds=0.2) as cluster:
            cluster.metadata([])
            kafka.close()
            cluster.close()
            tried: list[str] = []

            def connection(host: str, *_: object) -> None:
                tried.append(host)
                cluster.clock.sleep(0.05)
                raise BrokerUnavailable(host)

            monkeypatch.setattr(module, "KafkaConnection", connection)
            with pytest.raises(BrokerUnavailable):
                cluster.anyone()
            assert 0 < len(tried) < 50
            tried.clear()
            with pytest.raises(BrokerUnavailable):
                cluster.some_broker()
            assert 0 < len(tried) < 50


def test_a_right_that_is_missing_comes_with_what_to_do() -> None:
    for message, begins in ((None, "this user may not"), ("Topic authorization failed.", "Topic")):
        with pytest.raises(BrokerError) as raised:
            check(ErrorCode.TOPIC_AUTHORIZATION_FAILED, message)
        said = raised.value.message or ""
        assert said.startswith(begins)
        assert said.endswith("; `smq acl why` tells what its rules allow, `smq acl add` adds one")
    with pytest.raises(BrokerError, match="POLICY_VIOLATION"):
        check(ErrorCode.POLICY_VIOLATION)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "this user may not read topic t; `smq acl why`"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "this user may not read group g; `smq acl why`"),
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "may not use the transactional id x;"),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "CLUSTER_AUTHORIZATION_FAILED: Brokers say this;"),
    ],
)
def test_a_right_that_is_missing_is_named_with_what_it_is_to(code: ErrorCode, said: str) -> None:
    """Brokers say 'Topic authorization failed', and name none."""
    with pytest.raises(BrokerError) as raised:
        check(code, "Brokers say this.", Act("read", "t", "g", "x"))
    assert said in str(raised.value)


def test_a_topic_that_may_not_be_described_is_named(kafka: FakeKafka, cluster: Cluster) -> None:
    kafka.add_topic("a")
    kafka.faults["Metadata"].append(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(BrokerError, match="this user may not describe topic a; `smq acl why`"):
        cluster.retrying(lambda: cluster.topic("a"))
