"""The kernel's turns and the loop's turns send the same bytes; the loop handles the rest."""

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from shm.kernels.base.words import WORD_TAIL, WORD_WRITTEN
from smq.app.process.clock import monotonic_ns
from smq.app.shard.turns.quick_turns import TURNS_MAX_NS
from smq.wire.records import read_batches
from tests.app.fake_peers import turn_until
from tests.app.quick import DISK, Make, Quick, awaited, one
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
    SEGMENT_BYTES,
    HeldSyncer,
    batch,
    produce_request,
    responses,
    topic,
)

pytestmark = pytest.mark.usefixtures("always_quick")
MEMORY = {"smq.durability": "memory"}
TOPICS = [topic("one", range(1, 3)), topic("two", range(3, 5)), topic("safe", range(5, 7), DISK)]
CLIENTS = len(TOPICS)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    with benches(tmp_path, ServerBench) as make:
        yield make


def offsets(client: Client) -> list[int]:
    answers = b"".join(len(frame).to_bytes(4) + frame for frame in client.frames())
    return [
        answer.responses[0].partition_responses[0].base_offset
        for _, answer in responses(answers)
    ]  # fmt: skip


# --- the same bytes ------------------------------------------------------------------------------

Ask = Callable[[str], bytes]
produces: st.SearchStrategy[Ask] = st.one_of(
    st.builds(
        lambda index, size, acks: (
            lambda name: produce_request({name: {index: batch(b"v" * size)}}, acks)
        ),
        st.integers(0, 2),  # The topics have two partitions.
        st.sampled_from([0, 1, 100, 20_000]),
        st.sampled_from([-1, 1, 0, 7]),
    ),
    st.just(lambda _: produce_request({"unknown": {0: batch(b"v")}})),
    st.just(lambda _: versions()),
    st.builds(lambda data: lambda _: data, st.binary(min_size=1, max_size=30)),
)
fetches: st.SearchStrategy[Ask] = st.builds(
    lambda offset, wait_ms: lambda name: fetch(name, offset, wait_ms=wait_ms),
    st.integers(0, 5),
    st.sampled_from([0, 60_000]),
)
Step = tuple[int, list[Ask], float]


def steps_of(asks: st.SearchStrategy[Ask]) -> st.SearchStrategy[list[Step]]:
    step = st.tuples(st.integers(0, CLIENTS - 1), st.lists(asks, max_size=6), st.floats(0, 1))
    return st.lists(step, min_size=1, max_size=8)


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


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(script=steps_of(produces | fetches))
def test_turns_of_the_kernel_and_of_the_loop_send_clients_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, script: list[Step]
) -> None:
    with benches(tmp_path_factory.mktemp("pair"), ServerBench) as make:
        quick, sleeping, slow = make(*TOPICS), make(*TOPICS), make(*TOPICS)
        sleeping.let_kernel_sleep()
        Quick(slow, is_allowed=False)
        expected = outcome(slow, script)
        for each in (quick, sleeping):
            assert outcome(each, script) == expected
            each.shard.invariants()


# --- what is taken, and what is left -------------------------------------------------------------


def test_requests_that_came_together_are_one_turn_written_and_visible_before_their_acks(
    make: Make,
) -> None:
    bench = make(topic("one"))
    quick, client = Quick(bench), bench.client()
    client.send(b"".join(one(correlation=i) for i in range(5)))
    assert len(client.wait(5)) == 5
    assert quick.taken == 1
    assert offsets(client) == [0, 1, 2, 3, 4]
    log = bench.shard.logs[0]
    assert log.words[WORD_WRITTEN] == log.words[WORD_TAIL]
    client.send(fetch("one"))
    assert fetched(client.wait(6)[5]).high_watermark == 5


def test_a_request_in_two_parts_and_one_of_another_kind_are_left_where_they_are(make: Make) -> None:
    bench = make(topic("one"))
    quick, client, sent = Quick(bench), bench.client(), one(b"y" * 5000, correlation=7)
    client.send(one() + sent[:3000])
    client.wait(1)
    client.send(sent[3000:] + versions(8) + one(correlation=9))
    client.wait(4)
    assert client.correlations() == [1, 7, 8, 9]
    assert quick.taken >= 1


def test_a_rest_that_comes_in_the_turn_of_its_beginning_finds_it(make: Make) -> None:
    bench = make(topic("one"))
    client, sent = bench.client(), one(b"y" * 30_000)
    [connection] = bench.server.clients.by_fd.values()
    bench.turn()
    client.send(sent[:20_000])
    assert bench.server.turns._sleep(monotonic_ns() + TURNS_MAX_NS)  # It takes the beginning …
    client.send(sent[20_000:])
    client.wait(1)
    client.send(sent[:20_000])
    bench.server.readable(connection)  # … or the loop, and a kernel looks before the turn ends.
    client.send(sent[20_000:])
    bench.server.turns.take_awake()
    client.wait(2)
    assert offsets(client) == [0, 1]


def test_fetches_that_wait_are_answered_by_the_kernel_turn_after_turn(make: Make) -> None:
    bench = make(topic("one"))
    quick, reader, writer = Quick(bench), bench.client(), bench.client()
    for i in range(30):
        reader.send(fetch("one", i, wait_ms=60_000))
        turn_until(bench.loop, lambda: awaited(bench) == 1)
        writer.send(one(b"%d" % i))
        assert fetched(reader.wait(i + 1)[i]).high_watermark == i + 1
    writer.wait(30)
    assert quick.taken == 60
    assert awaited(bench) == 0


def test_a_fetch_waiting_in_the_loop_is_answered_in_the_turn_that_wrote_its_records(
    make: Make,
) -> None:
    bench = make(topic("one"))
    quick, reader, writer = Quick(bench), bench.client(), bench.client()
    reader.send(fetch("one", wait_ms=60_000) + fetch("one", wait_ms=60_000))
    settle(bench, reader)
    assert awaited(bench) == 0  # One of them must wait for the other.
    before = quick.taken
    writer.send(one(b"awaited"))
    turn_until(bench.loop, lambda: quick.taken > before)
    reader.pull()
    assert b"awaited" in bytes(fetched(reader.frames()[0]).records)


def test_a_connection_served_by_the_kernel_is_not_closed_as_idle(
    make: Make,
) -> None:
    bench = make(topic("one"), connections_max_idle_ms=60_000)
    waiting, busy, idle = bench.client(), bench.client(), bench.client()
    waiting.send(fetch("one", wait_ms=60_000, min_bytes=1 << 20))
    turn_until(bench.loop, lambda: awaited(bench) == 1)
    for connection in bench.server.clients.by_fd.values():
        connection.last_used_ns -= 61_000_000_000
        bench.server._quick_turns.note(connection)
    busy.send(one())
    busy.wait(1)
    bench.server.clients.close_idle()
    idle.wait_closed()
    assert len(bench.server.clients) == 2


def test_a_connection_whose_request_a_kernel_leaves_is_not_closed_as_idle(make: Make) -> None:
    bench = make(topic("one"), connections_max_idle_ms=60_000)
    quick, client = Quick(bench), bench.client()
    client.send(one())
    client.wait(1)
    for connection in bench.server.clients.by_fd.values():
        connection.last_used_ns -= 61_000_000_000  # Since then a kernel has taken all requests.
    client.send(versions())
    client.wait(2)
    assert quick.taken
    bench.turn()
    bench.server.clients.close_idle()
    assert len(bench.server.clients) == 1


def test_a_fetchs_answer_that_a_socket_takes_in_parts_comes_whole(make: Make) -> None:
    bench = make(topic("one"))
    quick, writer, reader = Quick(bench), bench.client(), bench.client(receive_bytes=2048)
    reader.send(versions())
    reader.wait(1)
    for connection in bench.server.clients.by_fd.values():
        assert isinstance(connection.socket, socket.socket)
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2048)
    reader.send(fetch("one", wait_ms=60_000))
    turn_until(bench.loop, lambda: awaited(bench) == 1)
    before = quick.taken
    writer.send(one(b"z" * 30_000))
    assert bytes(fetched(reader.wait(2)[1]).records).count(b"z") == 30_000
    assert quick.taken > before


def test_an_ack_on_disk_level_waits_for_the_sync_and_later_ones_wait_behind_it(make: Make) -> None:
    bench = make(topic("one"), topic("safe", range(2, 3), DISK))
    log = bench.shard.logs[0]
    log.syncs.syncer = HeldSyncer(log.memory)
    client = bench.client()
    client.send(one(correlation=1) + produce_request({"safe": {0: batch(b"s")}}, correlation=2))
    client.send(one(correlation=3))
    settle(bench, client)
    assert client.correlations() == []
    log.syncs.syncer.release()
    client.wait(3)
    assert client.correlations() == [1, 2, 3]


def test_a_shard_with_a_topic_on_memory_level_takes_its_turns_itself(make: Make) -> None:
    bench = make(topic("one"), topic("fast", range(2, 3), MEMORY))
    quick, client = Quick(bench), bench.client()
    client.send(one() + produce_request({"fast": {0: batch(b"f")}}, correlation=2))
    client.wait(2)
    assert quick.taken == 0


def test_segments_follow_each_other(make: Make) -> None:
    bench = make(topic("one"))
    quick, client, value = Quick(bench), bench.client(), b"z" * 1000
    count = 3 * SEGMENT_BYTES // len(value)
    for i in range(count):
        client.send(one(value))
        client.wait(i + 1)
    assert offsets(client) == list(range(count))
    assert quick.taken > count // 2
    assert len(bench.shard.logs[0].wal.segments) > 3
    bench.shard.invariants()


def test_a_wal_that_cannot_be_written_is_repaired_before_the_ack(make: Make) -> None:
    bench = make(topic("one"))
    quick, client, log = Quick(bench), bench.client(), bench.shard.logs[0]
    client.send(one(correlation=1))
    client.wait(1)
    segment = log.wal.segments[-1]
    writable, segment.fd = segment.fd, os.open(segment.path, os.O_RDONLY)
    client.send(one(correlation=2))
    client.wait(2)
    assert offsets(client) == [0, 1]
    assert quick.taken == 2
    assert "writing the WAL failed" in log.notices[0]  # And it was written again.
    os.close(writable)


def test_a_failed_write_does_not_count_as_one_after_a_repair(make: Make) -> None:
    bench = make(topic("one"))
    client, log = bench.client(), bench.shard.logs[0]
    client.send(one(correlation=1))
    client.wait(1)
    log.health.has_written = False  # As a repair leaves it.
    segment = log.wal.segments[-1]
    writable, segment.fd = segment.fd, os.open(segment.path, os.O_RDONLY)
    client.send(one(correlation=2))
    client.wait_closed()
    assert log.failed is not None  # It is not repaired again and again: tend() tries now and then.
    log.tend()
    turn_until(bench.loop, lambda: log.failed is None)
    os.close(writable)


def test_answers_that_a_socket_does_not_take_go_when_it_does(make: Make) -> None:
    bench = make(topic("one"))
    quick, client = Quick(bench), bench.client(receive_bytes=4096)
    [connection] = bench.server.clients.by_fd.values()
    assert isinstance(connection.socket, socket.socket)
    connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    count = 400
    client.send(one() * count)
    bench.turn()
    assert len(connection.slots) > 0
    client.wait(count)
    assert offsets(client) == list(range(count))
    assert quick.taken == 1


@pytest.mark.parametrize("is_overtaken", [False, True])
def test_much_is_sent_from_the_ring_and_its_rest_from_wherever_it_is_by_then(
    make: Make, is_overtaken: bool
) -> None:
    bench = make(topic("one"))
    quick, producer, consumer = Quick(bench), bench.client(), bench.client(receive_bytes=4096)
    for connection in bench.server.clients.by_fd.values():
        assert isinstance(connection.socket, socket.socket)
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    batches = [batch(bytes([i]) * 20_000) for i in range(6)]
    for each in batches:
        producer.send(produce_request({"one": {0: each}}))
        bench.turn()
    taken = quick.taken
    consumer.send(fetch("one"))
    bench.turn(1)
    assert quick.taken == taken + 1
    [slow] = [each for each in bench.server.clients.by_fd.values() if each.slots]
    for _ in range(20 if is_overtaken else 0):  # More than the ring holds.
        producer.send(produce_request({"one": {0: batch(b"later" * 4000)}}))
        bench.turn()
    [log] = bench.shard.logs.values()
    assert log.in_ring(0) != is_overtaken
    found = fetched(consumer.wait(1)[0])
    values = [record.value for each in read_batches(found.records) for record in each.records()]
    assert values == [bytes([i]) * 20_000 for i in range(6)]
    assert not slow.slots
