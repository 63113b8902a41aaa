"""Who has not logged in harms nobody: garbage, half handshakes, slow logins, at each listener."""

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from time import monotonic, sleep
from uuid import uuid4

import pytest
from typer.testing import CliRunner

from smq.cli.verbs import app
from smq.client.kafka.cluster import Cluster
from smq.model.errors import ErrorCode
from smq.testing.smq_broker import SmqBroker
from smq.wire.generated.api_versions import ApiVersionsRequest
from smq.wire.generated.sasl_authenticate import SaslAuthenticateRequest
from smq.wire.generated.sasl_handshake import SaslHandshakeRequest
from tests.app.shard_client import request
from tests.broker.hostile import MiB, RawClient, bounded, crowd
from tests.broker.one_topic import SETTINGS, OneTopic
from tests.broker.test_garbage import garbled, one_record

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

DOORS = ("SASL_PLAINTEXT", "SASL_SSL", "SSL")
OF_ADDRESS_MAX = 500
GROWS_BYTES_MAX = 64 * MiB  # A shard with 500 half handshakes, of 36 KiB each, and its buffers.
SECONDS_MAX = 30.0
HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"  # The begin of a record of 512 bytes.


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmqBroker]:
    certs = tmp_path_factory.mktemp("certs")
    assert CliRunner().invoke(app, ["certs", str(certs)]).exit_code == 0
    settings = SETTINGS | {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "ssl.keystore.location": str(certs / "broker.pem"),
    }
    directory = tmp_path_factory.mktemp("broker")
    with SmqBroker(directory, settings, listeners={each: each for each in DOORS}) as broker:
        yield broker


@pytest.fixture
def topic(broker: SmqBroker, cluster: Cluster) -> OneTopic:
    return OneTopic(broker, cluster, f"neighbour-{uuid4().hex[:8]}")


def descriptors(broker: SmqBroker) -> int:
    pid = broker.status().processes["shard-1"].pid
    return len([*Path(f"/proc/{pid}/fd").iterdir()])


def login(chance: Random) -> bytes:
    """Something like a login: its parts in any order, some of them cut."""
    said = b""
    for _ in range(chance.randint(1, 5)):
        garbage = chance.randbytes(chance.randrange(200))
        token = chance.choice((b"", b"\0a\0b", b"n,,n=a,r=b", garbage))
        mechanism = chance.choice(("PLAIN", "SCRAM-SHA-256", "GSSAPI", "a\nb\x1b[2J"))
        part = chance.choice(
            (
                request("ApiVersions", 0, ApiVersionsRequest()),
                request("SaslHandshake", 1, SaslHandshakeRequest(mechanism=mechanism)),
                request("SaslHandshake", 0, SaslHandshakeRequest(mechanism=mechanism)),
                request("SaslAuthenticate", 2, SaslAuthenticateRequest(auth_bytes=token)),
                len(token).to_bytes(4) + token,
                garbled(chance),
            )
        )
        said += part[: chance.randrange(len(part) + 1)] if chance.random() < 0.1 else part
    return said


@pytest.mark.parametrize("door", DOORS)
def test_garbage_at_a_door_harms_no_other_client(
    broker: SmqBroker, topic: OneTopic, door: str
) -> None:
    before, chance = descriptors(broker), Random(door)
    with bounded(broker, GROWS_BYTES_MAX, 400 * MiB):
        for taken in range(60):
            with crowd(broker.port_of(door), 5, lambda _: None) as clients:
                for client in clients:
                    client.send(chance.choice((login, garbled, records))(chance))
                answer = topic.produce(one_record(b"mine"))
                assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, taken)
    wait_for(lambda: descriptors(broker) <= before + 5)


def records(chance: Random) -> bytes:
    """Something like TLS."""
    body = chance.randbytes(chance.randrange(600))
    return bytes((chance.randrange(20, 25), 3, chance.randrange(5))) + len(body).to_bytes(2) + body


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = monotonic() + SECONDS_MAX
    while not condition():
        assert monotonic() < deadline
        sleep(0.05)


@pytest.mark.parametrize("door", DOORS)
def test_thousands_of_slow_logins_hold_little_and_leave_nothing(
    broker: SmqBroker, topic: OneTopic, door: str
) -> None:
    before = descriptors(broker)
    said = HELLO if door != "SASL_PLAINTEXT" else b"\0\0\0\x20"
    with bounded(broker, GROWS_BYTES_MAX, 400 * MiB), ExitStack() as opened:
        for _ in range(2000):
            address = ("127.0.0.1", broker.port_of(door))
            opened.enter_context(socket.create_connection(address)).sendall(said)
        assert topic.produce(one_record(b"mine")).error_code == ErrorCode.NONE
        wait_for(lambda: descriptors(broker) <= before + OF_ADDRESS_MAX + 5)
        assert descriptors(broker) > before + OF_ADDRESS_MAX - 5, "the newest have not been closed"
        wait_for(lambda: descriptors(broker) <= before + 5)  # Their ten seconds are over.


def test_a_certificate_of_a_megabyte_is_not_taken(broker: SmqBroker) -> None:
    with RawClient(broker.port_of("SSL")) as client:
        fragment = (16384).to_bytes(2)
        head = b"\x0b" + (1 << 20).to_bytes(3)  # A Certificate message that long.
        record = b"\x16\x03\x03" + fragment + head.ljust(16384, b"x")
        client.send(64 * record)
        answer = client.socket.recv(100)
        assert not answer or answer[0] == 21, "an alert, if anything"


def test_a_log_line_cannot_be_forged_by_a_name(broker: SmqBroker) -> None:
    token = b"\0evil\nready 1.2.3.4:9092\0wrong"
    with RawClient(broker.port_of("SASL_PLAINTEXT")) as client:
        client.send(request("SaslHandshake", 1, SaslHandshakeRequest(mechanism="PLAIN")))
        client.send(request("SaslAuthenticate", 2, SaslAuthenticateRequest(auth_bytes=token)))
        assert client.answer()
        assert client.answer()
        assert client.answer() is None
    assert "1.2.3.4" not in Path(broker.output).read_text()
