"""Connections of clients that take no answer: found by their peers, and ended."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from smq.app.agent.connections import address_of, end_connection

LOOPBACK = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:10.0.0.7:1234", ("10.0.0.7", 1234)),
        ("ipv6:%5B::ffff:10.0.0.7%5D:1234", ("10.0.0.7", 1234)),
        ("ipv6:[::1]:80", ("0:0:0:0:0:0:0:1", 80)),
        ("unix:/tmp/x", None),
        ("ipv4:10.0.0.7:", None),
        ("", None),
    ],
)
def test_a_peer_has_a_host_and_a_port(peer: str, address: tuple[str, int] | None) -> None:
    assert address_of(peer) == address


@contextmanager
def connected(family: socket.AddressFamily) -> Iterator[tuple[socket.socket, socket.socket, str]]:
    """Both ends of a connection, and what gRPC calls the client."""
    with socket.create_server((LOOPBACK[family], 0), family=family) as server:
        client = socket.create_connection(server.getsockname()[:2])
        accepted, (host, port, *_) = server.accept()
        with client, accepted:
            client.settimeout(60)
            peer = f"ipv4:{host}" if family == socket.AF_INET else f"ipv6:%5B{host}%5D"
            yield client, accepted, f"{peer}:{port}"


@pytest.mark.parametrize("family", [*LOOPBACK])
def test_the_connection_of_a_peer_is_ended_and_no_other_one(family: socket.AddressFamily) -> None:
    with connected(family) as (client, accepted, peer), connected(family) as (other, far, _):
        assert end_connection(peer)
        assert client.recv(1) == b""
        assert accepted.fileno() >= 0  # Whoever has it closes it.
        far.send(b"x")
        assert other.recv(1) == b"x"


def test_a_peer_that_is_gone_has_no_connection() -> None:
    with connected(socket.AF_INET) as (_, _, peer):
        pass
    assert not end_connection(peer)
    assert not end_connection("unix:")
