"""A load that logs in: librdkafka, the SDK and idle connections, with the rights that it needs."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12
from typer.testing import CliRunner

from smq.cli.verbs import app
from smq.client.secure.security import Security, security_of
from smq.client.secure.tokens import TokenFile
from smq.load.connections import hold
from smq.load.logins import NoWay, librdkafka_settings, way_of, way_of_librdkafka
from smq.load.run import RunEnded, run_step
from smq.load.workload import Workload
from smq.model.security_settings import STANDARD_AUTHORIZER
from smq.testing.smq_broker import SmqBroker

SECOND = 1 / 60
PASSWORD = "pencil, with = and \u00fc"
SCRAM = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "alice", "sasl.password": "x"}


def settings(properties: Mapping[str, str]) -> dict[str, str]:
    return librdkafka_settings(security_of(properties, {}))


def verb(*arguments: object, **environment: str) -> str:
    done = CliRunner().invoke(app, [*map(str, arguments)], env=environment)
    assert done.exit_code == 0, done.output
    return done.output


class SecuredBroker(NamedTuple):
    broker: SmqBroker
    certs: Path

    def login(self, monkeypatch: pytest.MonkeyPatch, protocol: str, **more: object) -> str:
        """Have clients log in as the environment says; returns the address for it."""
        properties = {"security.protocol": protocol} | more
        if protocol != "SSL":
            properties |= SCRAM | {"sasl.password": PASSWORD}
        if protocol != "SASL_PLAINTEXT":
            properties.setdefault("ssl.truststore.location", self.certs / "ca.pem")
        for name, value in properties.items():
            monkeypatch.setenv(f"SMQ_CLIENT_{name.upper().replace('.', '_')}", str(value))
        return f"127.0.0.1:{self.broker.port_of(protocol)}"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    home = tmp_path_factory.mktemp("broker")
    verb("certs", home / "certs", "--client", "alice")
    verb("user", "add", "alice", "--data-dir", home / "data", SMQ_USER_PASSWORD=PASSWORD)
    listeners = {each: each for each in ("SASL_PLAINTEXT", "SASL_SSL", "SSL")}
    given = {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "ssl.keystore.location": str(home / "certs" / "broker.pem"),
        "ssl.truststore.location": str(home / "certs" / "ca.pem"),
        "listener.name.ssl.ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=([a-z]+)$/$1/",
    }
    with SmqBroker(home, given, listeners=listeners) as broker:
        for rule in (
            ("--prefixed", "--topic", "bench-", "--operation", "all"),
            ("--prefixed", "--group", "bench-", "--operation", "read"),
        ):
            verb("acl", "add", "User:alice", *rule, "--data-dir", broker.data_dir)
        yield SecuredBroker(broker, home / "certs")


def measured(address: str, **fields: Any) -> dict[str, Any]:
    workload = Workload(
        message_size=100,
        test_duration_minutes=SECOND,
        warmup_duration_minutes=0.0,
        producer_rate=100.0,
        **fields,
    )
    result = run_step(address, workload, lambda _row: None)
    check = result["check"]
    assert check["acknowledged"] == check["stored"] > 0
    assert check["received"] >= check["expected_by_consumers"] > 0
    return result


def test_without_a_login_librdkafka_gets_no_setting() -> None:
    assert settings({}) == {}
    assert settings({"security.protocol": "PLAINTEXT"}) == {}


def test_a_login_has_librdkafkas_names() -> None:
    login = {"security.protocol": "SASL_PLAINTEXT", **SCRAM}
    assert settings(login) == login


def test_stores_are_named_or_given_as_text(tmp_path: Path) -> None:
    verb("certs", tmp_path, "--client", "alice")
    ca, alice = tmp_path / "ca.pem", tmp_path / "alice.pem"
    named = {"ssl.truststore.location": str(ca), "ssl.keystore.location": str(alice)}
    assert settings({"security.protocol": "SSL", **named}) == {
        "security.protocol": "SSL",
        "ssl.ca.location": str(ca),
        "ssl.key.location": str(alice),
        "ssl.certificate.location": str(alice),
    }
    text = {
        "ssl.truststore.certificates": ca.read_text(),
        "ssl.keystore.key": "key",
        "ssl.keystore.certificate.chain": "chain",
        "ssl.key.password": "secret",
        "ssl.endpoint.identification.algorithm": "",
    }
    assert settings({"security.protocol": "SSL", **text}) == {
        "security.protocol": "SSL",
        "ssl.endpoint.identification.algorithm": "none",
        "ssl.ca.pem": ca.read_text(),
        "ssl.key.password": "secret",
        "ssl.key.pem": "key",
        "ssl.certificate.pem": "chain",
    }


def test_properties_that_librdkafka_lacks_are_refused(tmp_path: Path) -> None:
    versions = {"security.protocol": "SSL", "ssl.enabled.protocols": "TLSv1.3"}
    with pytest.raises(NoWay, match="TLS itself: leave"):
        settings(versions)
    missing = {"security.protocol": "SSL", "ssl.truststore.location": str(tmp_path / "none")}
    with pytest.raises(NoWay, match="cannot be read"):
        settings(missing)


def test_librdkafka_gets_no_tokens() -> None:
    with pytest.raises(NoWay, match="tokens need --set client=sdk"):
        librdkafka_settings(Security(mechanism="OAUTHBEARER", tokens=TokenFile("/token")))


@pytest.mark.slow
def test_librdkafka_reaches_no_unix_socket(smq_session_broker: SmqBroker) -> None:
    data_dir = str(smq_session_broker.data_dir)
    assert way_of(data_dir).security.socket_owner is not None
    with pytest.raises(NoWay, match="give the broker's address"):
        way_of_librdkafka(data_dir)
    with pytest.raises(RunEnded, match="--set client=sdk"):
        run_step(data_dir, Workload(producer_rate=1.0), lambda _row: None)


@pytest.mark.slow
@pytest.mark.parametrize("client", ["kafka", "sdk"])
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_a_load_logs_in_with_a_password(
    secured: SecuredBroker, monkeypatch: pytest.MonkeyPatch, protocol: str, client: str
) -> None:
    address = secured.login(monkeypatch, protocol)
    result = measured(address, client=client, idle_connections=20)
    assert result["latency_us"]["request"]["count"] > 0
    assert PASSWORD not in str(result)


@pytest.mark.slow
def test_a_load_shows_a_certificate_and_trusts_a_pkcs12_store(
    secured: SecuredBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    [authority] = x509.load_pem_x509_certificates((secured.certs / "ca.pem").read_bytes())
    entry = pkcs12.PKCS12Certificate(authority, b"ca")
    store = pkcs12.serialize_java_truststore([entry], BestAvailableEncryption(b"secret"))
    (secured.certs / "trust.p12").write_bytes(store)
    properties: dict[str, object] = {
        "ssl.truststore.location": secured.certs / "trust.p12",
        "ssl.truststore.password": "secret",
        "ssl.keystore.location": secured.certs / "alice.pem",
    }
    address = secured.login(monkeypatch, "SSL", **properties)
    assert measured(address, idle_connections=3)["latency_us"]["request"]["count"] > 0


@pytest.mark.slow
def test_a_wrong_password_ends_a_load_with_a_sentence(
    secured: SecuredBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = secured.login(monkeypatch, "SASL_SSL")
    monkeypatch.setenv("SMQ_CLIENT_SASL_PASSWORD", "wrong")
    with pytest.raises(OSError, match="of 3 connections the broker took 0"):
        next(hold(address, 3))
    done = CliRunner().invoke(app, ["bench", "run", "latency", "--bootstrap", address])
    assert done.exit_code == 1
    assert "no login at" in done.output
