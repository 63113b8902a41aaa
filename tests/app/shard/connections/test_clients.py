"""Connected clients: how many, for how long, and through which buffers."""

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from smq.app.shard.connections.clients import HOST_SEND_BYTES
from smq.app.shard.entrances import FRONT_ENTRANCE
from smq.wire.generated.find_coordinator import FindCoordinatorRequest
from tests.app.fake_peers import turn_until
from tests.app.shard_client import (
    ServerBench,
    benches,
    request,
    settle,
)

Make = Callable[..., ServerBench]
DISK = {"smq.durability": "disk"}
MEMORY = {"smq.durability": "memory"}


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    with benches(tmp_path, ServerBench) as make:
        yield make


def find_coordinator(correlation: int) -> bytes:
    asked = FindCoordinatorRequest(coordinator_keys=["g"])
    return request("FindCoordinator", 3, asked, correlation)


def _impatient(bench: ServerBench) -> Any:
    """The bench, that gives up waiting for a connection after some turns."""

    class Impatient:
        address, source, server = bench.address, bench.source, bench.server

        class loop:  # noqa: N801
            opened = bench.loop.opened
            turns = 0

            @classmethod
            def run_once(cls, _timeout_s: float) -> None:
                bench.loop.run_once(0)
                cls.turns += 1
                assert cls.turns < 20, "it never came true"

    return Impatient


def send_bytes(sock: socket.socket) -> int:
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)


def test_clients_beyond_the_limit_are_closed_and_idle_ones_after_their_time(make: Make) -> None:
    bench = make(max_connections=2, connections_max_idle_ms=0)
    first, second = bench.client(), bench.client()
    with pytest.raises(AssertionError, match="came true"):
        ServerBench.client(_impatient(bench))
    assert len(bench.server.clients) == 2
    first.send(find_coordinator(1))
    settle(bench)
    bench.server.clients.close_idle()
    second.wait_closed()
    assert len(bench.server.clients) == 1


def test_the_front_comes_in_when_others_may_not(make: Make, tmp_path: Path) -> None:
    bench = make(max_connections=1)
    bench.client()
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as front:
        listener.bind(str(tmp_path / "front.sock"))
        listener.listen()
        bench.server.clients.listen(listener, FRONT_ENTRANCE)
        front.connect(str(tmp_path / "front.sock"))
        turn_until(bench.loop, lambda: len(bench.server.clients) == 2)
        [*_, connection] = bench.server.clients.by_fd.values()
        assert connection.login is not None, "it has to say for whom it asks"
        assert bench.server.logins.newcomers.host_of(connection) == "HTTP"  # And no address.
        bench.server.clients.stop()


@pytest.mark.parametrize(
    ("source", "known_as"), [("127.0.0.2", "127.0.0.2"), ("::1", "0:0:0:0:0:0:0:1")]
)
def test_a_client_of_a_listener_on_every_address_is_known_as_in_rules(
    make: Make, source: str, known_as: str
) -> None:
    bench = make()
    listener = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    bench.loop.opened.append(listener)
    bench.server.clients.listen(listener)
    port = listener.getsockname()[1]
    with socket.create_connection((source, port), source_address=(source, 0)):
        turn_until(bench.loop, lambda: len(bench.server.clients) == 1)
        [connection] = bench.server.clients.by_fd.values()
        assert connection.caller.rights.peer.host == known_as


def test_a_connection_from_this_host_has_a_bounded_send_buffer(
    make: Make,
) -> None:
    bench = make()
    with socket.socket() as bounded:
        bounded.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, HOST_SEND_BYTES)
        expected = send_bytes(bounded)
    for address in ("127.0.0.1", "127.0.0.2"):
        with socket.create_connection(bench.address, source_address=(address, 0)):
            turn_until(bench.loop, lambda: len(bench.server.clients) == 1)
            [connection] = bench.server.clients.by_fd.values()
            assert isinstance(connection.socket, socket.socket)
            is_bounded = send_bytes(connection.socket) == expected
            assert is_bounded == (address == "127.0.0.1")
        turn_until(bench.loop, lambda: len(bench.server.clients) == 0)
