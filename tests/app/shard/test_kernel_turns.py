"""When a kernel takes the turns, and that everything else has its turn too."""

import os
import select
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import strategies as st

from smq.app.shard import quick_turns
from smq.app.shard.quick_turns import TURNS_MAX_NS
from tests.app.fake_peers import turn_until
from tests.app.quick import Quick
from tests.app.shard_client import (
    Client,
    ServerBench,
    benches,
    fetch,
    fetched,
    settle,
    versions,
)
from tests.shard.shard_bench import (
    batch,
    produce_request,
    responses,
    topic,
)

Make = Callable[..., ServerBench]
DISK, MEMORY = {"smq.durability": "disk"}, {"smq.durability": "memory"}
TOPICS = [topic("one", range(1, 3)), topic("two", range(3, 5)), topic("safe", range(5, 7), DISK)]
CLIENTS = len(TOPICS)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel is asked in every turn, also where it pays off only in the long run."""
    monkeypatch.setattr(quick_turns, "PAUSE_TURNS", 0)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    with benches(tmp_path, ServerBench) as make:
        yield make


def one(value: bytes = b"x", acks: int = -1, correlation: int = 1) -> bytes:
    return produce_request({"one": {0: batch(value)}}, acks, correlation)


def offsets(client: Client) -> list[int]:
    answers = b"".join(len(frame).to_bytes(4) + frame for frame in client.frames())
    return [
        answer.responses[0].partition_responses[0].base_offset
        for _, answer in responses(answers)
    ]  # fmt: skip


# --- the same bytes ------------------------------------------------------------------------------

Ask = Callable[[str], bytes]
asks: st.SearchStrategy[Ask] = st.one_of(
    st.builds(
        lambda index, size, acks: (
            lambda name: produce_request({name: {index: batch(b"v" * size)}}, acks)
        ),
        st.integers(0, 2),  # The topics have two partitions.
        st.sampled_from([0, 1, 100, 20_000]),
        st.sampled_from([-1, 1, 0, 7]),
    ),
    st.builds(
        lambda offset, wait_ms: lambda name: fetch(name, offset, wait_ms=wait_ms),
        st.integers(0, 5),
        st.sampled_from([0, 60_000]),
    ),
    st.just(lambda _: produce_request({"unknown": {0: batch(b"v")}})),
    st.just(lambda _: versions()),
    st.builds(lambda data: lambda _: data, st.binary(min_size=1, max_size=30)),
)
Step = tuple[int, list[Ask], float]
steps = st.lists(
    st.tuples(st.integers(0, CLIENTS - 1), st.lists(asks, max_size=6), st.floats(0, 1)),
    min_size=1,
    max_size=8,
)


def outcome(bench: ServerBench, script: list[Step]) -> list[tuple[bytes, bool, bytes, list[int]]]:
    """Of each client: what it got, whether it was closed, what its topic then holds, how far.

    Each has a topic to itself, so that nothing depends on who is served first.
    """
    clients = [bench.client() for _ in TOPICS]
    for who, sent, cut in script:
        stream = b"".join(ask(TOPICS[who].name) for ask in sent)
        at = int(cut * len(stream))
        for part in (stream[:at], stream[at:]):
            with suppress(ConnectionError):  # It may have been closed for what it said.
                clients[who].send(part)
            bench.turn(1)
            clients[who].pull()
    settle(bench, *clients)
    return [
        (client.received, client.is_closed, *held(bench, each.name))
        for client, each in zip(clients, TOPICS, strict=True)
    ]


def held(bench: ServerBench, name: str) -> tuple[bytes, list[int]]:
    """The first partition's batches, and the ends of all partitions."""
    reader = bench.client()
    reader.send(fetch(name))
    records = fetched(reader.wait(1)[0]).records
    found = [bench.shard.find(bench.shard.catalog.by_name[name], index) for index in range(2)]
    return bytes(records or b""), [led.offsets().high_watermark for led in found]  # type: ignore[union-attr]


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


def test_who_hangs_up_or_is_reset_is_forgotten(make: Make) -> None:
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
