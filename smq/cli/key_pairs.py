"""Keys on P-256 and their certificates, made here: for tests and first tries."""

import ipaddress
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature
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
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)", re.ASCII | re.IGNORECASE)


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

    `now_ms` is wall time. `hosts`: the names and addresses under which a broker is reached. It ends
    no later than its issuer. Raises ValueError if a certificate cannot have these names, or the
    issuer cannot sign it.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    ends = now + timedelta(days=days)
    signer, signer_name = key, subject
    if issuer is not None:
        authority = x509.load_pem_x509_certificate(issuer.certificate)
        signer, signer_name = _signer(issuer.key, authority), authority.subject
        ends = min(ends, authority.not_valid_after_utc)
        if ends < now:
            raise ValueError("the authority has expired; begin anew in another directory")
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(ends)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
    )
    if hosts:
        names = x509.SubjectAlternativeName(map(_host, hosts))
        builder = builder.add_extension(names, critical=False)
    certificate = builder.issuer_name(signer_name).sign(signer, SHA256())
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return KeyPair(pem, certificate.public_bytes(Encoding.PEM))


def ends_at(certificate: bytes) -> datetime:
    """When a certificate ends. Raises ValueError if it is none."""
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc


def is_signed_by(certificate: bytes, authority: bytes) -> bool:
    """Whether an authority has signed a certificate, the first one here. Raises ValueError if one
    is none."""
    signed, signer = map(x509.load_pem_x509_certificate, (certificate, authority))
    try:
        signed.verify_directly_issued_by(signer)
    except (ValueError, TypeError, InvalidSignature):  # Its name, its key's kind, its signature.
        return False
    return True


def _signer(key: bytes, authority: x509.Certificate) -> ec.EllipticCurvePrivateKey:
    try:
        signer = load_pem_private_key(key, None)
    except TypeError as reason:
        raise ValueError("the authority's key has a password") from reason
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise ValueError("the authority's key is not on an elliptic curve")  # noqa: TRY004
    if signer.public_key() != authority.public_key():
        raise ValueError("the authority's key and its certificate do not belong together")
    return signer


def _host(host: str) -> x509.GeneralName:
    if not host:
        raise ValueError("a host's name is not empty")
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        labels = host.removeprefix("*.").split(".")
        if not all(map(_LABEL.fullmatch, labels)) or labels[-1].isdecimal():
            raise ValueError(
                f"{host!r} is no name and no address of a host; name it without a port, a name "
                "beyond ASCII as xn--…"
            ) from None
        return x509.DNSName(host)
