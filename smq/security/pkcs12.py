"""PKCS12 stores, as Java and OpenSSL write them (RFC 7292)."""

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)


def opened(data: bytes, password: str) -> tuple[bytes, bytes]:
    """The key ("" if there is none) and all certificates of a store, as PEM, the key's first.
    Raises ValueError."""
    try:
        store = pkcs12.load_pkcs12(data, password.encode() if password else None)
    except (UnsupportedAlgorithm, TypeError) as reason:  # Of a key that is none for TLS.
        raise ValueError(str(reason)) from reason
    own = [store.cert] if store.cert is not None else []
    chain = b"".join(
        each.certificate.public_bytes(Encoding.PEM) for each in (*own, *store.additional_certs)
    )
    if store.key is None:
        return b"", chain
    key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return key, chain
