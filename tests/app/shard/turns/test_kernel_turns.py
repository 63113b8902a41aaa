"""When a kernel takes the turns, and that everything else has its turn too."""

import os
import select
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from gateway.quick_fetch import QuickFetch
from smq.app.shard.turns.quick_turns import TURNS_MAX_NS
from smq.model.errors import ErrorCode
from tests.app.fake_peers import turn_until
from tests.app.quick import Make, Quick, one
from tests.app.shard_client import (
    ServerBench,
    benches,
    fetch,
    fetched,
    versions,
)
from tests.shard.shard_bench import (
    topic,
)

pytestmark = pytest.mark.usefixtures("always_quick")


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    with benches(tmp_path, ServerBench) as make:
        yield make


def test_a_client_that_never_stops_does_not_keep_the_loop_from_its_timers(make: Make) -> None:
    bench = make(topic("one"))
    quick, client = Quick(bench), bench.client()
    client.socket.setblocking(True)
    told: list[int] = []

    def ask_again_and_again() -> None:
        while not told:
            client.socket.sendall(one())
            assert client.socket.recv(1000)

    thread = Thread(target=ask_again_and_again)
    thread.start()
    bench.loop.call_later(50 * TURNS_MAX_NS / 1e6, lambda: told.append(quick.taken))
    turn_until(bench.loop, lambda: bool(told))
    turn_until(bench.loop, lambda: not thread.is_alive())
    assert told[0] > 0


def test_the_loop_takes_input_while_a_timer_is_due(make: Make) -> None:
    """The timer may end a login; a shard that stood still finds both."""
    bench = make(topic("one"))
    quick, client = Quick(bench), bench.client()
    client.send(versions(1))
    client.wait(1)
    before = quick.taken
    bench.loop.call_later(0, lambda: None)
    client.send(one(correlation=2))
    client.wait(2)
    assert quick.taken == before
    client.send(one(correlation=3))
    client.wait(3)
    assert quick.taken == before + 1


def test_a_fetch_that_its_kernel_has_left_is_not_given_to_it_again(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, asked, run = make(topic("one")), list[int](), QuickFetch.run
    quick, client = Quick(bench), bench.client()

    def counted(self: QuickFetch, *arguments: Any) -> Any:
        asked.append(1)
        return run(self, *arguments)

    monkeypatch.setattr(QuickFetch, "run", counted)
    client.send(versions(1))
    client.wait(1)
    client.send(fetch("none", correlation=2))
    assert fetched(client.wait(2)[1]).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (quick.taken, asked) == (2, [])


def test_while_the_kernel_sleeps_everything_else_has_its_turn(make: Make) -> None:
    bench = make(topic("one"))
    bench.let_kernel_sleep()
    quick, client, told = Quick(bench), bench.client(), list[str]()
    read, write = os.pipe()
    bench.loop.register(read, select.EPOLLIN, lambda _: told.append(os.read(read, 9).decode()))
    bench.loop.call_later(20, lambda: told.append("due"))
    client.socket.settimeout(10)

    def ask_then_tell() -> None:
        for _ in range(20):
            client.socket.sendall(one())
            assert client.socket.recv(1000)
        os.write(write, b"other")
        with socket.create_connection(bench.address) as newcomer:
            newcomer.sendall(versions())
            told.append(f"{len(newcomer.recv(1000)) > 0}")

    thread = Thread(target=ask_then_tell)
    thread.start()
    turns = 0
    while len(told) < 3:
        bench.loop.run_once(10)
        turns += 1
    thread.join()
    assert sorted(told) == ["True", "due", "other"]
    assert 0 < quick.taken <= turns < 20
    bench.loop.unregister(read)
    for fd in (read, write):
        os.close(fd)


def test_a_client_that_closes_or_resets_its_connection_is_forgotten(make: Make) -> None:
    bench = make(topic("one"))
    quick = Quick(bench)
    for is_reset in (False, True):
        client = bench.client()
        client.send(one())
        if is_reset:
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.socket.close()
        turn_until(bench.loop, lambda: len(bench.server.clients) == 0)
    assert quick.taken <= 2
