"""Keys on P-256 and their certificates, made here: for tests and first tries."""

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

BACKDATED = timedelta(minutes=5)  # Clocks differ.


class KeyPair(NamedTuple):
    """A key and the certificate to it, as PEM."""

    key: bytes
    certificate: bytes


def make_pair(
    name: str,
    days: int,
    now_ms: int,
    issuer: KeyPair | None = None,
    hosts: Sequence[str] = (),
) -> KeyPair:
    """A new key and its certificate: an authority's own if there is no issuer.

    `now_ms` is wall time. `hosts`: the names and addresses under which a broker is reached. Raises
    ValueError if a certificate cannot have these names, or the issuer cannot sign it.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    begins = datetime.fromtimestamp(now_ms / 1000, UTC) - BACKDATED
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins + BACKDATED + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
    )
    if hosts:
        names = x509.SubjectAlternativeName(map(_host, hosts))
        builder = builder.add_extension(names, critical=False)
    if issuer is None:
        certificate = builder.issuer_name(subject).sign(key, SHA256())
    else:
        authority = x509.load_pem_x509_certificate(issuer.certificate)
        if authority.not_valid_after_utc < begins + BACKDATED:
            raise ValueError("the authority has expired; begin anew in another directory")
        signer = _signer(issuer.key)
        certificate = builder.issuer_name(authority.subject).sign(signer, SHA256())
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return KeyPair(pem, certificate.public_bytes(Encoding.PEM))


def _signer(key: bytes) -> ec.EllipticCurvePrivateKey:
    try:
        signer = load_pem_private_key(key, None)
    except TypeError as reason:
        raise ValueError("the authority's key has a password") from reason
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise ValueError("the authority's key is not on an elliptic curve")  # noqa: TRY004
    return signer


def _host(host: str) -> x509.GeneralName:
    if not host:
        raise ValueError("a host's name is not empty")
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
