"""Keys and authorities come from PEM and PKCS12, in files and in texts."""

import os
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509 import load_der_x509_certificate, load_pem_x509_certificate

from smq.client.secure.security import TlsFiles
from smq.client.secure.tls_context import context_of
from smq.model.named_files import NAMED_BYTES_MAX
from tests.client.secure.keys import ALICE, AUTHORITY, Files, files_in, put


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return files_in(tmp_path)


def tls_files(**values: str) -> TlsFiles:
    """Properties: an underscore is a dot."""
    return TlsFiles(tuple((f"ssl.{k.replace('_', '.')}", v) for k, v in values.items()))


def trusted_names(files: TlsFiles) -> list[str]:
    """Whom a context trusts."""
    found = context_of(files).get_ca_certs(binary_form=True)
    names = (load_der_x509_certificate(each).subject.rfc4514_string() for each in found)
    return [name.removeprefix("CN=") for name in names]


def test_only_the_named_authority_is_trusted(files: Files) -> None:
    assert trusted_names(tls_files(truststore_location=files.authority)) == ["test"]
    text = "# Főtanúsítvány, as certifi's bundle says.\n" + AUTHORITY.certificate.decode()
    assert trusted_names(tls_files(truststore_certificates=text)) == ["test"]


def test_a_pkcs12_store_has_authorities(files: Files, tmp_path: Path) -> None:
    certificate = load_pem_x509_certificate(AUTHORITY.certificate)
    entry = pkcs12.PKCS12Certificate(certificate, b"ca")
    store = pkcs12.serialize_java_truststore([entry], BestAvailableEncryption(b"x"))
    path = put(tmp_path / "trust.p12", store)
    assert trusted_names(tls_files(truststore_location=path, truststore_password="x")) == ["test"]
    with pytest.raises(ValueError, match=r"ssl\.truststore\.password"):
        context_of(tls_files(truststore_location=path, truststore_password="y"))


def test_a_key_is_taken_from_each_kind_of_place(files: Files, tmp_path: Path) -> None:
    key = load_pem_private_key(ALICE.key, None)
    assert isinstance(key, EllipticCurvePrivateKey)
    encrypted = key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
    )
    certificate = load_pem_x509_certificate(ALICE.certificate)
    store = pkcs12.serialize_key_and_certificates(
        b"alice",
        key,
        certificate,
        None,
        BestAvailableEncryption(b"x"),
    )
    key_path = put(tmp_path / "key.pem", encrypted)
    chain_path = put(tmp_path / "chain.pem", ALICE.certificate)
    chain = ALICE.certificate.decode()
    for values in (
        {"keystore_location": files.alice},
        {"keystore_location": put(tmp_path / "alice.p12", store), "keystore_password": "x"},
        {"keystore_key": ALICE.key.decode(), "keystore_certificate_chain": chain},
        {"key_location": key_path, "certificate_location": chain_path, "key_password": "secret"},
    ):
        context_of(tls_files(truststore_location=files.authority, **values))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"truststore_location": "/none"}, "/none cannot be read"),
        ({"truststore_certificates": "nothing"}, "certificates cannot be used"),
        ({"keystore_key": "nothing"}, "cannot be used"),
        ({"key_location": "/none"}, "needs ssl.certificate.location"),
        ({"enabled_protocols": "SSLv3"}, "'SSLv3'"),
    ],
)
def test_an_unusable_property_is_refused_by_its_name(values: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        context_of(tls_files(**values))


@pytest.mark.parametrize(
    "data", [ALICE.certificate, (ALICE.key + ALICE.certificate)[:100]], ids=["no key", "cut"]
)
def test_a_key_that_openssl_refuses_is_named_by_its_file(tmp_path: Path, data: bytes) -> None:
    """It says '[SSL] PEM lib', and nothing of a file."""
    store = put(tmp_path / "alice.pem", data)
    chain = put(tmp_path / "chain.pem", ALICE.certificate)
    for values, said in (
        ({"keystore_location": store}, f"ssl.keystore.location: .*; {store} should hold a whole"),
        (
            {"key_location": store, "certificate_location": chain},
            f"ssl.key.location: .*; {store}, with {chain}, should hold a whole private key",
        ),
        ({"keystore_key": data.decode()}, "ssl.keystore.key: .*; it, with ssl.keystore"),
    ):
        with pytest.raises(ValueError, match=said):
            context_of(tls_files(**values))


def test_a_pipe_and_a_store_longer_than_any_are_refused(tmp_path: Path) -> None:
    pipe, large = tmp_path / "pipe", tmp_path / "large"
    os.mkfifo(pipe)
    large.write_bytes(AUTHORITY.certificate + b"\n" * NAMED_BYTES_MAX)
    for path, said in ((pipe, "it is no file"), (large, "it has over")):
        for name in ("truststore_location", "keystore_location"):
            with pytest.raises(ValueError, match=f"{path} cannot be read: {said}"):
                context_of(tls_files(**{name: str(path)}))


def test_a_key_store_of_java_is_refused_with_the_command_that_converts_it(tmp_path: Path) -> None:
    path = put(tmp_path / "keys.jks", b"\xfe\xed\xfe\xed\0\0\0\2")
    with pytest.raises(ValueError, match="keytool -importkeystore"):
        context_of(tls_files(truststore_location=path))
