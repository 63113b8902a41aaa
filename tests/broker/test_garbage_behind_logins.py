"""Garbage from clients that have logged in, or stand behind TLS, and may do little: nothing that
they may not write to has moved, and others are served as before."""

import ssl
from collections.abc import Iterator
from pathlib import Path
from random import Random
from uuid import uuid4

import pytest
from typer.testing import CliRunner

from smq.cli.verbs import app
from smq.client.kafka.admin import create_topic
from smq.client.kafka.cluster import Cluster
from smq.model.errors import ErrorCode
from smq.model.security_settings import STANDARD_AUTHORIZER
from smq.testing.smq_broker import SmqBroker
from smq.wire.generated.create_acls import AclCreation, CreateAclsRequest
from smq.wire.generated.sasl_authenticate import SaslAuthenticateRequest
from smq.wire.generated.sasl_handshake import SaslHandshakeRequest
from tests.broker.hostile import MiB, RawClient, bounded, crowd
from tests.broker.one_topic import SETTINGS, OneTopic
from tests.broker.test_garbage import garbled, one_record
from tests.broker.users import add_users

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

ROUNDS, CROWD = 60, 5
GROWS_BYTES_MAX, WORKER_BYTES_MAX = 64 * MiB, 400 * MiB
MALLORY, PASSWORD = "mallory", "mallory's"
# Of CreateAcls: a topic, a literal name; to write, allowed.
TOPIC, LITERAL, WRITE, ALLOW = 2, 3, 4, 3
HERS = "topic-1"  # To which garbage writes.


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    certs = tmp_path_factory.mktemp("certs")
    made = CliRunner().invoke(app, ["certs", str(certs), "--client", MALLORY])
    assert made.exit_code == 0, made.output
    return certs


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, certs: Path) -> Iterator[SmqBroker]:
    settings = SETTINGS | {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:ANONYMOUS",
        "sasl.enabled.mechanisms": "PLAIN",
        "ssl.keystore.location": str(certs / "broker.pem"),
        "ssl.truststore.location": str(certs / "ca.pem"),
        "ssl.principal.mapping.rules": "RULE:^CN=(.*?)$/$1/",
        "listener.name.mutual.ssl.client.auth": "required",
    }
    doors = {"SASL_PLAINTEXT": "SASL_PLAINTEXT", "SASL_SSL": "SASL_SSL", "MUTUAL": "SSL"}
    with SmqBroker(tmp_path_factory.mktemp("broker"), settings, listeners=doors) as broker:
        add_users(broker.bootstrap, {MALLORY: PASSWORD})
        with Cluster(broker.bootstrap) as cluster:
            create_topic(cluster, HERS)
        yield broker


@pytest.fixture
def topic(broker: SmqBroker, cluster: Cluster) -> OneTopic:
    with RawClient(broker.port) as root:
        rule = AclCreation(
            resource_type=TOPIC,
            resource_name=HERS,
            resource_pattern_type=LITERAL,
            principal=f"User:{MALLORY}",
            host="*",
            operation=WRITE,
            permission_type=ALLOW,
        )
        answer = root.ask("CreateAcls", 3, CreateAclsRequest(creations=[rule]))
        assert answer.results[0].error_code == ErrorCode.NONE
    return OneTopic(broker, cluster, f"neighbour-{uuid4().hex[:8]}")


def enter(client: RawClient, door: str, certs: Path) -> None:
    """Pass the door, so that what follows is taken for requests."""
    if door != "SASL_PLAINTEXT":
        context = ssl.create_default_context(cafile=str(certs / "ca.pem"))
        if door == "MUTUAL":
            context.load_cert_chain(certs / f"{MALLORY}.pem")
        client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
    if door != "MUTUAL":
        shaken = client.ask("SaslHandshake", 1, SaslHandshakeRequest(mechanism="PLAIN"))
        assert shaken.error_code == ErrorCode.NONE
        token = f"\0{MALLORY}\0{PASSWORD}".encode()
        told = client.ask("SaslAuthenticate", 2, SaslAuthenticateRequest(auth_bytes=token))
        assert told.error_code == ErrorCode.NONE


@pytest.mark.parametrize("door", ["SASL_PLAINTEXT", "SASL_SSL", "MUTUAL"])
def test_garbage_of_a_limited_client_moves_nothing_of_a_neighbour(
    broker: SmqBroker, topic: OneTopic, certs: Path, door: str
) -> None:
    chance = Random(f"{door} behind a login")
    with bounded(broker, GROWS_BYTES_MAX, WORKER_BYTES_MAX):
        for taken in range(ROUNDS):
            with crowd(broker.port_of(door), CROWD, lambda each: enter(each, door, certs)) as many:
                for client in many:
                    client.send(garbled(chance))
                answer = topic.produce(one_record(b"mine"))
                assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, taken)
