"""Keys in each form, and those that cannot be used."""

import os
import ssl
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)

from smq.app.process.clock import wall_ms
from smq.app.process.key_stores import (
    FILE_BYTES_MAX,
    NOBODY,
    STAYS,
    TlsSettings,
    UnusableKeys,
    WatchedContext,
    context_of,
)
from smq.cli.key_pairs import KeyPair, make_pair
from smq.security.listeners import listeners_of
from tests.model.configs import config_of

AUTHORITY = make_pair("authority", 1, wall_ms())
BROKER = make_pair("broker", 1, wall_ms(), AUTHORITY, ["localhost"])
OTHER = make_pair("other", 1, wall_ms())


def settings(**given: Any) -> TlsSettings:
    named = {f"ssl.{name.replace('_', '.')}": str(value) for name, value in given.items()}
    config = config_of(command_line={"listeners": "SSL://127.0.0.1:1", **named})
    [listener] = listeners_of(config)
    return TlsSettings.of(config, listener)


def written(path: Path, *parts: bytes) -> Path:
    path.write_bytes(b"".join(parts))
    return path


def pkcs12_of(pair: KeyPair, password: bytes, *more: bytes) -> bytes:
    key: Any = load_pem_private_key(pair.key, None)
    certificate = x509.load_pem_x509_certificate(pair.certificate)
    others = [x509.load_pem_x509_certificate(each) for each in more]
    encryption = BestAvailableEncryption(password)
    return pkcs12.serialize_key_and_certificates(b"broker", key, certificate, others, encryption)


def trust_store(password: bytes) -> bytes:
    certificate = x509.load_pem_x509_certificate(AUTHORITY.certificate)
    entry = pkcs12.PKCS12Certificate(certificate, b"ca")
    return pkcs12.serialize_java_truststore([entry], BestAvailableEncryption(password))


def encrypted(pair: KeyPair, password: bytes) -> bytes:
    key = load_pem_private_key(pair.key, None)
    encryption = BestAvailableEncryption(password)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)


def trusted(context: ssl.SSLContext) -> int:
    return len(context.get_ca_certs())


def shakes_hands(context: ssl.SSLContext) -> bool:
    """Whether a client that trusts everybody gets in."""
    ours = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    ours.check_hostname, ours.verify_mode = False, ssl.CERT_NONE
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    server, client = context.wrap_bio(up, down, server_side=True), ours.wrap_bio(down, up)
    for side in (client, server) * 3:
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLError:
            return False
    return server.version() is not None


def test_a_pem_file_has_key_and_chain(tmp_path: Path) -> None:
    file = written(tmp_path / "keys.pem", BROKER.key, BROKER.certificate, AUTHORITY.certificate)
    ca = written(tmp_path / "ca.pem", AUTHORITY.certificate)
    context = context_of(settings(keystore_location=file, truststore_location=ca))
    assert trusted(context) == 1
    assert context.verify_mode is ssl.CERT_NONE


def test_a_directory_has_the_pair_as_kubernetes_mounts_it(tmp_path: Path) -> None:
    said: list[str] = []
    pair = {"tls.key": BROKER.key.strip(), "tls.crt": BROKER.certificate}
    for version, content in (("one", pair), ("two", {"tls.key": OTHER.key, "tls.crt": b""})):
        (tmp_path / version).mkdir()
        for name, data in content.items():
            written(tmp_path / version / name, data)
    current = tmp_path / "tls"
    current.symlink_to(tmp_path / "one")
    watched = WatchedContext(settings(keystore_location=current), said.append)
    first = watched.context
    (tmp_path / "next").symlink_to(tmp_path / "two")
    (tmp_path / "next").rename(current)
    watched.look()
    assert watched.context is first
    written(tmp_path / "two" / "tls.crt", OTHER.certificate)
    watched.look()
    assert watched.context is not first
    assert [each.split("; ")[-1].split(": ")[-1] for each in said] == [
        "the keys from before stay in use",
        "the keys have been read again",
    ]
    (tmp_path / "one" / "tls.key").unlink()
    with pytest.raises(UnusableKeys, match=r"cannot be read: .*tls\.key"):
        context_of(settings(keystore_location=tmp_path / "one"))


def test_keys_may_stand_in_the_settings() -> None:
    given = {
        "keystore_key": BROKER.key.decode(),
        "truststore_certificates": AUTHORITY.certificate.decode(),
    }
    given |= {"keystore_certificate_chain": BROKER.certificate.decode(), "client_auth": "required"}
    named = {f"ssl.{name.replace('_', '.')}": value for name, value in given.items()}
    config = config_of(
        environment={
            "SMQ_" + name.replace(".", "_").upper(): value for name, value in named.items()
        },
        command_line={"listeners": "SSL://127.0.0.1:1"},
    )
    [listener] = listeners_of(config)
    context = context_of(TlsSettings.of(config, listener))
    assert (trusted(context), context.verify_mode) == (1, ssl.CERT_REQUIRED)


def test_an_encrypted_key_needs_its_password(tmp_path: Path) -> None:
    file = written(tmp_path / "keys.pem", encrypted(BROKER, b"s3cret"), BROKER.certificate)
    context_of(settings(keystore_location=file, key_password="s3cret"))
    for wrong in ({}, {"key_password": "other"}):
        with pytest.raises(UnusableKeys, match="the key and the certificates cannot be used"):
            context_of(settings(keystore_location=file, **wrong))


def test_pkcs12_stores_have_keys_and_authorities(tmp_path: Path) -> None:
    keys = written(tmp_path / "keys.p12", pkcs12_of(BROKER, b"one", AUTHORITY.certificate))
    trust = written(tmp_path / "trust.p12", trust_store(b"two"))
    given = {"keystore_location": keys, "truststore_location": trust, "truststore_password": "two"}
    assert trusted(context_of(settings(keystore_password="one", **given))) == 1
    with pytest.raises(UnusableKeys, match="no PKCS12 that ssl"):
        context_of(settings(keystore_password="wrong", **given))


def test_a_store_without_a_key_is_refused(tmp_path: Path) -> None:
    trust = written(tmp_path / "trust.p12", trust_store(b"two"))
    with pytest.raises(UnusableKeys, match="there is no key in the file"):
        context_of(settings(keystore_location=trust, keystore_password="two"))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\xfe\xed\xfe\xed\0\0", "keytool -importkeystore"),
        (b"garbage", "it is no PEM, and no PKCS12"),
        (b"", "it is no PEM, and no PKCS12"),
        (BROKER.key, "the key and the certificates cannot be used"),
        (BROKER.certificate, "the key and the certificates cannot be used"),
        (OTHER.key + BROKER.certificate, "the key and the certificates cannot be used"),
        (b"-----BEGIN nothing", "the key and the certificates cannot be used"),
    ],
)
def test_a_key_store_that_is_none_is_refused(tmp_path: Path, data: bytes, words: str) -> None:
    file = written(tmp_path / "keys", data)
    with pytest.raises(UnusableKeys, match=words):
        context_of(settings(keystore_location=file))


@pytest.mark.parametrize(
    "data", [BROKER.certificate, (BROKER.key + BROKER.certificate)[:100]], ids=["no key", "cut"]
)
def test_keys_that_openssl_refuses_are_named_by_their_file(tmp_path: Path, data: bytes) -> None:
    """It says '[SSL] PEM lib', and nothing of a file."""
    file = written(tmp_path / "keys.pem", data)
    with pytest.raises(UnusableKeys) as refused:
        context_of(settings(keystore_location=file))
    assert str(refused.value).startswith("ssl.keystore.location (SSL): ")
    assert f"; {file} should hold a whole private key, " in str(refused.value)
    pair = tmp_path / "tls"
    pair.mkdir()
    for name in ("tls.key", "tls.crt"):
        written(pair / name, data)
    with pytest.raises(UnusableKeys, match=f"; {pair}/tls.key and {pair}/tls.crt should hold"):
        context_of(settings(keystore_location=pair))


def test_keys_in_the_settings_that_openssl_refuses_are_named_by_their_setting() -> None:
    text = TlsSettings("SSL", "TLSv1.3", "none", settings().values | {"ssl.keystore.key": "x"})
    with pytest.raises(UnusableKeys, match=r"ssl\.keystore\.key \(SSL\): .*; it, with ssl"):
        context_of(text)


def test_a_trust_store_without_a_certificate_is_refused(tmp_path: Path) -> None:
    """It was taken, and nobody got in."""
    keys = written(tmp_path / "keys.pem", BROKER.key, BROKER.certificate)
    key: Any = load_pem_private_key(OTHER.key, None)
    encryption = BestAvailableEncryption(b"x")
    store = pkcs12.serialize_key_and_certificates(b"k", key, None, None, encryption)
    given = {"truststore_location": written(tmp_path / "t.p12", store), "truststore_password": "x"}
    with pytest.raises(
        UnusableKeys, match=r"truststore\.location \(SSL\): there is no certificate"
    ):
        context_of(settings(keystore_location=keys, **given))


def test_a_comment_of_a_trust_store_may_have_any_letters(tmp_path: Path) -> None:
    file = written(tmp_path / "keys.pem", BROKER.key, BROKER.certificate)
    trust = written(tmp_path / "ca", "# Főtanúsítvány\n".encode(), AUTHORITY.certificate)
    context = context_of(settings(keystore_location=file, truststore_location=trust))
    assert len(context.get_ca_certs()) == 1


def test_a_trust_store_that_is_none_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path / "keys.pem", BROKER.key, BROKER.certificate)
    trust = written(tmp_path / "ca", b"-----BEGIN CERTIFICATE-----\nnone")
    with pytest.raises(UnusableKeys, match="the certificates cannot be used"):
        context_of(settings(keystore_location=file, truststore_location=trust))
    os.mkfifo(tmp_path / "pipe")
    written(tmp_path / "long", BROKER.certificate, b"\n" * FILE_BYTES_MAX)
    for name, why in (
        ("nowhere", "No such file"),
        ("pipe", "it is no file, but a pipe"),
        ("long", "it has over"),
    ):
        with pytest.raises(UnusableKeys, match=f"{name} cannot be read: .*{why}"):
            context_of(settings(keystore_location=file, truststore_location=tmp_path / name))


def test_a_changed_file_is_read_again_and_a_bad_one_leaves_the_keys(tmp_path: Path) -> None:
    said: list[str] = []
    file = written(tmp_path / "keys.pem", BROKER.key, BROKER.certificate)
    watched = WatchedContext(settings(keystore_location=file), said.append)
    first = watched.context
    watched.look()
    assert (watched.context, said) == (first, [])
    written(file, OTHER.key, BROKER.certificate)
    watched.look()
    watched.look()
    assert watched.context is first
    [sentence] = said
    assert f"; {file} should hold" in sentence
    assert sentence.endswith("the keys from before stay in use")
    written(tmp_path / "new", OTHER.key, OTHER.certificate).rename(file)
    watched.look()
    assert watched.context is not first
    file.unlink()
    second = watched.context
    watched.look()
    assert watched.context is second
    assert [each.split(": ")[-1] for each in said[1:2]] == ["the keys have been read again"]
    assert "cannot be read" in said[2]
    os.mkfifo(file)
    watched.look()
    assert watched.context is second
    assert "it is no file, but a pipe" in said[3]


def test_once_the_broker_has_served_keys_that_cannot_be_used_fail_handshakes(
    tmp_path: Path,
) -> None:
    said: list[str] = []
    file = written(tmp_path / "keys.pem", b"<html>")
    watched = WatchedContext(settings(keystore_location=file), said.append, has_served=True)
    assert watched.end_ms == 0
    assert not shakes_hands(watched.context)
    written(file, OTHER.key, BROKER.certificate)
    watched.look()
    assert not shakes_hands(watched.context)
    assert [each.endswith(f"; {NOBODY}") for each in said] == [True, True]
    written(file, BROKER.key, BROKER.certificate)
    watched.look()
    assert shakes_hands(watched.context)
    assert watched.end_ms > 0
    written(file, b"")
    watched.look()
    assert shakes_hands(watched.context)
    assert said[-1].endswith(f"; {STAYS}")
