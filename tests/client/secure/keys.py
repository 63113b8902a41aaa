"""Keys and certificates of an authority, a broker on localhost and a client, in files."""

import ssl
from pathlib import Path
from typing import NamedTuple

from smq.app.process.clock import wall_ms
from smq.cli.key_pairs import KeyPair, make_pair
from smq.security.tls import server_context

AUTHORITY = make_pair("test", 1, wall_ms())
OTHER = make_pair("other", 1, wall_ms())
BROKER = make_pair("broker", 1, wall_ms(), AUTHORITY, ["localhost", "127.0.0.1"])
ELSEWHERE = make_pair("broker", 1, wall_ms(), AUTHORITY, ["elsewhere"])
DAY_MS = 24 * 3600 * 1000
EXPIRED = make_pair("broker", 1, wall_ms() - 2 * DAY_MS, AUTHORITY, ["localhost"])
ALICE = make_pair("alice", 1, wall_ms(), AUTHORITY)


class Files(NamedTuple):
    """Where they are."""

    authority: str
    other: str
    alice: str
    """Key and certificate in one."""


def put(path: Path, *parts: bytes) -> str:
    """Write a file; its path."""
    path.write_bytes(b"".join(parts))
    return str(path)


def files_in(directory: Path) -> Files:
    """The files, made anew."""
    return Files(
        put(directory / "ca.pem", AUTHORITY.certificate),
        put(directory / "other.pem", OTHER.certificate),
        put(directory / "alice.pem", *ALICE),
    )


def broker_context(
    directory: Path, pair: KeyPair = BROKER, client_auth: str = "none"
) -> ssl.SSLContext:
    """What a broker has."""
    context = server_context("TLSv1.2,TLSv1.3", client_auth)
    context.load_cert_chain(put(directory / "broker.pem", *pair))
    context.load_verify_locations(cadata=AUTHORITY.certificate.decode())
    return context
