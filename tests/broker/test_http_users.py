"""HTTPS of a broker with access rules: users log in by password, and get what they may."""

import asyncio
import json
import shutil
import socket
import ssl
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode
from uuid import uuid4

import pytest
from typer.testing import CliRunner

from smq.app.process.clock import wall_ms
from smq.cli.verbs import app
from smq.client.client import connect
from smq.client.remote_filer import RemoteFiler
from smq.client.secure.security import Security, TlsFiles
from smq.client.secure.tokens import Callback
from smq.model.errors import StoreError
from smq.model.security_settings import STANDARD_AUTHORIZER
from smq.security.acls import CLUSTER_NAME, Operation, ResourceType
from smq.testing.smq_broker import SmqBroker
from tests.app.fake_broker import eventually
from tests.app.http_client import TIMEOUT_S, Answer, exchanged
from tests.broker.guarded import allow
from tests.broker.users import add_users, remove_user
from tests.front.users import as_user
from tests.security.issuer import AUDIENCE, ISSUER, claims_of, token, write_jwks

pytestmark = pytest.mark.timeout(120)
LOGINS_OF_ONE = 50  # Connection.
VALUE = b"a secret of this topic"


class Door(NamedTuple):
    """A broker that speaks HTTPS only; alice and bob have passwords."""

    broker: SmqBroker
    certs: Path

    @property
    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.certs / "ca.pem")

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.broker.status().http.rpartition(":")
        return host, int(port)

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        secured = HTTPSConnection(*self.address, context=self.context)
        return exchanged(secured, method, path, body, headers)

    def query(self, user: str, sql: str) -> Any:
        headers = {**as_user(user), "content_type": "application/sql"}
        return self.ask("POST", "/sql", sql.encode(), **headers).json


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    certs = tmp_path_factory.mktemp("certs")
    assert CliRunner().invoke(app, ["certs", str(certs), "--client", "x"]).exit_code == 0
    settings = {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:ANONYMOUS;User:root",
        "http.port": "0",
        "http.security.protocol": "SSL",
        "listener.name.http.ssl.keystore.location": str(certs / "broker.pem"),
        "sasl.oauthbearer.jwks.endpoint.url": write_jwks(certs / "jwks.json", "rsa"),
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
    }
    with SmqBroker(tmp_path_factory.mktemp("b"), settings) as broker:
        add_users(broker.bootstrap, {name: name[::-1] for name in ("alice", "bob", "root")})
        yield Door(broker, certs)


@pytest.fixture
def topic(door: Door) -> str:
    """A topic with one record, which alice may read and write."""
    name = f"t{uuid4().hex[:8]}"
    with connect(door.broker.bootstrap) as client:
        client.create_topic(name, 1)
        with client.producer() as producer:
            producer.send(name, VALUE).result(TIMEOUT_S)
    allow(door.broker, "alice", ResourceType.TOPIC, name, Operation.READ)
    allow(door.broker, "alice", ResourceType.TOPIC, name, Operation.WRITE)
    return name


def test_health_answers_everybody_in_tls_and_not_plainly(door: Door) -> None:
    assert door.ask("GET", "/health/live").json == {"live": True}
    with socket.create_connection(door.address, TIMEOUT_S) as plain:
        plain.sendall(b"GET /health/live HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        assert b"live" not in plain.recv(1000)


def test_a_query_reads_topics_that_its_user_may_read(door: Door, topic: str) -> None:
    other = f"u{uuid4().hex[:8]}"
    with connect(door.broker.bootstrap) as client:
        client.create_topic(other, 1)
    told = door.query("alice", f"SELECT value FROM {topic}")
    assert told["rows"] == [[VALUE.decode()]]
    tables = door.query("alice", "SHOW TABLES")["rows"]
    assert [topic] in tables
    assert [other] not in tables
    for name in (other, "none"):
        assert "does not exist" in door.query("alice", f"SELECT * FROM {name}")["error"]
    assert "does not exist" in door.query("bob", f"SELECT * FROM {topic}")["error"]
    assert [other] in door.query("root", "SHOW TABLES")["rows"]


def test_a_token_of_the_issuer_opens_what_its_user_may(door: Door, topic: str) -> None:
    def query(claims: dict[str, Any]) -> Answer:
        headers = {"authorization": f"Bearer {token(claims)}", "content-type": "application/sql"}
        return door.ask("POST", "/sql", f"SELECT value FROM {topic}".encode(), **headers)

    now_s = wall_ms() / 1000
    assert query(claims_of(now_s)).json["rows"] == [[VALUE.decode()]]
    assert "does not exist" in query(claims_of(now_s, sub="bob")).json["error"]
    assert query(claims_of(now_s, aud="another")).status == 401


def check_only_alice_reaches(filers: Mapping[str, RemoteFiler], key: str) -> None:
    """She may write and read the payload, and bob neither."""
    with pytest.raises(StoreError, match="WRITE"), filers["bob"].writing(key) as sink:
        sink.write(b"abc")
    with filers["alice"].writing(key) as sink:
        sink.write(b"abc")
    assert filers["alice"].get(key) == b"abc"
    with pytest.raises(StoreError, match="READ"):
        filers["bob"].get(key)


def test_a_payload_is_uploaded_and_read_by_who_may_write_and_read_its_topic(
    door: Door, topic: str
) -> None:
    secured = TlsFiles((("ssl.truststore.location", str(door.certs / "ca.pem")),))
    filers = {
        user: RemoteFiler(*door.address, security=Security(secured, "PLAIN", user, user[::-1]))
        for user in ("alice", "bob")
    }
    key = f"payloads/kafka/{topic}/{'0' * 32}-000000000003-364b3fb7"  # "abc".
    check_only_alice_reaches(filers, key)
    stranger = RemoteFiler(*door.address, security=Security(TlsFiles(), "PLAIN", "alice", "ecila"))
    with pytest.raises(StoreError, match="certificate"):
        stranger.get(key)


def test_a_payload_is_reached_by_the_token_of_the_clients_login(door: Door, topic: str) -> None:
    ca = ("ssl.truststore.location", str(door.certs / "ca.pem"))
    given = list[str]()

    def tokens_of(user: str) -> Callback:
        def callback(_config: str) -> tuple[str, float]:
            claims = claims_of(wall_ms() / 1000, sub=user)
            given.append(token(claims))
            return given[-1], claims["exp"]

        return Callback(callback)

    filers = {
        user: RemoteFiler(
            *door.address,
            security=Security(TlsFiles((ca,)), "OAUTHBEARER", tokens=tokens_of(user)),
        )
        for user in ("alice", "bob")
    }
    key = f"payloads/kafka/{topic}/{'1' * 32}-000000000003-364b3fb7"  # "abc".
    check_only_alice_reaches(filers, key)
    assert len(given) == 2  # One each, for all of it.


def test_refusals_by_http_are_in_the_audit_log(door: Door) -> None:
    def told(event: str) -> list[dict[str, Any]]:
        lines = (door.broker.data_dir / "audit" / "access.log").read_text().splitlines()
        return [each for each in map(json.loads, lines) if each["event"] == event]

    add_users(door.broker.bootstrap, {"dora": "arod"})
    forged = "a%0A%7B%22event%22%3A%22act%22%7D"
    assert door.ask("GET", "/health", **as_user("dora")).status == 403
    assert door.ask("GET", f"/filer/docs/{forged}", **as_user("dora")).status in {400, 403}
    assert door.ask("PUT", "/filer/docs/x", b"x", **as_user("dora")).status == 403
    assert door.ask("GET", "/health", **as_user("dora", "wrong")).status == 401

    def of_dora() -> list[tuple[str, ...]]:
        fields = "api", "operation", "resource_type", "resource"
        its = [each for each in told("denied") if each["principal"] == "User:dora"]
        assert all(each["listener"] == "HTTP" and each["host"] == "127.0.0.1" for each in its)
        return [tuple(each[field] for field in fields) for each in its]

    wanted = {
        ("HTTP GET /health", "DESCRIBE", "CLUSTER", CLUSTER_NAME),
        ("HTTP PUT /filer", "WRITE", "TOPIC", "filer/docs/x"),
    }
    eventually(lambda: wanted <= set(of_dora()), "denials")
    failed = {"host": "127.0.0.1", "listener": "HTTP", "detail": "password"}
    eventually(
        lambda: any(failed.items() <= each.items() for each in told("failed login")), "a failure"
    )
    assert not told("act")


def test_a_rule_that_is_deleted_and_a_user_who_is_deleted_are_refused_at_once(door: Door) -> None:
    add_users(door.broker.bootstrap, {"carol": "lorac"})
    path = "/health"
    assert door.ask("GET", path, **as_user("carol")).status == 403
    allow(door.broker, "carol", ResourceType.CLUSTER, CLUSTER_NAME, Operation.DESCRIBE)
    assert door.ask("GET", path, **as_user("carol")).status == 200
    remove_user(door.broker.bootstrap, "carol")
    assert door.ask("GET", path, **as_user("carol")).status == 401


def test_keys_are_read_again_when_they_change(door: Door) -> None:
    def serial() -> object:
        with (
            socket.create_connection(door.address, TIMEOUT_S) as plain,
            door.context.wrap_socket(plain, server_hostname=door.address[0]) as secured,
        ):
            return (secured.getpeercert() or {})["serialNumber"]

    before = serial()
    shutil.move(door.certs / "broker.pem", door.certs / "old.pem")
    assert CliRunner().invoke(app, ["certs", str(door.certs)]).exit_code == 0
    eventually(lambda: serial() != before, "the new certificate is shown")


def test_a_large_object_passes_in_both_directions(door: Door) -> None:
    body = bytes(range(256)) * 20_000
    headers = as_user("root")
    assert door.ask("PUT", "/filer/docs/large", body, **headers).status == 201
    assert door.ask("GET", "/filer/docs/large", **headers).body == body


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_ten_thousand_wrong_logins_leave_http_to_others(door: Door) -> None:
    """Wrong passwords, of users that there are and are not, and tokens, a few at a time on each of
    many connections: a user who is known gets each of his answers meanwhile."""
    add_users(door.broker.bootstrap, {"ruth": "htur"})
    assert door.ask("GET", "/health", **as_user("root")).status == 200
    now_s, statuses = wall_ms() / 1000, Counter[bytes]()
    wrong = [
        *(as_user(name, f"wrong{n}") for n in range(20) for name in ("alice", f"nobody{n}")),
        {"authorization": f"Bearer {token(claims_of(now_s, aud='another'))}"},
        {"authorization": f"Bearer {token(claims_of(now_s), key='rsa another')}"},
    ]

    async def try_again_and_again(first: int) -> None:
        reader, writer = await asyncio.open_connection(*door.address, ssl=door.context)
        for n in range(first, first + LOGINS_OF_ONE):
            shown = wrong[n % len(wrong)]["authorization"]
            head = f"GET /health HTTP/1.1\r\nhost: localhost\r\nauthorization: {shown}\r\n\r\n"
            writer.write(head.encode())
            status = (await reader.readuntil(b"\r\n\r\n"))[9:12]
            statuses[status] += 1
            await reader.readuntil(b"}")
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    async def flood() -> None:
        async with asyncio.timeout(250):
            await asyncio.gather(*(try_again_and_again(n) for n in range(10_000 // LOGINS_OF_ONE)))

    with ThreadPoolExecutor(1) as pool:
        flooding = pool.submit(asyncio.run, flood())
        answers = [door.ask("GET", "/health", **as_user("root")).status]
        while not flooding.done():
            answers.append(door.ask("GET", "/health", **as_user("root")).status)
        flooding.result()
    assert set(answers) == {200}
    assert {b"401"} <= statuses.keys() <= {b"401", b"503"}
    assert statuses.total() == 10_000
    assert door.ask("GET", "/health", **as_user("ruth")).status == 403  # His first login.


def test_a_console_session_ends_with_the_key_that_signed_its_token(door: Door) -> None:
    def issued(key: str) -> str:
        return token(claims_of(wall_ms() / 1000), key=key)

    def status(key: str) -> int:
        return door.ask("GET", "/filer/x", authorization=f"Bearer {issued(key)}").status

    def opened(key: str) -> str:
        """The cookie of a session."""
        answer = door.ask("POST", "/console/login", urlencode({"jwt": issued(key)}).encode())
        assert answer.status == 303, answer.body
        return answer.headers["set-cookie"].partition(";")[0]

    keys = door.certs / "jwks.json"
    write_jwks(keys, "rsa", "rsa other")
    eventually(lambda: status("rsa other") != 401, "both keys are known")
    ends, stays = opened("rsa other"), opened("rsa")
    assert [door.ask("GET", "/", cookie=each).status for each in (ends, stays)] == [200, 200]
    write_jwks(keys, "rsa")
    eventually(lambda: door.ask("GET", "/", cookie=ends).status != 200, "the session ended")
    assert door.ask("GET", "/", cookie=stays).status == 200
    assert status("rsa other") == 401
