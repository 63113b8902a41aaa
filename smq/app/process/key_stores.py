"""Keys, certificates and authorities of TLS, from PEM (KIP-651) or PKCS12, as a listener's settings
name them. They are read again when a file changes; a pair that cannot be used leaves the old one,
or keeps everybody out where a restarted process has none.
"""

import os
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from smq.app.process.watched_files import Sentences, UnusableFile, WatchedFiles
from smq.model.config import Config
from smq.model.named_files import read_named
from smq.security.der import UnreadableDer
from smq.security.listener_rules import keys_refused, only_java_reads, pem_text
from smq.security.listeners import Listener
from smq.security.tls import server_context
from smq.security.validity import first_end_ms

FILE_BYTES_MAX = 1024 * 1024  # A chain has some kilobytes; all public authorities 200 KB.
PAIR = ("tls.key", "tls.crt")  # As Kubernetes mounts a secret with a key and its certificates.
STAYS = "the keys from before stay in use"
NOBODY = "nobody gets in there until it can be used; all else is served"
_PEM = b"-----BEGIN "
_JKS = b"\xfe\xed\xfe\xed"


class Pem(NamedTuple):
    """A key and its certificates, and authorities, as PEM. `password` is the key's."""

    key: bytes
    chain: bytes
    password: str
    trusted: bytes


class TlsSettings(NamedTuple):
    """The TLS settings of a listener."""

    listener: str
    protocols: str
    client_auth: str
    values: dict[str, str]

    @classmethod
    def of(cls, config: Config, listener: Listener) -> "TlsSettings":
        """Those of one listener."""
        names = [
            f"ssl.{kind}.{name}"
            for kind, own in (
                ("keystore", ("key", "certificate.chain")),
                ("truststore", ("certificates",)),
            )
            for name in ("location", "password", "type", *own)
        ]
        values = {
            name: str(listener.setting(config, name)) for name in (*names, "ssl.key.password")
        }
        return cls(
            listener.name,
            str(listener.setting(config, "ssl.enabled.protocols")),
            listener.client_auth(config),
            values,
        )

    def files(self) -> list[Path]:
        """The files that hold keys and certificates."""
        named = (self.values[f"ssl.{kind}.location"] for kind in ("keystore", "truststore"))
        return [file for each in named if each for file in parts_of(Path(each))]


def parts_of(location: Path) -> list[Path]:
    """The files of a key store: itself, or those of a directory."""
    return [location / each for each in PAIR] if location.is_dir() else [location]


class UnusableKeys(UnusableFile):
    """Keys that no connection can be made with; a sentence."""


def context_of(settings: TlsSettings) -> ssl.SSLContext:
    """A context with the keys of a listener. Raises UnusableKeys."""
    return _context(settings, pem_of(settings))


def _context(settings: TlsSettings, pem: Pem) -> ssl.SSLContext:
    context = server_context(settings.protocols, settings.client_auth)
    name = settings.listener
    try:
        with _in_memory(pem.chain) as chain, _in_memory(pem.key) as key:
            context.load_cert_chain(chain, key, lambda: pem.password)
    except (ssl.SSLError, OSError, ValueError) as reason:
        raise UnusableKeys(keys_refused(*_place_of_keys(settings), reason)) from reason
    if pem.trusted:
        try:
            context.load_verify_locations(cadata=pem_text(pem.trusted))
        except (ssl.SSLError, ValueError) as reason:
            raise UnusableKeys(
                f"ssl.truststore ({name}): the certificates cannot be used: {reason}"
            ) from reason
    return context


def _place_of_keys(settings: TlsSettings) -> tuple[str, str]:
    """The setting that names the keys, and where they stand."""
    if settings.values["ssl.keystore.key"]:
        setting, place = "ssl.keystore.key", "it, with ssl.keystore.certificate.chain,"
    else:
        setting = "ssl.keystore.location"
        place = " and ".join(map(str, parts_of(Path(settings.values[setting]))))
    return f"{setting} ({settings.listener})", place


def pem_of(settings: TlsSettings) -> Pem:
    """The keys of a listener, from its settings and files. Raises UnusableKeys."""
    value = settings.values
    if value["ssl.keystore.key"]:
        key, chain = (
            value["ssl.keystore.key"].encode(),
            value["ssl.keystore.certificate.chain"].encode(),
        )
        password = value["ssl.key.password"]
    else:
        key, chain, password = _key_store(settings)
    trusted = value["ssl.truststore.certificates"].encode() or _trust_store(settings)
    return Pem(key, chain, password, trusted)


def _key_store(settings: TlsSettings) -> tuple[bytes, bytes, str]:
    data, name = _file(settings, "keystore"), "ssl.keystore"
    if _PEM in data:
        return data, data, settings.values["ssl.key.password"]
    key, certificates = _pkcs12(settings, "keystore", data)
    if not key:
        raise UnusableKeys(f"{name} ({settings.listener}): there is no key in the file")
    return key, certificates, ""


def _trust_store(settings: TlsSettings) -> bytes:
    if not settings.values["ssl.truststore.location"]:
        return b""
    data = _file(settings, "truststore")
    if _PEM in data:
        return data
    trusted = _pkcs12(settings, "truststore", data)[1]
    if not trusted:  # Nobody would get in, and nothing would say why.
        name = f"ssl.truststore.location ({settings.listener})"
        raise UnusableKeys(f"{name}: there is no certificate in the file")
    return trusted


def _file(settings: TlsSettings, kind: str) -> bytes:
    setting = f"ssl.{kind}.location"
    path = Path(settings.values[setting])
    try:
        data = b"\n".join(read_named(each, FILE_BYTES_MAX) for each in parts_of(path))
    except OSError as reason:
        raise UnusableKeys(
            f"{setting} ({settings.listener}): {path} cannot be read: {reason}"
        ) from reason
    if data.startswith(_JKS):
        remedy = only_java_reads(str(path))
        raise UnusableKeys(f"{setting} ({settings.listener}): {remedy}")
    return data


def _pkcs12(settings: TlsSettings, kind: str, data: bytes) -> tuple[bytes, bytes]:
    """The key and the certificates of a PKCS12 store as PEM."""
    name = f"ssl.{kind}.location ({settings.listener})"
    try:
        from smq.security.pkcs12 import opened  # noqa: PLC0415  (needs an extra)
    except ImportError as reason:
        raise UnusableKeys(f"{name}: PKCS12 needs `pip install smq-broker[security]`") from reason
    try:
        return opened(data, settings.values[f"ssl.{kind}.password"])
    except ValueError as reason:
        raise UnusableKeys(
            f"{name}: it is no PEM, and no PKCS12 that ssl.{kind}.password opens: {reason}"
        ) from reason


@contextmanager
def _in_memory(data: bytes) -> Iterator[str]:
    """A path of these bytes: OpenSSL reads keys from files only, and keys stay off the disk."""
    fd = os.memfd_create("smq-tls", os.MFD_CLOEXEC)
    try:
        os.write(fd, data)
        yield f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)


class WatchedContext:
    """The context of a listener; `look` reads changed files again."""

    def __init__(
        self, settings: TlsSettings, say: Callable[[str], None], *, has_served: bool = False
    ) -> None:
        """Raises UnusableKeys, unless the broker `has_served`: then each handshake fails until the
        keys can be used."""
        self._watched = WatchedFiles(
            settings.files,
            partial(_context_and_end, settings),
            Sentences(f"ssl ({settings.listener}): the keys have been read again", STAYS, NOBODY),
            say,
            (server_context(settings.protocols, settings.client_auth), 0) if has_served else None,
        )

    def look(self) -> None:
        """Use files that have changed. Called about once a second."""
        self._watched.look()

    @property
    def context(self) -> ssl.SSLContext:
        """The context of the moment."""
        return self._watched.value[0]

    @property
    def end_ms(self) -> int:
        """The wall time when the first certificate of the key store ends; 0: unknown."""
        return self._watched.value[1]


def _context_and_end(settings: TlsSettings) -> tuple[ssl.SSLContext, int]:
    pem = pem_of(settings)
    return _context(settings, pem), end_of_chain(pem.chain)


def end_of_chain(chain: bytes) -> int:
    """The wall time when the first certificate of a chain ends; 0: unknown."""
    try:
        return first_end_ms(chain)
    except UnreadableDer:  # OpenSSL has read it: it takes more than we do.
        return 0
