"""One connection: versions, order of answers, and peers that are none."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from struct import pack
from typing import Any

import pytest

import smq
from smq.client.clock import SYSTEM_CLOCK, Clock
from smq.client.errors import AuthenticationFailed, BrokerUnavailable, ClosedUnanswered
from smq.client.kafka.connection import (
    ATTEMPT_SECONDS_MIN,
    BYTES_A_SECOND_MIN,
    KafkaConnection,
)
from smq.client.kafka.questions import ANSWER_BYTES_MAX, FETCH, FIND_COORDINATOR, METADATA
from smq.client.producing.channel.wire_channel import WireChannel
from smq.client.secure.security import Security, security_of
from smq.client.secure.tokens import TokenEndpoint
from smq.model.errors import BrokerError, ErrorCode, PeerError
from smq.security.credentials import ScramMechanism
from smq.testing.credentials import UsersInMemory
from smq.testing.stepped_clock import SteppedClock
from smq.wire.generated.fetch import FetchRequest
from smq.wire.generated.find_coordinator import FindCoordinatorRequest
from smq.wire.generated.metadata import MetadataRequest, MetadataRequestTopic
from tests.client.fake_kafka import FakeKafka
from tests.client.secure.keys import broker_context, files_in


def connect(kafka: FakeKafka) -> KafkaConnection:
    host, _, port = kafka.bootstrap.split(",")[0].partition(":")
    return KafkaConnection(host, int(port))


def test_answers_come_in_the_order_of_the_questions(kafka: FakeKafka) -> None:
    kafka.add_topic("a")
    connection = connect(kafka)
    for name in ("a", "b"):
        connection.start(METADATA, MetadataRequest(topics=[MetadataRequestTopic(name=name)]))
    assert [connection.finish().topics[0].name for _ in range(2)] == ["a", "b"]
    connection.close()


def test_an_api_that_the_broker_has_not_is_a_clear_error(kafka: FakeKafka) -> None:
    kafka.hidden_apis.add("Fetch")
    connection = connect(kafka)
    with pytest.raises(BrokerError, match="does not know a version of Fetch") as raised:
        connection.ask(FETCH, FetchRequest())
    assert raised.value.code == ErrorCode.UNSUPPORTED_VERSION
    connection.close()


def test_an_address_where_nothing_listens_raises_broker_not_available() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(BrokerError, match="no broker answers") as raised:
        KafkaConnection("127.0.0.1", port)
    assert raised.value.code == ErrorCode.BROKER_NOT_AVAILABLE


@pytest.mark.parametrize("host", ["a" * 64, "\N{REPLACEMENT CHARACTER}"])
@pytest.mark.parametrize("connect", [KafkaConnection, WireChannel])
def test_an_invalid_host_name_raises_broker_not_available(
    connect: Callable[[str, int], object], host: str
) -> None:
    """Metadata may name any host; programs ended with a UnicodeError."""
    with pytest.raises(BrokerError, match="that is no address") as raised:
        connect(host, 9092)
    assert raised.value.code == ErrorCode.BROKER_NOT_AVAILABLE


def test_a_connection_that_ends_is_a_broker_that_is_not_available(kafka: FakeKafka) -> None:
    connection = connect(kafka)
    kafka.faults["Metadata"].append("close")
    with pytest.raises(BrokerError, match="closed the connection"):
        connection.ask(METADATA, MetadataRequest())


def test_a_broker_that_closes_before_it_answers_may_want_a_login(kafka: FakeKafka) -> None:
    connection = connect(kafka)
    kafka.faults["Metadata"].append("close")
    with pytest.raises(ClosedUnanswered, match="may want TLS, a login or a certificate") as closed:
        connection.ask(METADATA, MetadataRequest())
    assert closed.value.wants_login
    connection = connect(kafka)
    kafka.faults["FindCoordinator"].append("close")
    with pytest.raises(ClosedUnanswered) as closed:
        connection.ask(FIND_COORDINATOR, FindCoordinatorRequest(coordinator_keys=["g"]))
    assert not closed.value.wants_login, "the coordinator may have ended"
    kafka.faults["ApiVersions"].append("close")
    with pytest.raises(ClosedUnanswered) as closed:
        connect(kafka)
    assert not closed.value.wants_login, "it may as well have ended"
    connection = connect(kafka)
    connection.ask(METADATA, MetadataRequest())
    kafka.faults["Metadata"].append("close")
    with pytest.raises(BrokerUnavailable) as raised:
        connection.ask(METADATA, MetadataRequest())
    assert not isinstance(raised.value, ClosedUnanswered)


def test_an_answer_that_was_not_read_to_its_end_ends_the_connection(
    kafka: FakeKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by Ctrl-C: what came next would begin in the middle of it."""
    connection = connect(kafka)
    connection.start(METADATA, MetadataRequest())

    def interrupted(_size: int) -> memoryview:
        raise KeyboardInterrupt

    monkeypatch.setattr(connection, "_receive_exactly", interrupted)
    with pytest.raises(KeyboardInterrupt):
        connection.finish()
    assert connection.is_closed


def answer_with(data: bytes) -> int:
    """A server for one connection that answers whatever it is asked with these bytes."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with listener, connection:
            connection.recv(1000)
            connection.sendall(data)

    threading.Thread(target=serve, daemon=True).start()
    port: int = listener.getsockname()[1]
    return port


@pytest.mark.parametrize(
    "data",
    [b"HTTP/1.1 400 Bad Request\r\n", b"\xff\xff\xff\xff", b"\0\0\0\4\0\0\0\x63", b"\0\0\0\1x"],
    ids=["http", "negative", "other id", "cut"],
)
def test_a_server_that_is_no_kafka_broker_raises_peer_error(data: bytes) -> None:
    with pytest.raises(PeerError):
        KafkaConnection("127.0.0.1", answer_with(data))


@pytest.mark.parametrize("port", [-1, 0, 65_536, 2**31 - 1])
@pytest.mark.parametrize("connect", [KafkaConnection, WireChannel])
def test_a_port_that_is_none_is_a_broker_that_is_not_available(
    connect: Callable[[str, int], object], port: int
) -> None:
    """Of the kind of door fault 12: Metadata may name any, and some of its bits were taken."""
    with pytest.raises(BrokerError, match="that is no address"):
        connect("127.0.0.1", port)


def test_an_answer_that_comes_byte_by_byte_ends_at_a_deadline() -> None:
    """Of the kind of door fault 12: each byte was waited for anew, for an answer of any size."""
    clock = SteppedClock()
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with listener, connection, suppress(OSError):
            connection.recv(1000)
            connection.sendall(pack(">i", BYTES_A_SECOND_MIN))
            while True:
                connection.sendall(b"\0")
                clock.step(0.5)

    threading.Thread(target=serve, daemon=True).start()
    with pytest.raises(BrokerError, match="its answer comes too slowly"):
        KafkaConnection("127.0.0.1", listener.getsockname()[1], 5.0, clock)


def test_an_answer_may_be_as_large_as_its_question_lets_it() -> None:
    """Of the kind of door fault 12: an answer about topics, 18 bytes each, had 256 MiB."""
    port = answer_with(pack(">i", ANSWER_BYTES_MAX + 1))
    with pytest.raises(PeerError, match=f"an answer of {ANSWER_BYTES_MAX + 1} bytes"):
        KafkaConnection("127.0.0.1", port)
    assert FETCH.answer_bytes_max > ANSWER_BYTES_MAX


# --- logins --------------------------------------------------------------------------------------


def logged_in(kafka: FakeKafka, clock: Clock = SYSTEM_CLOCK, **given: str) -> KafkaConnection:
    """A connection by SASL_PLAINTEXT; an underscore of a property's name is a dot."""
    properties = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256"}
    properties |= {"sasl.username": "alice", "sasl.password": "pencil"}
    properties |= {name.replace("_", "."): value for name, value in given.items()}
    host, _, port = kafka.bootstrap.split(",")[0].partition(":")
    return KafkaConnection(host, int(port), clock=clock, security=security_of(properties, {}))


@pytest.fixture
def guarded(kafka: FakeKafka) -> FakeKafka:
    """It takes nothing from who has not logged in."""
    kafka.users = UsersInMemory({"alice": "pencil"})
    return kafka


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_broker_that_closes_after_a_login_wants_no_other_one(
    guarded: FakeKafka, mechanism: str
) -> None:
    connection = logged_in(guarded, sasl_mechanism=mechanism)
    guarded.faults["Metadata"].append("close")
    with pytest.raises(ClosedUnanswered) as closed:
        connection.ask(METADATA, MetadataRequest())
    assert not closed.value.wants_login


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_user_logs_in_before_all_other_questions(guarded: FakeKafka, mechanism: str) -> None:
    connection = logged_in(guarded, sasl_mechanism=mechanism)
    connection.ask(METADATA, MetadataRequest())
    assert guarded.logged_in == ["alice"]
    connection.close()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"sasl_password": "pen"}, "invalid credentials.*; check the user's name and password"),
        ({"sasl_username": "bob"}, "invalid credentials"),
        ({"sasl_mechanism": "SCRAM-SHA-512"}, "it knows SCRAM-SHA-256, PLAIN"),
    ],
)
def test_a_login_that_is_refused_says_why(
    guarded: FakeKafka, given: dict[str, str], said: str
) -> None:
    with pytest.raises(AuthenticationFailed, match=said):
        logged_in(guarded, SYSTEM_CLOCK, **given)


def test_a_listener_without_logins_says_so(kafka: FakeKafka) -> None:
    with pytest.raises(AuthenticationFailed, match="takes no login"):
        logged_in(kafka)


def test_a_broker_that_does_not_know_the_password_is_refused(guarded: FakeKafka) -> None:
    """It may be another one, which takes any proof."""
    assert guarded.users is not None
    found = guarded.users.found["alice", ScramMechanism.SCRAM_SHA_256]
    wrong = found._replace(server_key=bytes(32))
    guarded.users.found["alice", ScramMechanism.SCRAM_SHA_256] = wrong
    with pytest.raises(AuthenticationFailed, match="does not prove"):
        logged_in(guarded)


def test_a_connection_counts_as_closed_before_its_login_ends(guarded: FakeKafka) -> None:
    guarded.login_lasts_ms = 1000
    clock = SteppedClock()
    connection = logged_in(guarded, clock)
    connection.start(METADATA, MetadataRequest())
    clock.sleep(0.95)
    assert not connection.is_closed, "an answer is owed"
    connection.finish()
    assert connection.is_closed


def test_a_channel_is_logged_in_and_in_tls(guarded: FakeKafka, tmp_path: Path) -> None:
    guarded.tls = broker_context(tmp_path)
    guarded.add_topic("a")
    config = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "alice",
        "sasl.password": "pencil",
        "ssl.ca.location": files_in(tmp_path).authority,
    }
    with smq.connect(guarded.bootstrap, config=config) as client:
        with client.producer() as producer:
            sent = [producer.send("a", b"%d" % i) for i in range(100)]
            assert [each.result(10).offset for each in sent] == list(range(100))
        with client.consumer() as consumer:
            consumer.assign([("a", 0)])
            consumer.seek("a", 0, "earliest")
            got = [bytes(record.value or b"") for record in islice(consumer, 100)]
    assert got == [b"%d" % i for i in range(100)]
    assert set(guarded.logged_in) == {"alice"}


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_a_certificate_that_is_not_taken_is_a_refusal_in_each_version(
    kafka: FakeKafka, tmp_path: Path, version: str
) -> None:
    """In TLS 1.3 the client hears of it behind the handshake, as of a broker that ends."""
    kafka.tls = broker_context(tmp_path, client_auth="required")
    config = {
        "security.protocol": "SSL",
        "ssl.ca.location": files_in(tmp_path).authority,
        "ssl.enabled.protocols": version,
    }
    host, _, port = kafka.bootstrap.split(",")[0].partition(":")
    with pytest.raises(AuthenticationFailed, match="ALERT"):
        KafkaConnection(host, int(port), 5, SYSTEM_CLOCK, security_of(config))


def test_a_token_takes_its_time_of_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, waited = SteppedClock(), list[float]()

    def answered(*asked: Any) -> tuple[int, bytes]:
        waited.append(asked[-1].left_s())
        clock.step(2.0)
        return 200, b'{"access_token": "one"}'

    def connected(_host: str, _port: int, seconds_max: float, _owner: int | None) -> None:
        waited.append(seconds_max)
        raise OSError("nobody is there")

    monkeypatch.setattr("smq.client.secure.tokens.posted", answered)
    monkeypatch.setattr("smq.client.kafka.connection.connected", connected)
    endpoint = TokenEndpoint("https://issuer.example/token", "a", "s3cret")
    security = Security(None, "OAUTHBEARER", tokens=endpoint)
    for left_s in (3.0, 1.0):
        with pytest.raises(BrokerUnavailable):
            KafkaConnection("127.0.0.1", 1, left_s, clock, security, left_s)
    assert waited == [3.0, 1.0, 1.0, ATTEMPT_SECONDS_MIN]
