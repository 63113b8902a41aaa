"""Fetches that a kernel has parked, and what ends their wait in the loop."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import strategies as st

from smq.app.shard import quick_turns
from smq.model.errors import ErrorCode
from tests.app.fake_peers import turn_until
from tests.app.quick import awaited
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
    HeldSyncer,
    batch,
    catalog,
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


def test_a_fetch_that_waits_in_the_kernel_ends_when_its_time_is_over(make: Make) -> None:
    bench = make(topic("one"))
    late, later = bench.client(), bench.client()
    later.send(fetch("one", wait_ms=60_000))
    turn_until(bench.loop, lambda: awaited(bench) == 1)
    late.send(fetch("one", wait_ms=20))
    assert fetched(late.wait(1)[0]).records in (None, b"")
    assert awaited(bench) == 1
    assert later.frames() == []


def test_a_client_whose_fetch_waits_may_ask_more_and_is_answered_in_order(make: Make) -> None:
    bench = make(topic("one"))
    client, writer = bench.client(), bench.client()
    client.send(fetch("one", wait_ms=60_000, correlation=1))
    turn_until(bench.loop, lambda: awaited(bench) == 1)
    client.send(versions(2) + one(correlation=3))
    settle(bench, client)
    assert client.correlations() == [1, 2, 3]  # Its own record ends its wait.
    client.send(fetch("one", 1, wait_ms=60_000, correlation=4))
    turn_until(bench.loop, lambda: awaited(bench) == 1)
    client.send(versions(5))
    settle(bench, client)
    assert client.correlations() == [1, 2, 3]
    writer.send(one())
    client.wait(5)
    assert client.correlations() == [1, 2, 3, 4, 5]


def test_records_that_become_visible_in_the_loops_turn_end_a_wait_in_the_kernel(make: Make) -> None:
    bench = make(topic("one"), topic("safe", range(2, 3), DISK))
    log = bench.shard.logs[0]
    log.syncs.syncer = HeldSyncer(log.memory)
    reader, writer = bench.client(), bench.client()
    reader.send(fetch("safe", wait_ms=60_000))
    turn_until(bench.loop, lambda: awaited(bench) == 1)
    writer.send(produce_request({"safe": {0: batch(b"s")}}))
    settle(bench, reader)
    assert (awaited(bench), reader.frames()) == (1, [])
    log.syncs.syncer.release()
    assert b"s" in bytes(fetched(reader.wait(1)[0]).records)


def test_a_topic_that_goes_and_a_stop_end_waits_in_the_kernel(make: Make) -> None:
    bench = make(topic("one"), topic("two", range(2, 3)))
    gone, stopped = bench.client(), bench.client()
    gone.send(fetch("one", wait_ms=60_000))
    stopped.send(fetch("two", wait_ms=60_000))
    turn_until(bench.loop, lambda: awaited(bench) == 2)
    bench.publish(catalog(topic("two", range(2, 3))))
    assert fetched(gone.wait(1)[0]).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    bench.server.stop()
    assert fetched(stopped.wait(1)[0]).error_code == 0


def test_a_client_that_hangs_up_while_its_fetch_waits_leaves_nothing_behind(make: Make) -> None:
    bench = make(topic("one"))
    client, writer = bench.client(), bench.client()
    client.send(fetch("one", wait_ms=60_000))
    turn_until(bench.loop, lambda: awaited(bench) == 1)
    client.socket.close()
    turn_until(bench.loop, lambda: len(bench.server.clients) == 1)
    assert awaited(bench) == 0
    writer.send(one())
    assert len(writer.wait(1)) == 1
