"""Properties of Kafka's clients, and librdkafka's names for them, say how to connect."""

from pathlib import Path

import pytest

from smq.client.secure.jaas import OAUTH_MODULE, PLAIN_MODULE, SCRAM_MODULE
from smq.client.secure.security import PLAINTEXT, Security, check_servers, security_of
from smq.client.secure.tokens import Callback, TokenEndpoint, TokenFile

NOTHING: dict[str, str] = {}
SCRAM = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256"}
ALICE = SCRAM | {"sasl.username": "alice", "sasl.password": "secret"}


def test_nothing_that_is_set_means_plain_bytes() -> None:
    assert security_of(None, NOTHING) is PLAINTEXT
    assert security_of({"security.protocol": "plaintext"}, NOTHING).is_plain


def test_a_user_is_named_by_kafkas_and_by_librdkafkas_properties() -> None:
    jaas = f'{SCRAM_MODULE} required username="alice" password="secret";'
    wanted = Security(mechanism="SCRAM-SHA-256", user="alice", password="secret")
    assert security_of(ALICE, NOTHING) == wanted
    assert security_of(SCRAM | {"sasl.jaas.config": jaas}, NOTHING) == wanted
    renamed = {name.replace("mechanism", "mechanisms"): value for name, value in ALICE.items()}
    assert security_of(renamed, NOTHING) == wanted


TOKENS = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
URL = "sasl.oauthbearer.token.endpoint.url"
CLIENT = "sasl.oauthbearer.client.credentials.client"
OIDC = {
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.client.id": "a",
    "sasl.oauthbearer.client.secret": "secret",
    "sasl.oauthbearer.scope": "queue",
}


def test_tokens_come_from_an_endpoint_by_kafkas_and_by_librdkafkas_properties() -> None:
    at = TOKENS | {URL: "https://issuer.example/token"}
    jaas = f'{OAUTH_MODULE} required clientId="a" clientSecret="secret" scope="queue";'
    wanted = TokenEndpoint("https://issuer.example/token", "a", "secret", "queue")
    given = {f"{CLIENT}.id": "a", f"{CLIENT}.secret": "secret", "sasl.oauthbearer.scope": "queue"}
    for more in (OIDC, {"sasl.jaas.config": jaas}, given):
        found = security_of(at | more, NOTHING)
        assert (found.mechanism, found.tokens) == ("OAUTHBEARER", wanted)
        assert "secret" not in repr(found)
        assert hash(found)
    private = security_of(at | OIDC | {"https.ca.location": "/ca.pem"}, NOTHING).tokens
    assert isinstance(private, TokenEndpoint)
    assert private.authorities == "/ca.pem"


def test_tokens_come_from_a_file_or_from_a_callback() -> None:
    assert security_of(TOKENS | {URL: "file:///a%20b"}, NOTHING).tokens == TokenFile("/a b")

    def give(_config: str) -> tuple[str, float]:
        return "token", 0.0

    config = {"oauth_cb": give, "sasl.oauthbearer.config": "x=y", URL: "file:///a"}
    assert security_of(TOKENS | config, NOTHING).tokens == Callback(give, "x=y")
    with pytest.raises(TypeError, match="oauth_cb is a function, not str"):
        security_of(TOKENS | {"oauth_cb": "x"}, NOTHING)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, "OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url"),
        ({URL: "http://issuer.example/"}, "use https"),
        ({URL: "https://issuer.example/"}, "needs sasl.oauthbearer.client.credentials.client.id"),
        ({URL: "https://u:s3cret@issuer.example/"}, "it has a user"),
        ({"sasl.jaas.config": f"{PLAIN_MODULE} required;"}, "which is not for OAUTHBEARER"),
        ({"sasl.jaas.config": "s3cret"}, "should be like"),
    ],
)
def test_tokens_from_nowhere_are_refused(more: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=words) as refused:
        security_of(TOKENS | more, NOTHING)
    assert "s3cret" not in str(refused.value)


def test_the_module_of_tokens_is_for_no_password() -> None:
    jaas = f'{OAUTH_MODULE} required username="a" password="b";'
    with pytest.raises(ValueError, match="which is not for SCRAM-SHA-256"):
        security_of(SCRAM | {"sasl.jaas.config": jaas}, NOTHING)


def test_authorities_are_named_by_both() -> None:
    for name in ("ssl.truststore.location", "ssl.ca.location"):
        found = security_of({"security.protocol": "SSL", name: "/ca.pem"}, NOTHING)
        assert found.tls is not None
        assert found.tls["ssl.truststore.location"] == "/ca.pem"
        assert found.tls.checks_names


def test_the_name_of_the_host_is_checked_unless_the_user_says_otherwise() -> None:
    for value in ("", "none"):
        given = {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": value}
        tls = security_of(given, NOTHING).tls
        assert tls is not None
        assert not tls.checks_names


def test_a_file_may_have_other_properties_too(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    lines = [f"{name}={value}" for name, value in ALICE.items()]
    path.write_text("\n".join([*lines, "bootstrap.servers=a:1", "acks=all", "ssl.protocol=TLS"]))
    assert security_of(path, NOTHING).user == "alice"
    assert security_of(str(path), NOTHING).user == "alice"


def test_a_mapping_may_name_the_brokers_that_the_address_names() -> None:
    """As a properties file does, of which it may be made."""
    named = ALICE | {"bootstrap.servers": "a:1,b:2"}
    assert security_of(named, NOTHING) == security_of(ALICE, NOTHING)
    check_servers("a:1,b:2", named)
    for other in ("a:1", Path("data")):
        with pytest.raises(ValueError, match="and the address is"):
            check_servers(other, named)
        check_servers(other, ALICE)
        check_servers(other, "alice.properties")


def test_a_given_login_wins_over_the_environments() -> None:
    environment = {
        "SMQ_CLIENT_SASL_JAAS_CONFIG": f'{SCRAM_MODULE} required username="bob" password="x";',
        "SMQ_CLIENT_SSL_TRUSTSTORE_CERTIFICATES": "theirs",
        "SMQ_CLIENT_SSL_KEYSTORE_KEY": "bob's",
        "SMQ_CLIENT_SSL_KEYSTORE_CERTIFICATE_CHAIN": "bob's",
    }
    given = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "alice",
        "sasl.password": "y",
        "ssl.truststore.location": "ours",
        "ssl.keystore.location": "alice's",
    }
    found = security_of(given, environment)
    assert found.user == "alice"
    assert found.tls is not None
    assert dict(found.tls.values) == {name: given[name] for name in given if name[:3] == "ssl"}


def test_the_environment_gives_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("sasl.username=bob\n")
    environment = {
        "SMQ_CLIENT_PROPERTIES": str(path),
        "SMQ_CLIENT_SASL_PASSWORD": "secret",
        "SMQ_CLIENT_SASL_USERNAME": "alice",
    } | {f"SMQ_CLIENT_{name.upper().replace('.', '_')}": value for name, value in SCRAM.items()}
    assert security_of(None, environment).user == "bob"
    assert security_of({"sasl.username": "carol"}, environment).user == "carol"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"security.protocol": "TLS"}, "security.protocol is TLS"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism is not set"),
        (ALICE | {"sasl.mechanism": "GSSAPI"}, "sasl.mechanism is GSSAPI"),
        (SCRAM, "a login needs"),
        (ALICE | {"sasl.password": ""}, "a login needs"),
        (ALICE | {"sasl.pasword": "x"}, "sasl.pasword is no property"),
        (ALICE | {"sasl.pasword=secret": ""}, "sasl.pasword is no property"),
        (ALICE | {"sasl.pasword: secret": ""}, "sasl.pasword is no property"),
        (ALICE | {"sasl.pasword secret": ""}, "sasl.pasword is no property"),
        (
            ALICE | {"sasl.password": "secret\udce4"},
            "sasl.password in config is text, which has no",
        ),
        (
            SCRAM | {"sasl.jaas.config": 'x required password="secret\ud83d";'},
            "sasl.jaas.config in config is text, which has no bytes",
        ),
        (ALICE | {"acks": "all"}, "acks is no property"),
        (
            SCRAM | {"sasl.jaas.config": f'{PLAIN_MODULE} required username="a" password="b";'},
            "not for SCRAM-SHA-256",
        ),
        ({"security.protocol": "SSL", "enable.ssl.certificate.verification": "false"}, "only be"),
        ({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "x"}, "'x'"),
    ],
)
def test_a_property_that_makes_no_sense_is_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        security_of(given, NOTHING)
    assert "secret" not in str(refused.value)


def test_a_variable_that_is_not_utf_8_is_refused_without_its_value() -> None:
    environment = {"SMQ_CLIENT_SASL_PASSWORD": "secret\udce4"}
    with pytest.raises(ValueError, match=r"sasl\.password") as refused:
        security_of(None, environment)
    assert "secret" not in str(refused.value)


def test_another_kind_of_config_is_refused() -> None:
    for given in (5, {"sasl.username": 5}, {5: "x"}):
        with pytest.raises(TypeError):
            security_of(given, NOTHING)  # type: ignore[arg-type]


def test_no_text_of_it_tells_a_secret() -> None:
    given = ALICE | {
        "security.protocol": "SASL_SSL",
        "ssl.keystore.key": "secret",
        "ssl.key.password": "secret",
    }
    found = security_of(given, NOTHING)
    assert "secret" not in f"{found} {found!r} {found.tls!r}"
