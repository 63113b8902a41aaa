"""Real clients log in with tokens, also beside ten thousand logins with bad ones."""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaError, Producer
from typer.testing import CliRunner

import smq
from smq.cli.verbs import app
from smq.client.errors import AuthenticationFailed
from smq.client.secure.security import PROPERTIES_VARIABLE
from smq.model.errors import ErrorCode
from smq.testing.smq_broker import SmqBroker
from smq.wire.generated.api_versions import ApiVersionsRequest
from smq.wire.generated.sasl_authenticate import SaslAuthenticateRequest
from smq.wire.generated.sasl_handshake import SaslHandshakeRequest
from tests.app.shard_client import request
from tests.broker.hostile import RawClient
from tests.broker.there_and_back import (
    SECONDS_MAX,
    by_kafkas_tools,
    by_librdkafka,
    by_our_client,
    java_classpath,
    new_topic,
)
from tests.client.secure.test_tokens import serving
from tests.security.issuer import (
    AUDIENCE,
    ISSUER,
    claims_of,
    first_message,
    signed,
    token,
    write_jwks,
)

OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearer"
BAD_LOGINS = 10_000
AT_ONCE = 100


class Door(NamedTuple):
    broker: SmqBroker
    keys: Path

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.broker.port_of('TOKENS')}"

    def client(self) -> RawClient:
        return RawClient(self.broker.port_of("TOKENS"))


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    directory = tmp_path_factory.mktemp("b")
    keys = directory / "jwks.json"
    settings = {
        "shards": "2",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": write_jwks(keys, "rsa", "p-256"),
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
    }
    with SmqBroker(directory, settings, listeners={"TOKENS": "SASL_PLAINTEXT"}) as broker:
        yield Door(broker, keys)


@pytest.fixture
def topic(door: Door) -> str:
    return new_topic(door.broker)


def issued(alg: str = "RS256", key: str = "rsa", **claims: Any) -> str:
    return token(claims_of(time.time(), **claims), alg, key)


def librdkafka(door: Door, text: str | None = None, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": door.address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (text or issued(), time.time() + 3600),
    } | more


def test_librdkafka_logs_in_with_a_token(door: Door, topic: str) -> None:
    by_librdkafka(topic, librdkafka(door), librdkafka(door, issued("ES256", "p-256")))


def test_a_bad_token_is_a_failed_login_to_librdkafka(door: Door) -> None:
    errors: list[KafkaError] = []
    once = {"error_cb": errors.append, "reconnect.backoff.ms": 10_000, "log_level": 0}
    producer = Producer(librdkafka(door, issued(aud="others"), **once))
    deadline = time.monotonic() + SECONDS_MAX
    while not errors and time.monotonic() < deadline:
        producer.poll(0.1)
    assert errors[0].code() == KafkaError._AUTHENTICATION
    assert "invalid_token" in errors[0].str()


def log_in(client: RawClient, text: str) -> Any:
    client.send(request("SaslHandshake", 1, SaslHandshakeRequest(mechanism="OAUTHBEARER")))
    assert client.answer()
    message = SaslAuthenticateRequest(auth_bytes=first_message(text))
    return client.ask("SaslAuthenticate", 2, message)


def lasts(door: Door, text: str) -> bool:
    """Whether a token logs in."""
    with door.client() as client:
        answer = log_in(client, text)
        return bool(answer.error_code == ErrorCode.NONE and not answer.auth_bytes)


def test_a_session_ends_with_its_token(door: Door) -> None:
    with door.client() as client:
        lifetime_ms = log_in(client, issued(exp=int(time.time()) + 2)).session_lifetime_ms
        assert 0 < lifetime_ms <= 2000
        asked = ApiVersionsRequest()
        deadline = time.monotonic() + SECONDS_MAX
        while (answer := client.ask("ApiVersions", 0, asked)) is not None:
            assert answer.error_code == ErrorCode.NONE
            assert time.monotonic() < deadline


def test_keys_that_the_issuer_has_changed_are_used_without_a_restart(door: Door) -> None:
    write_jwks(door.keys, "rsa other", "rsa", "p-256")
    deadline = time.monotonic() + SECONDS_MAX
    while not lasts(door, issued(key="rsa other")):
        assert time.monotonic() < deadline, "the file is not read again"
    assert lasts(door, issued())


def test_a_connection_ends_with_the_key_that_signed_its_token(door: Door) -> None:
    asked = ApiVersionsRequest()
    write_jwks(door.keys, "rsa other", "rsa", "p-256")
    deadline = time.monotonic() + SECONDS_MAX
    while not lasts(door, issued(key="rsa other")):
        assert time.monotonic() < deadline, "the file is not read again"
    with door.client() as ends, door.client() as stays:
        for client, key in ((ends, "rsa other"), (stays, "rsa")):
            assert not log_in(client, issued(key=key)).auth_bytes
        write_jwks(door.keys, "rsa", "p-256")
        deadline = time.monotonic() + SECONDS_MAX
        while ends.ask("ApiVersions", 0, asked) is not None:
            assert time.monotonic() < deadline, "it is not closed"
        assert stays.ask("ApiVersions", 0, asked).error_code == ErrorCode.NONE
    assert not lasts(door, issued(key="rsa other"))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_ten_thousand_bad_logins_leave_the_broker_to_others(door: Door, topic: str) -> None:
    good, payload = issued(), b"{" + b"x" * 8000
    bad = [
        issued(aud=None),
        issued(nbf=int(time.time()) + 3600),
        issued("ES256", "p-256 other"),
        signed(b'{"alg": "none"}', payload, "none"),
        signed(b'{"alg": "RS256", "kid": "rsa"}', payload),
        signed(b"[" * 5000, payload),
        "x" * 50_000,
    ]
    before = door.broker.pids()
    handshake = request("SaslHandshake", 1, SaslHandshakeRequest(mechanism="OAUTHBEARER"))
    for begin in range(0, BAD_LOGINS, AT_ONCE):
        with ExitStack() as open_now:
            for i in range(begin, begin + AT_ONCE):
                client = open_now.enter_context(door.client())
                client.send(handshake)
                message = SaslAuthenticateRequest(auth_bytes=first_message(bad[i % len(bad)]))
                client.send(request("SaslAuthenticate", 2, message))
            if begin % 1000 == 0:
                assert lasts(door, good)
    assert lasts(door, good)
    assert door.broker.pids() == before, "none has died"
    producer = Producer(librdkafka(door, good))
    producer.produce(topic, b"after all", partition=0)
    assert producer.flush(SECONDS_MAX) == 0


def ours(door: Door, **more: Any) -> dict[str, Any]:
    found = librdkafka(door, **more)
    del found["bootstrap.servers"]
    return found


def test_our_own_client_logs_in_with_the_tokens_of_a_callback(door: Door, topic: str) -> None:
    by_our_client(topic, librdkafka(door))


@pytest.mark.slow
def test_our_own_client_goes_on_when_its_tokens_end(door: Door, topic: str) -> None:
    """It asks the endpoint for others in time."""
    config = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f'{OAUTH}LoginModule required clientId="smq" clientSecret="s3cret";',
    }
    with serving() as endpoint:

        def answer() -> tuple[int, bytes]:
            given = {"access_token": issued(exp=int(time.time()) + 3), "expires_in": 2}
            return 200, json.dumps(given).encode()

        endpoint.answer = answer()
        config["sasl.oauthbearer.token.endpoint.url"] = endpoint.url
        deadline = time.monotonic() + SECONDS_MAX
        with (
            smq.connect(door.address, config=config, transport="kafka") as client,
            client.producer() as producer,
        ):
            while len(endpoint.asked) < 4:
                assert time.monotonic() < deadline, "no other token is asked for"
                endpoint.answer = answer()
                producer.send(topic, b"x", partition=0).result(SECONDS_MAX)


def test_our_own_client_says_what_is_wrong_with_its_token(door: Door) -> None:
    config = ours(door, oauth_cb=lambda _: (issued(aud="others"), time.time() + 60))
    with (
        pytest.raises(AuthenticationFailed, match=r"invalid_token.*; check the token: its issuer"),
        smq.connect(door.address, config=config) as client,
    ):
        client.topics()


def test_a_verb_logs_in_with_the_token_of_a_file(
    door: Door, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, properties = tmp_path / "token", tmp_path / "client.properties"
    file.write_text(issued())
    properties.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.oauthbearer.token.endpoint.url={file.as_uri()}\n"
    )
    monkeypatch.setenv(PROPERTIES_VARIABLE, str(properties))  # As --command-config does for good.
    done = CliRunner().invoke(app, ["topic", "list", "--bootstrap", door.address])
    assert done.exit_code == 0, done.output
    assert topic in done.output


@pytest.fixture(scope="module")
def java() -> str:
    return java_classpath()


@pytest.mark.clients
@pytest.mark.slow
def test_kafkas_java_client_logs_in_with_a_token_of_a_file(
    door: Door, topic: str, java: str, tmp_path: Path
) -> None:
    file = tmp_path / "token.jwt"
    file.write_text(issued(scope="kafka"))
    properties = tmp_path / "client.properties"
    lines = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f"{OAUTH}LoginModule required;",
        "sasl.login.callback.handler.class": f"{OAUTH}LoginCallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": file.as_uri(),
    }
    properties.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={file.as_uri()}"
    by_kafkas_tools(java, topic, door.address, properties, allowed)
