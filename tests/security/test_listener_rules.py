"""Each refusal of a start, and what it says to do."""

from collections.abc import Mapping

import pytest

from smq.model.security_settings import STANDARD_AUTHORIZER
from smq.security.listener_rules import identifies_peers, is_loopback, problems_of_listeners
from smq.security.listeners import listeners_of
from tests.model.configs import config_of

AUTHORIZER = {"authorizer.class.name": STANDARD_AUTHORIZER}
MAP = "listener.security.protocol.map"
KEYS = {"ssl.keystore.location": "/keys.pem"}
TRUST = {"ssl.truststore.location": "/trust.pem"}


def problems(**given: object) -> list[str]:
    named = {name.replace("_", "."): value for name, value in given.items()}
    return problems_with(named)


def problems_with(given: Mapping[str, object], file: str = "") -> list[str]:
    return [
        each.sentence for each in problems_of_listeners(config_of(command_line=given, file=file))
    ]


def beyond(protocol: str, **given: object) -> dict[str, object]:
    """One listener that other hosts reach."""
    return {"listeners": f"{protocol}://10.0.0.1:9092", **KEYS, **given}


def test_a_start_without_security_settings_has_no_problems() -> None:
    assert problems() == []


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SASL_PLAINTEXT"])
def test_a_listener_beyond_loopback_without_encryption_needs_a_flag(protocol: str) -> None:
    [problem] = problems_with(beyond(protocol) | AUTHORIZER)
    assert f"{protocol} would be reached from other hosts at 10.0.0.1 without encryption" in problem
    assert "allow.plaintext=true" in problem
    assert problems_with(beyond(protocol) | AUTHORIZER | {"allow.plaintext": "true"}) == []


def test_a_flag_accepts_what_its_name_says() -> None:
    plain, anonymous = {"allow.plaintext": "true"}, {"allow.anonymous": "true"}
    assert problems_with(beyond("PLAINTEXT") | plain) == []
    assert len(problems_with(beyond("PLAINTEXT") | anonymous)) == 1
    [problem] = problems_with(beyond("SASL_PLAINTEXT") | plain)
    assert "without an authorizer (authorizer.class.name)" in problem
    assert "allow.anonymous=true" in problem
    assert len(problems_with(beyond("SASL_PLAINTEXT"))) == 2
    assert len(problems_with(beyond("SASL_PLAINTEXT") | anonymous)) == 1
    assert problems_with(beyond("SASL_PLAINTEXT") | plain | anonymous) == []
    assert len(problems_with(beyond("SASL_SSL") | plain)) == 1


def test_the_short_form_beyond_loopback_needs_the_flag_too() -> None:
    [problem] = problems(host="0.0.0.0", advertise="queue.example")
    assert "allow.plaintext=true" in problem
    assert problems(host="0.0.0.0", advertise="queue.example", allow_plaintext="true") == []


def test_encryption_beyond_loopback_needs_logins_and_an_authorizer() -> None:
    [problem] = problems_with(beyond("SSL"))
    assert "without logins (SASL_SSL, or ssl.client.auth=required) and an authorizer" in problem
    [problem] = problems_with(beyond("SASL_SSL"))
    assert "without an authorizer (authorizer.class.name)" in problem
    [problem] = problems_with(beyond("SSL") | AUTHORIZER)
    assert "without logins" in problem
    assert problems_with(beyond("SSL") | {"allow.anonymous": "true"}) == []
    assert problems_with(beyond("SASL_SSL") | AUTHORIZER) == []
    certificates = {"ssl.client.auth": "required", **TRUST}
    assert problems_with(beyond("SSL") | AUTHORIZER | certificates) == []


def test_requested_certificates_are_no_logins() -> None:
    certificates = {"ssl.client.auth": "requested", **TRUST}
    [problem] = problems_with(beyond("SSL") | AUTHORIZER | certificates)
    assert "without logins" in problem


def test_nothing_is_asked_of_a_listener_on_loopback() -> None:
    assert problems(listeners="PLAINTEXT://127.0.0.1:1,SASL_PLAINTEXT://[::1]:300") == []


def test_the_short_form_and_listeners_exclude_each_other() -> None:
    [problem] = problems(listeners="PLAINTEXT://127.0.0.1:1", port=2, advertise="x")
    assert problem.startswith("listeners: port and advertise cannot be set beside it")
    [problem] = problems(advertised_listeners="PLAINTEXT://x:1")
    assert problem == "advertised.listeners: set listeners too, or use advertise"


def test_http_beyond_loopback_needs_an_authorizer_or_the_flag() -> None:
    inside = {"listeners": "INSIDE://127.0.0.1:1", "http.port": 9080, "http.host": "0.0.0.0"}
    inside["listener.security.protocol.map"] = "INSIDE:PLAINTEXT"
    [problem] = problems_with(inside)
    assert problem.startswith("http.host: HTTP would be reached from other hosts at 0.0.0.0")
    assert "allow.plaintext=true" in problem
    assert problems_with(inside | {"allow.plaintext": "true"}) == []
    assert problems_with(inside | AUTHORIZER) == []
    assert problems_with(inside | {"http.host": "127.0.0.1"}) == []
    assert problems_with(inside | {"http.port": -1}) == []


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, "ssl.keystore.location (HTTP): TLS needs a key"),
        ({"ssl.keystore.location": "k", "ssl.client.auth": "required"}, "HTTP asks for no certif"),
        ({"ssl.keystore.location": "k", "listeners": "HTTP://127.0.0.1:1"}, "HTTP is the name of"),
    ],
    ids=["no-keys", "certificates", "its-name"],
)
def test_https_needs_keys_and_its_name(more: dict[str, object], words: str) -> None:
    given = {"http.port": 9080, "http.security.protocol": "SSL"} | more
    given["listener.security.protocol.map"] = "HTTP:PLAINTEXT,PLAINTEXT:PLAINTEXT"
    assert any(words in each for each in problems_with(given))


def test_tokens_by_http_need_an_issuer_and_an_audience() -> None:
    given = {"http.port": 9080, "authorizer.class.name": STANDARD_AUTHORIZER}
    given["listener.name.http.sasl.oauthbearer.jwks.endpoint.url"] = "file:///k"
    found = problems_with(given)
    assert any("expected.audience (HTTP)" in each for each in found)
    assert any("expected.issuer (HTTP)" in each for each in found)


def test_ports_that_overlap_or_do_not_exist_are_refused() -> None:
    [problem] = problems(
        listeners="PLAINTEXT://127.0.0.1:9,SASL_PLAINTEXT://127.0.0.1:10", shards=2
    )
    assert problem.endswith("choose ports that are 2 apart")
    [problem] = problems(listeners="PLAINTEXT://127.0.0.1:65535", shards=2)
    assert "the last port is 65535" in problem
    [problem] = problems(listeners="PLAINTEXT://127.0.0.1:80", http_port=81, shards=2)
    assert problem == "http.port: 81 is a port of the listener PLAINTEXT; choose another"


def test_tls_needs_a_key_and_checked_certificates_need_authorities() -> None:
    [problem] = problems(listeners="SSL://127.0.0.1:1")
    assert "`smq certs` makes some" in problem
    [problem] = problems_with(
        {"listeners": "SSL://127.0.0.1:1", "ssl.client.auth": "required"} | KEYS
    )
    assert problem.startswith("ssl.truststore.location (SSL): clients' certificates are checked")
    given = {"listeners": "SSL://127.0.0.1:1", "ssl.keystore.certificate.chain": "x"}
    assert "are given together" in problems_with(given | KEYS)[0]


def test_a_listeners_own_keys_are_enough() -> None:
    file = '[listener.name.ssl]\nssl.keystore.location = "/keys.pem"'
    assert problems_with({"listeners": "SSL://127.0.0.1:1"}, file) == []


def test_jks_is_refused_with_the_command_that_converts_it() -> None:
    given = {"listeners": "SSL://127.0.0.1:1", "ssl.keystore.type": "JKS"}
    [problem] = problems_with(given | KEYS)
    assert "keytool -importkeystore -srckeystore /keys.pem" in problem


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("ssl.enabled.protocols", "TLSv1.1,TLSv1.3", "TLSv1.1 is none of"),
        ("ssl.principal.mapping.rules", "RULE:x", "is no rule"),
        ("sasl.enabled.mechanisms", "GSSAPI", "GSSAPI is none of PLAIN"),
        ("sasl.enabled.mechanisms", ",", "nobody can log in without one of"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused(setting: str, value: str, words: str) -> None:
    [problem] = problems_with({"listeners": "SASL_SSL://127.0.0.1:1", setting: value} | KEYS)
    assert words in problem


TOKENS = {
    "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
    "sasl.oauthbearer.jwks.endpoint.url": "file:///jwks.json",
    "sasl.oauthbearer.expected.audience": "smq",
    "sasl.oauthbearer.expected.issuer": "https://issuer.example",
}


def test_tokens_need_keys_an_audience_and_an_issuer() -> None:
    listener = {"listeners": "SASL_SSL://127.0.0.1:1", **KEYS}
    assert problems_with(listener | TOKENS) == []
    assert problems_with(listener | TOKENS | {"sasl.enabled.mechanisms": "PLAIN"}) == []
    for setting in list(TOKENS)[1:]:
        [problem] = problems_with({k: v for k, v in (listener | TOKENS).items() if k != setting})
        assert f"{setting} (SASL_SSL): OAUTHBEARER needs " in problem
    [problem] = problems_with(listener | TOKENS | {"sasl.oauthbearer.sub.claim.name": ""})
    assert "the claim that names the user" in problem


def test_the_settings_of_tokens_may_be_one_listeners_or_one_mechanisms() -> None:
    at = {"listeners": "SASL_SSL://127.0.0.1:1,SASL_PLAINTEXT://127.0.0.1:9", **KEYS}
    of_one = {f"listener.name.sasl_ssl.oauthbearer.{k}": v for k, v in list(TOKENS.items())[1:]}
    of_one["listener.name.sasl_ssl.sasl.enabled.mechanisms"] = "OAUTHBEARER"
    assert problems_with(at | of_one) == []
    del of_one["listener.name.sasl_ssl.oauthbearer.sasl.oauthbearer.expected.issuer"]
    assert len(problems_with(at | of_one)) == 1
    of_one["listener.name.sasl_ssl.sasl.oauthbearer.expected.issuer"] = "x"
    assert problems_with(at | of_one) == []


@pytest.mark.parametrize("url", ["https://issuer.example/jwks", "jwks.json", "file://host/jwks"])
def test_keys_of_tokens_are_read_from_a_file_alone(url: str) -> None:
    given = {"listeners": "SASL_SSL://127.0.0.1:1", **KEYS, **TOKENS}
    [problem] = problems_with(given | {"sasl.oauthbearer.jwks.endpoint.url": url})
    assert "only files are read" in problem


def test_a_setting_of_no_listener_or_mechanism_is_refused() -> None:
    file = """
    [listener.name]
    other.ssl.client.auth = "none"
    plaintext.gssapi.connections.max.reauth.ms = 1
    """
    one, other = problems_with({"listeners": "PLAINTEXT://127.0.0.1:1"}, file)
    assert "there is no listener OTHER; it is one of PLAINTEXT" in one
    assert "gssapi is none of the mechanisms plain" in other


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("127.8.9.1", True), ("::1", True), ("localhost", True),
     ("0.0.0.0", False), ("::", False), ("10.0.0.1", False), ("queue.example", False),
     ("localhost.example", False), ("fe80::1%eth0", False)],
)  # fmt: skip
def test_only_loopback_is_loopback(host: str, *, expected: bool) -> None:
    assert is_loopback(host) == expected


def test_peers_are_identified_by_sasl_or_by_certificates() -> None:
    given = {"listeners": "SSL://a:1,SASL_SSL://a:2,SASL_PLAINTEXT://a:3,PLAINTEXT://a:4"}
    for auth, expected in (("none", [0, 1, 1, 0]), ("required", [1, 1, 1, 0])):
        config = config_of(command_line=given | {"ssl.client.auth": auth})
        assert [identifies_peers(config, each) for each in listeners_of(config)] == expected


GRPC = {"grpc.port": "17777", "agent.port": "16777"}


def speaks(protocol: str) -> dict[str, str]:
    return {MAP: f"PLAINTEXT:PLAINTEXT,GRPC:{protocol},AGENT:{protocol}"}


def test_seaweedmqs_services_on_loopback_need_nothing() -> None:
    assert problems_with(GRPC) == []
    assert problems_with(GRPC | AUTHORIZER) == []
    assert problems_with(GRPC | speaks("SASL_PLAINTEXT")) == []


def test_seaweedmqs_services_beyond_loopback_need_what_other_listeners_do() -> None:
    far = GRPC | {"grpc.host": "10.0.0.7"}
    problems = problems_with(far)
    assert [each.split(" would")[0] for each in problems] == ["listeners: GRPC", "listeners: AGENT"]
    assert all("without encryption" in each for each in problems)
    assert problems_with(far | {"allow.plaintext": "true"}) == []
    problems = problems_with(far | speaks("SSL") | KEYS)
    assert all("without logins" in each and "an authorizer" in each for each in problems)
    assert len(problems) == 2
    assert problems_with(far | speaks("SASL_SSL") | KEYS | AUTHORIZER) == []
    assert problems_with({"grpc.host": "0.0.0.0"}) == []  # They are off.
    [problem] = problems_with(GRPC | {"grpc.host": "0.0.0.0", "allow.plaintext": "true"})
    assert problem.startswith("grpc.advertise: ")


def test_seaweedmqs_services_need_keys_for_tls_and_all_that_tokens_need() -> None:
    problems = problems_with(GRPC | speaks("SSL"))
    assert [each.split(":")[0] for each in problems] == [
        "ssl.keystore.location (GRPC)",
        "ssl.keystore.location (AGENT)",
    ]
    own = {"listener.name.grpc.ssl.keystore.location": "/a.pem"}
    [problem] = problems_with(GRPC | speaks("SSL") | own)
    assert "(AGENT)" in problem
    url = {"sasl.oauthbearer.jwks.endpoint.url": "file:///jwks"}
    problems = problems_with(GRPC | speaks("SASL_PLAINTEXT") | url)
    assert {each.split(" ")[0] for each in problems} == {
        "sasl.oauthbearer.expected.audience",
        "sasl.oauthbearer.expected.issuer",
    }


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"ssl.enabled.protocols": "TLSv1.3"}, "neither can be turned off"),
        ({"ssl.client.auth": "requested", "ssl.truststore.location": "/ca.pem"}, "or for none"),
        ({"ssl.key.password": "secret"}, "no key with a password"),
    ],
    ids=["versions", "requested", "password"],
)
def test_settings_that_grpc_cannot_follow_are_refused(given: dict[str, str], words: str) -> None:
    named = {f"listener.name.grpc.{name}": value for name, value in given.items()}
    [problem] = problems_with(GRPC | speaks("SSL") | KEYS | named)
    assert words in problem
    assert "(GRPC)" in problem
    assert "secret" not in problem


def test_no_other_listener_has_the_name_of_a_service() -> None:
    listeners = {"listeners": "GRPC://127.0.0.1:9092", MAP: "GRPC:PLAINTEXT"}
    assert problems_with(listeners) == []
    [problem] = problems_with(listeners | {"grpc.port": "0"})
    assert "the name of the door of grpc.port" in problem
    [problem] = problems_with({"listener.name.agent.ssl.key.password": "x"})
    assert "there is no listener AGENT" in problem


@pytest.mark.parametrize(
    "given",
    [
        {"grpc.port": "9093", "shards": "2"},
        {"grpc.port": "8080", "http.port": "8080"},
        {"grpc.port": "5000", "agent.port": "5000"},
    ],
    ids=["a shard", "HTTP", "each other"],
)
def test_seaweedmqs_services_have_ports_of_their_own(given: dict[str, str]) -> None:
    assert any("is the port of another door" in each for each in problems_with(given))


def test_an_address_for_seaweedmqs_clients_has_a_port() -> None:
    assert problems_with({"grpc.port": "0", "grpc.advertise": "queue.example:7"}) == []
    [problem] = problems_with({"grpc.port": "0", "grpc.advertise": "queue.example"})
    assert problem.startswith("grpc.advertise: ")
