"""Real clients log in by each mechanism and listener, produce, and read what they have produced."""

import asyncio
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import KafkaError, KafkaException, Producer
from typer.testing import CliRunner

from smq.app.front.observer import Observer
from smq.cli.verbs import app
from smq.model.errors import ErrorCode
from smq.testing.smq_broker import SmqBroker
from smq.wire.generated.api_versions import ApiVersionsRequest
from smq.wire.generated.sasl_authenticate import SaslAuthenticateRequest
from smq.wire.generated.sasl_handshake import SaslHandshakeRequest
from tests.app.fake_broker import eventually
from tests.app.shard_client import request
from tests.broker.hostile import RawClient
from tests.broker.there_and_back import (
    SECONDS_MAX,
    VALUES,
    by_kafkas_tools,
    by_librdkafka,
    by_our_client,
    java_classpath,
    new_topic,
    tails_of,
)
from tests.broker.users import STRONGER, WEAKER, add_users, remove_user

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
USER, PASSWORD = "alice", "pencil, with = and \u00fc"
WAYS = [
    *(
        (protocol, mechanism)
        for protocol in ("SASL_PLAINTEXT", "SASL_SSL")
        for mechanism in MECHANISMS
    ),
    ("SSL", ""),
]


class Doors(NamedTuple):
    broker: SmqBroker
    certs: Path

    def address(self, protocol: str) -> str:
        return f"127.0.0.1:{self.broker.port_of(protocol)}"


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    certs = tmp_path_factory.mktemp("certs")
    done = CliRunner().invoke(app, ["certs", str(certs), "--client", USER])
    assert done.exit_code == 0, done.output
    settings = {
        "shards": "2",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "ssl.keystore.location": str(certs / "broker.pem"),
        "ssl.truststore.location": str(certs / "ca.pem"),
        "listener.name.ssl.ssl.client.auth": "required",
    }
    listeners = {each: each for each in ("SASL_PLAINTEXT", "SASL_SSL", "SSL")}
    with SmqBroker(tmp_path_factory.mktemp("b"), settings, listeners=listeners) as broker:
        add_users(broker.bootstrap, {USER: PASSWORD})
        yield Doors(broker, certs)


@pytest.fixture
def topic(doors: Doors) -> str:
    return new_topic(doors.broker)


def librdkafka(doors: Doors, protocol: str, mechanism: str, **more: Any) -> dict[str, Any]:
    options = {"bootstrap.servers": doors.address(protocol), "security.protocol": protocol}
    if mechanism:
        options |= {"sasl.mechanism": mechanism, "sasl.username": USER, "sasl.password": PASSWORD}
    if protocol.endswith("SSL"):
        options["ssl.ca.location"] = str(doors.certs / "ca.pem")
    if protocol == "SSL":
        pem = str(doors.certs / f"{USER}.pem")
        options |= {"ssl.certificate.location": pem, "ssl.key.location": pem}
    return options | more


@pytest.mark.slow
@pytest.mark.parametrize(("protocol", "mechanism"), WAYS)
def test_librdkafka_logs_in(doors: Doors, topic: str, protocol: str, mechanism: str) -> None:
    config, first = librdkafka(doors, protocol, mechanism), doors.broker.port_of(protocol)
    assert by_librdkafka(topic, config, config) == {first, first + 1}


@pytest.mark.parametrize(("protocol", "mechanism"), WAYS)
def test_our_own_client_logs_in(doors: Doors, topic: str, protocol: str, mechanism: str) -> None:
    by_our_client(topic, librdkafka(doors, protocol, mechanism))


def python_options(doors: Doors, protocol: str, mechanism: str) -> dict[str, Any]:
    """As kafka-python and aiokafka name them."""
    options: dict[str, Any] = {
        "bootstrap_servers": doors.address(protocol),
        "security_protocol": protocol,
    }
    if mechanism:
        options |= {
            "sasl_mechanism": mechanism,
            "sasl_plain_username": USER,
            "sasl_plain_password": PASSWORD,
        }
    if protocol.endswith("SSL"):
        context = ssl.create_default_context(cafile=str(doors.certs / "ca.pem"))
        if protocol == "SSL":
            context.load_cert_chain(doors.certs / f"{USER}.pem")
        options["ssl_context"] = context
    return options


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Of kafka-python itself.
@pytest.mark.parametrize(("protocol", "mechanism"), WAYS)
def test_kafka_python_logs_in(doors: Doors, topic: str, protocol: str, mechanism: str) -> None:
    from kafka import KafkaConsumer, KafkaProducer  # noqa: PLC0415  (it warns)

    options = python_options(doors, protocol, mechanism)
    producer = KafkaProducer(**options)
    sent = [producer.send(topic, value, partition=0) for value in VALUES]
    assert [each.get(SECONDS_MAX).offset for each in sent] == [*range(len(VALUES))]
    producer.close()
    consumer = KafkaConsumer(topic, auto_offset_reset="earliest", **options)
    assert [next(consumer).value for _ in VALUES] == VALUES
    consumer.close()


@pytest.mark.parametrize(("protocol", "mechanism"), WAYS)
def test_aiokafka_logs_in(doors: Doors, topic: str, protocol: str, mechanism: str) -> None:
    async def talk() -> list[bytes]:
        options = python_options(doors, protocol, mechanism)
        async with AIOKafkaProducer(**options) as producer:
            for value in VALUES:
                await producer.send_and_wait(topic, value, partition=0)
        async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", **options) as consumer:
            return [(await consumer.getone()).value for _ in VALUES]

    assert asyncio.run(asyncio.wait_for(talk(), SECONDS_MAX)) == VALUES


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_a_failed_login_to_clients(
    doors: Doors, topic: str, mechanism: str
) -> None:
    errors: list[KafkaError] = []
    options = librdkafka(doors, "SASL_PLAINTEXT", mechanism) | {"sasl.password": "wrong"}
    once = {"error_cb": errors.append, "reconnect.backoff.ms": 10_000, "log_level": 0}
    producer = Producer(options | once)
    producer.produce(topic, b"x")
    deadline = monotonic() + SECONDS_MAX
    while not errors and monotonic() < deadline:
        producer.poll(0.1)
    assert errors[0].code() == KafkaError._AUTHENTICATION
    words = {"PLAIN": "Invalid username or password"}
    assert words.get(mechanism, "invalid credentials with SASL mechanism") in errors[0].str()
    producer.purge()
    assert not any(tails_of(doors.broker, topic).values())


def test_a_client_without_a_certificate_does_not_come_in(doors: Doors, topic: str) -> None:
    options = librdkafka(doors, "SSL", "")
    del options["ssl.certificate.location"], options["ssl.key.location"]
    producer = Producer(options | {"log_level": 0})
    producer.produce(topic, b"x")
    with pytest.raises(KafkaException):
        producer.list_topics(timeout=3)
    producer.purge()
    assert not any(tails_of(doors.broker, topic).values())


def test_the_broker_knows_when_its_certificates_end(doors: Doors) -> None:
    observer, found = Observer(doors.broker.data_dir), {"": 0.0}
    deadline = monotonic() + SECONDS_MAX
    while {*found} != {"SASL_SSL", "SSL"}:  # The node tells it once a second.
        assert monotonic() < deadline
        found = {each.listener: each.days_left for each in observer.look().certificates}
    assert all(29 < days < 30.1 for days in found.values())


def test_a_restarted_shard_without_usable_keys_serves_its_other_listeners(
    tmp_path: Path,
) -> None:
    done = CliRunner().invoke(app, ["certs", str(tmp_path / "certs")])
    assert done.exit_code == 0, done.output
    keys = tmp_path / "certs" / "broker.pem"
    good = keys.read_bytes()
    settings = {"ssl.keystore.location": str(keys)}
    with SmqBroker(tmp_path / "b", settings, listeners={"SSL": "SSL"}) as broker:
        keys.write_text("<html>502 Bad Gateway</html>")
        broker.kill("shard-1")
        with RawClient(broker.port) as client:
            client.ask("ApiVersions", 0, ApiVersionsRequest())
        context = ssl.create_default_context(cafile=tmp_path / "certs" / "ca.pem")

        def comes_in() -> bool:
            address = ("127.0.0.1", broker.port_of("SSL"))
            with socket.create_connection(address, 10) as plain:
                try:
                    context.wrap_socket(plain, server_hostname="localhost").close()
                except OSError:
                    return False
            return True

        assert not comes_in()
        keys.write_bytes(good)
        eventually(comes_in, "the keys are good again")


@contextmanager
def logged_in_plainly(doors: Doors, user: str, password: str) -> Iterator[RawClient]:
    with RawClient(doors.broker.port_of("SASL_PLAINTEXT")) as client:
        client.send(request("SaslHandshake", 1, SaslHandshakeRequest(mechanism="PLAIN")))
        token = SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{password}".encode())
        assert client.answer()
        assert client.ask("SaslAuthenticate", 2, token).error_code == ErrorCode.NONE
        assert client.ask("ApiVersions", 0, ApiVersionsRequest()).error_code == ErrorCode.NONE
        yield client


def test_a_deleted_credential_ends_the_connections_that_used_it(doors: Doors) -> None:
    add_users(doors.broker.bootstrap, {"mallory": "m"})
    with logged_in_plainly(doors, "mallory", "m") as client:
        remove_user(doors.broker.bootstrap, "mallory")
        assert client.ask("ApiVersions", 0, ApiVersionsRequest()) is None


def test_a_stronger_credential_ends_the_connections_that_plain_checked_with_the_weaker(
    doors: Doors,
) -> None:
    add_users(doors.broker.bootstrap, {"peggy": "old"}, [WEAKER])
    with logged_in_plainly(doors, "peggy", "old") as client:
        add_users(doors.broker.bootstrap, {"peggy": "new"}, [STRONGER])
        assert client.ask("ApiVersions", 0, ApiVersionsRequest()) is None
    with logged_in_plainly(doors, "peggy", "new") as client:
        add_users(doors.broker.bootstrap, {"peggy": "newer"}, [WEAKER])
        assert client.ask("ApiVersions", 0, ApiVersionsRequest()).error_code == ErrorCode.NONE


@pytest.fixture(scope="module")
def java() -> str:
    return java_classpath()


def properties(doors: Doors, path: Path, protocol: str, mechanism: str) -> Path:
    """A file for Kafka's tools."""
    lines = [f"security.protocol={protocol}"]
    if mechanism:
        login = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
        module = f"org.apache.kafka.common.security.{login}LoginModule"
        lines += [
            f"sasl.mechanism={mechanism}",
            f'sasl.jaas.config={module} required username="{USER}" password="{PASSWORD}";',
        ]
    if protocol.endswith("SSL"):
        lines += ["ssl.truststore.type=PEM", f"ssl.truststore.location={doors.certs / 'ca.pem'}"]
    if protocol == "SSL":
        pem = doors.certs / f"{USER}.pem"
        lines += ["ssl.keystore.type=PEM", f"ssl.keystore.location={pem}"]
    path.write_text("\n".join(lines).replace("\u00fc", r"\u00fc"))  # As Java reads properties.
    return path


@pytest.mark.clients
@pytest.mark.slow
@pytest.mark.parametrize(("protocol", "mechanism"), WAYS)
def test_kafkas_java_client_logs_in(  # noqa: PLR0913, PLR0917  (fixtures)
    doors: Doors, topic: str, java: str, tmp_path: Path, protocol: str, mechanism: str
) -> None:
    file = properties(doors, tmp_path / "client.properties", protocol, mechanism)
    by_kafkas_tools(java, topic, doors.address(protocol), file)
