"""The entrances that settings ask for."""

from pathlib import Path
from typing import Any

import pytest

from smq.app.shard.entrances import Entrances, make_nonce
from smq.cli.key_pairs import make_pair
from smq.model.config import Config
from smq.testing.credentials import UsersInMemory
from tests.model.configs import config_of
from tests.security.issuer import write_jwks
from tests.security.tls_bench import make_files

DAY_MS = 24 * 3600 * 1000
LISTENERS = "PLAINTEXT://127.0.0.1:1,SASL_PLAINTEXT://127.0.0.1:2,SSL://127.0.0.1:3"


def entrances(said: list[str], *, has_served: bool = False, **given: Any) -> Entrances:
    named = {name.replace("_", "."): value for name, value in given.items()}
    config = config_of(command_line={"listeners": LISTENERS, **named})
    assert isinstance(config, Config)
    users = UsersInMemory({"alice": "pencil"})
    return Entrances(config, users, b"secret", said.append, has_served=has_served)


def test_each_listener_has_its_entrance(tmp_path: Path) -> None:
    made = entrances(
        [],
        ssl_keystore_location=str(make_files(tmp_path).broker),
        sasl_enabled_mechanisms="PLAIN",
        connections_max_reauth_ms=7,
        ssl_principal_mapping_rules="RULE:^CN=(.*)$/$1/",
    ).of
    assert list(made) == ["PLAINTEXT", "SASL_PLAINTEXT", "SSL"]
    assert made["PLAINTEXT"].is_open
    rules = made["SASL_PLAINTEXT"].rules
    assert rules is not None
    assert (rules.mechanisms, rules.lifetime_ms("PLAIN")) == (("PLAIN",), 7)
    checked = rules.begin("PLAIN").respond(b"\0alice\0pencil")
    assert callable(checked)
    assert checked() == b""
    assert made["SASL_PLAINTEXT"].context is None
    assert made["SSL"].context is not None
    assert made["SSL"].naming.name_of("CN=alice") == "alice"


def test_changed_keys_are_used_for_new_connections(tmp_path: Path) -> None:
    said: list[str] = []
    keys = make_files(tmp_path).broker
    made = entrances(said, ssl_keystore_location=str(keys))
    context = made.of["SSL"].context
    assert context is not None
    before = context()
    _, _, end_ms = made.certificates_end_ms()
    keys.write_bytes(b"".join(make_pair("broker", 3, end_ms)))
    made.look()
    assert context() is not before
    assert made.certificates_end_ms() == [0, 0, end_ms + 3 * DAY_MS]
    assert said == ["ssl (SSL): the keys have been read again"]


def test_a_look_reports_keys_of_an_issuer_that_have_changed(tmp_path: Path) -> None:
    path, told = tmp_path / "jwks.json", list[str]()
    made = entrances(
        [],
        ssl_keystore_location=str(make_files(tmp_path).broker),
        sasl_enabled_mechanisms="OAUTHBEARER",
        sasl_oauthbearer_jwks_endpoint_url=write_jwks(path, "rsa"),
        sasl_oauthbearer_expected_issuer="issuer",
        sasl_oauthbearer_expected_audience="smq",
    )
    made.when_issuers_keys_change = lambda: told.append("changed")
    made.look()
    assert told == []
    write_jwks(path, "rsa", "p-256")
    made.look()
    made.look()
    assert told == ["changed"]


def test_keys_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="cannot be read"):
        entrances([], ssl_keystore_location=str(tmp_path / "none"))


def test_a_restarted_shard_without_usable_keys_has_its_other_entrances(tmp_path: Path) -> None:
    said: list[str] = []
    keys, tokens = str(tmp_path / "none.pem"), tmp_path / "none.json"
    made = entrances(
        said,
        has_served=True,
        ssl_keystore_location=keys,
        sasl_enabled_mechanisms="PLAIN,OAUTHBEARER",
        sasl_oauthbearer_jwks_endpoint_url=tokens.as_uri(),
        sasl_oauthbearer_expected_issuer="issuer",
        sasl_oauthbearer_expected_audience="smq",
    )
    assert made.of["PLAINTEXT"].is_open
    assert made.of["SSL"].context is not None
    assert made.certificates_end_ms() == [0, 0, 0]
    assert sorted(each.split(" ")[0] for each in said) == [
        "sasl.oauthbearer.jwks.endpoint.url",
        "ssl.keystore.location",
    ]


def test_nonces_differ_and_are_printable() -> None:
    made = {make_nonce() for _ in range(100)}
    assert len(made) == 100
    assert all(each.isascii() and each.isprintable() and "," not in each for each in made)
