"""Makes the client's TLS context from the files and the texts that properties name: PEM (KIP-651)
or PKCS12. Java's own key stores are refused, with the command that converts them.
"""

import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from smq.client.secure.security import TlsFiles
from smq.model.named_files import read_named
from smq.security.listener_rules import keys_refused, only_java_reads, pem_text

_PEM = b"-----BEGIN "
_JKS = b"\xfe\xed\xfe\xed"
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def context_of(files: TlsFiles) -> ssl.SSLContext:
    """The context. Raises ValueError with a sentence."""
    context = ssl.create_default_context() if not _has_authorities(files) else _trusting(files)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if spoken := files["ssl.enabled.protocols"]:
        context.minimum_version, context.maximum_version = _versions(spoken)
    context.check_hostname = files.checks_names
    key, chain, password = _own_key(files)
    if key:
        try:
            with _as_files(chain, key) as (chain_path, key_path):
                context.load_cert_chain(chain_path, key_path, lambda: password)
        except (ssl.SSLError, OSError, ValueError) as error:
            raise ValueError(keys_refused(*_place_of_key(files), error)) from error
    return context


def _has_authorities(files: TlsFiles) -> bool:
    return bool(files["ssl.truststore.certificates"] or files["ssl.truststore.location"])


def _trusting(files: TlsFiles) -> ssl.SSLContext:
    """A context that trusts the authorities that are named, and no others."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusted = trusted_by(files)
    try:
        context.load_verify_locations(cadata=pem_text(trusted))
    except (ssl.SSLError, ValueError) as error:
        raise ValueError(f"ssl.truststore: the certificates cannot be used: {error}") from error
    return context


def trusted_by(files: TlsFiles) -> bytes:
    """The authorities that are named, as PEM; none: those of the system are trusted. Raises
    ValueError with a sentence."""
    if certificates := files["ssl.truststore.certificates"]:
        return certificates.encode()
    if not files["ssl.truststore.location"]:
        return b""
    data = _read(files, "ssl.truststore.location")
    return data if _PEM in data else _pkcs12(files, "truststore", data)[1]


def is_pem(path: Path) -> bool:
    """Whether a store is a file of PEM. Raises ValueError with a sentence."""
    return _PEM in _content("the store", path)


def _versions(text: str) -> tuple[ssl.TLSVersion, ssl.TLSVersion]:
    names = [each.strip() for each in text.split(",")]
    unknown = [each for each in names if each not in _VERSIONS]
    if unknown:
        raise ValueError(
            f"ssl.enabled.protocols has {unknown[0]!r}; known are {' and '.join(_VERSIONS)}"
        )
    chosen = sorted(_VERSIONS[each] for each in names)
    return chosen[0], chosen[-1]


def _own_key(files: TlsFiles) -> tuple[bytes, bytes, str]:
    """The client's key, its certificates, both as PEM, and the key's password."""
    password = files["ssl.key.password"]
    if files["ssl.keystore.key"]:
        chain = files["ssl.keystore.certificate.chain"]
        return files["ssl.keystore.key"].encode(), chain.encode(), password
    if files["ssl.key.location"]:
        chain_from = "ssl.certificate.location"
        if not files[chain_from]:
            raise ValueError("ssl.key.location needs ssl.certificate.location")
        return _read(files, "ssl.key.location"), _read(files, chain_from), password
    if not files["ssl.keystore.location"]:
        return b"", b"", ""
    data = _read(files, "ssl.keystore.location")
    if _PEM in data:
        return data, data, password
    key, chain_read = _pkcs12(files, "keystore", data)
    if not key:
        raise ValueError("ssl.keystore.location: there is no key in the file")
    return key, chain_read, ""


def _place_of_key(files: TlsFiles) -> tuple[str, str]:
    """The property that names the client's key, and where key and certificates stand."""
    if files["ssl.keystore.key"]:
        return "ssl.keystore.key", "it, with ssl.keystore.certificate.chain,"
    if path := files["ssl.key.location"]:
        return "ssl.key.location", f"{path}, with {files['ssl.certificate.location']},"
    return "ssl.keystore.location", files["ssl.keystore.location"]


def _read(files: TlsFiles, name: str) -> bytes:
    return _content(name, Path(files[name]))


def _content(name: str, path: Path) -> bytes:
    try:
        data = read_named(path)
    except OSError as error:
        raise ValueError(f"{name}: {path} cannot be read: {error}") from error
    if data.startswith(_JKS):
        raise ValueError(f"{name}: {only_java_reads(str(path))}")
    return data


def _pkcs12(files: TlsFiles, kind: str, data: bytes) -> tuple[bytes, bytes]:
    try:
        from smq.security.pkcs12 import opened  # noqa: PLC0415  (needs an extra)
    except ImportError as error:
        raise ValueError(
            f"ssl.{kind}.location: PKCS12 needs `pip install smq-broker[security]`"
        ) from error
    try:
        return opened(data, files[f"ssl.{kind}.password"])
    except ValueError as error:
        raise ValueError(
            f"ssl.{kind}.location: it is no PEM, and no PKCS12 that ssl.{kind}.password opens: "
            f"{error}"
        ) from error


@contextmanager
def _as_files(*texts: bytes) -> Iterator[list[str]]:
    """Files that only this user can read, for as long as OpenSSL reads them."""
    with tempfile.TemporaryDirectory(prefix="smq-tls-") as directory:
        paths = []
        for number, text in enumerate(texts):
            path = Path(directory) / f"{number}.pem"
            path.touch(mode=0o600)
            path.write_bytes(text)
            paths.append(str(path))
        yield paths
