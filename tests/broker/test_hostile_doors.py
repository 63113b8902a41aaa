"""Who has not logged in harms nobody: garbage, half handshakes, slow logins, at each listener."""

import resource
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random
from time import monotonic, sleep
from typing import Any
from uuid import uuid4

import pytest
import scramp
from typer.testing import CliRunner

from smq.app.process.clock import wall_ms
from smq.cli.key_pairs import KeyPair, make_pair
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
from tests.broker.users import add_users

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

DOORS = ("SASL_PLAINTEXT", "SASL_SSL", "SSL")
UNIX = "a unix socket"
SLOW_LOGINS, ADDRESSES, NEWCOMERS_MAX = 10_000, 20, 1000
MANY_GROW_BYTES_MAX = 96 * MiB  # With a thousand half handshakes.
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
        "ssl.truststore.location": str(certs / "ca.pem"),
        "listener.name.mutual.ssl.client.auth": "required",
    }
    directory = tmp_path_factory.mktemp("broker")
    listeners = {each: each for each in DOORS} | {"MUTUAL": "SSL"}
    with SmqBroker(directory, settings, listeners=listeners) as broker:
        yield broker


def certs_of(broker: SmqBroker) -> Path:
    return Path(broker.settings["ssl.keystore.location"]).parent


def door_of(broker: SmqBroker, door: str) -> int | Path:
    return Path(broker.status().sockets[0]) if door == UNIX else broker.port_of(door)


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


@pytest.mark.parametrize("door", [*DOORS, "MUTUAL", UNIX])
def test_garbage_at_a_door_harms_no_other_client(
    broker: SmqBroker, topic: OneTopic, door: str
) -> None:
    before, chance = descriptors(broker), Random(door)
    with bounded(broker, GROWS_BYTES_MAX, 400 * MiB):
        for taken in range(60):
            with crowd(door_of(broker, door), 5, lambda _: None) as clients:
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
            slow_login(opened, broker.port_of(door), said)
        assert topic.produce(one_record(b"mine")).error_code == ErrorCode.NONE
        wait_for(lambda: descriptors(broker) <= before + OF_ADDRESS_MAX + 5)
        assert descriptors(broker) > before + OF_ADDRESS_MAX - 5, "the newest have not been closed"
        wait_for(lambda: descriptors(broker) <= before + 5)  # Their ten seconds are over.


def slow_login(opened: ExitStack, port: int, said: bytes, source: str = "127.0.0.1") -> None:
    """Connect from an address of this host, and say the begin of a login."""
    there = socket.create_connection(("127.0.0.1", port), SECONDS_MAX, (source, 0))
    opened.enter_context(there).sendall(said)


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] < SLOW_LOGINS + 1000:
        pytest.skip("needs the right to open ten thousand descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("many_descriptors")
@pytest.mark.parametrize("door", ["SASL_SSL", "SASL_PLAINTEXT"])
def test_thousands_of_slow_logins_from_many_addresses_hold_up_no_neighbour(
    broker: SmqBroker, topic: OneTopic, door: str
) -> None:
    before = descriptors(broker)
    hello = first_flight() if door == "SASL_SSL" else b"\0\0\0\x20"
    with bounded(broker, MANY_GROW_BYTES_MAX, 400 * MiB), ExitStack() as opened:
        for number in range(SLOW_LOGINS):
            source = f"127.0.1.{1 + number % ADDRESSES}"
            slow_login(opened, broker.port_of(door), hello, source)
            if number % 1000 == 0:
                assert topic.produce(one_record(b"mine")).error_code == ErrorCode.NONE
        wait_for(lambda: descriptors(broker) <= before + NEWCOMERS_MAX + 5)
        assert topic.produce(one_record(b"mine")).error_code == ErrorCode.NONE
        wait_for(lambda: descriptors(broker) <= before + 5)


def first_flight() -> bytes:
    """A whole hello: the broker answers, and half a handshake is done."""
    outgoing = ssl.MemoryBIO()
    context = ssl.create_default_context()
    context.set_ecdh_curve("prime256v1")
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


@pytest.mark.parametrize("door", ["SSL", "SASL_SSL", "MUTUAL"])
def test_handshakes_cut_at_each_byte_leave_no_descriptor(broker: SmqBroker, door: str) -> None:
    before, hello = descriptors(broker), first_flight()
    for end in range(len(hello) + 1):
        with RawClient(broker.port_of(door)) as client:
            client.send(hello[:end])
    wait_for(lambda: descriptors(broker) <= before + 5)


def test_a_certificate_of_a_megabyte_ends_its_handshake(broker: SmqBroker, tmp_path: Path) -> None:
    certs = certs_of(broker)
    authority = KeyPair((certs / "ca-key.pem").read_bytes(), (certs / "ca.pem").read_bytes())
    contexts = []
    for count in (1, 14_000):
        hosts = [f"{'x' * 55}-{number}.example" for number in range(count)]
        pair = make_pair("large", 1, wall_ms(), authority, hosts)
        (tmp_path / "pair.pem").write_bytes(pair.key + pair.certificate)
        context = ssl.create_default_context(cafile=str(certs / "ca.pem"))
        context.load_cert_chain(tmp_path / "pair.pem")
        contexts.append(context)
    assert len(pair.certificate) > MiB
    with bounded(broker, GROWS_BYTES_MAX, 400 * MiB):
        refused = [is_refused(broker.port_of("MUTUAL"), each) for each in contexts]
    assert refused == [False, True]


def is_refused(port: int, context: ssl.SSLContext) -> bool:
    """Whether nothing is answered through TLS."""
    try:
        with (
            socket.create_connection(("127.0.0.1", port), SECONDS_MAX) as there,
            context.wrap_socket(there, server_hostname="localhost") as client,
        ):
            client.sendall(request("ApiVersions", 0, ApiVersionsRequest()))
            return not client.recv(1)
    except (ssl.SSLError, ConnectionError):
        return True


def test_a_replayed_login_is_none(broker: SmqBroker) -> None:
    add_users(broker.bootstrap, {"alice": "pencil"})
    hands = request("SaslHandshake", 1, SaslHandshakeRequest(mechanism="SCRAM-SHA-256"))
    with RawClient(broker.port_of("SASL_PLAINTEXT")) as client:
        scram = scramp.ScramClient(["SCRAM-SHA-256"], "alice", "pencil")
        client.send(hands)
        client.answer()
        first = scram.get_client_first().encode()
        scram.set_server_first(said(client, first).auth_bytes.decode())
        final = scram.get_client_final().encode()
        assert said(client, final).error_code == ErrorCode.NONE
    with RawClient(broker.port_of("SASL_PLAINTEXT")) as client:
        client.send(hands)
        client.answer()
        assert said(client, first).error_code == ErrorCode.NONE
        assert said(client, final).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.answer() is None


def said(client: RawClient, token: bytes) -> Any:
    return client.ask("SaslAuthenticate", 2, SaslAuthenticateRequest(auth_bytes=token))


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
