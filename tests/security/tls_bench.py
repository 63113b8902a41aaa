"""Keys, and Python's TLS client on memory, for tests of our server's side."""

import _ssl
import ctypes
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from smq.app.process.clock import wall_ms
from smq.cli.key_pairs import make_pair
from smq.security.tls import TlsEngine, server_context

VERSIONS = "TLSv1.2,TLSv1.3"


class Files(NamedTuple):
    authority: Path
    broker: Path
    client: Path
    foreign: Path


def put(path: Path, *parts: bytes) -> Path:
    path.write_bytes(b"".join(parts))
    return path


def make_files(home: Path) -> Files:
    """An authority's certificate, a broker's keys, a client's, and those of a foreign client."""
    now_ms = wall_ms()
    authority, other = make_pair("test", 1, now_ms), make_pair("other", 1, now_ms)
    pairs = (
        make_pair("broker", 1, now_ms, authority, ["localhost"]),
        make_pair("alice", 1, now_ms, authority),
        make_pair("alice", 1, now_ms, other),
    )
    made = [put(home / str(i), *pair) for i, pair in enumerate(pairs)]
    return Files(put(home / "ca", authority.certificate), *made)


def context_of(files: Files, client_auth: str = "none", versions: str = VERSIONS) -> ssl.SSLContext:
    context = server_context(versions, client_auth)
    context.load_cert_chain(files.broker)
    context.load_verify_locations(files.authority)
    return context


def client_context(
    files: Files, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3, certificate: Path | None = None
) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(files.authority))
    context.minimum_version = context.maximum_version = version
    if certificate is not None:
        context.load_cert_chain(certificate)
    return context


OBJECT_AT = object.__basicsize__ + 8  # After Python's socket: SSL *.
KEY_UPDATE_REQUESTED, _SET_GROUPS = 1, 92


def with_groups(context: ssl.SSLContext, groups: bytes) -> ssl.SSLContext:
    """Offer only these groups for the key exchange; Python's module has no word for some."""
    control = ctypes.CDLL(_ssl.__file__).SSL_CTX_ctrl
    control.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_long, ctypes.c_char_p)
    openssl = ctypes.c_void_p.from_address(id(context) + object.__basicsize__)
    assert control(openssl, _SET_GROUPS, 0, groups) == 1
    return context


def ask_for_new_keys(client: "Client") -> None:
    """A KeyUpdate that asks for one."""
    openssl = ctypes.CDLL(_ssl.__file__)
    openssl.SSL_key_update.argtypes = (ctypes.c_void_p, ctypes.c_int)
    assert openssl.SSL_key_update(_connection(client), KEY_UPDATE_REQUESTED) == 1
    _go_on(client)


def ask_to_renegotiate(client: "Client") -> None:
    """A second ClientHello on the same connection, of TLS 1.2."""
    openssl = ctypes.CDLL(_ssl.__file__)
    openssl.SSL_renegotiate.argtypes = (ctypes.c_void_p,)
    assert openssl.SSL_renegotiate(_connection(client)) == 1
    _go_on(client)


def _go_on(client: "Client") -> None:
    openssl = ctypes.CDLL(_ssl.__file__)
    openssl.SSL_do_handshake.argtypes = (ctypes.c_void_p,)
    openssl.SSL_do_handshake(_connection(client))


def _connection(client: "Client") -> ctypes.c_void_p:
    inner: Any = client.tls
    return ctypes.c_void_p.from_address(id(inner._sslobj) + OBJECT_AT)


class Client:
    """Python's client, on memory too."""

    def __init__(self, context: ssl.SSLContext, session: ssl.SSLSession | None = None) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(
            self.incoming, self.outgoing, server_hostname="localhost", session=session
        )

    def shake_hands(self) -> None:
        with suppress(ssl.SSLWantReadError):
            self.tls.do_handshake()

    def read(self) -> bytes:
        data = b""
        with suppress(ssl.SSLWantReadError):
            while piece := self.tls.read(1 << 20):
                data += piece
        return data


def connected(engine: TlsEngine, client: Client, piece: int = 1 << 20) -> None:
    """Both have shaken hands; ciphertext arrives in pieces of this size."""
    for _ in range(4):
        client.shake_hands()
        sent = client.outgoing.read()
        for at in range(0, len(sent), piece):
            engine.receive(sent[at : at + piece])
            if not engine.is_established:
                engine.shake_hands()
        client.incoming.write(engine.take_sent())
