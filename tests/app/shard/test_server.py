"""The server over real sockets: cuts, order, levels, slow clients, garbage."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from shm.kernels.base.words import WORD_SPACE_END
from smq.app.process.clock import monotonic_ms
from smq.app.shard.connections.receive import BUFFER_BYTES
from smq.model.errors import ErrorCode
from smq.wire.generated.find_coordinator import FindCoordinatorRequest
from tests.app.fake_peers import turn_until
from tests.app.shard_client import (
    ServerBench,
    benches,
    decoded,
    fetch,
    fetched,
    request,
    settle,
    versions,
)
from tests.shard.shard_bench import (
    RING_BYTES,
    HeldSyncer,
    batch,
    catalog,
    produce_request,
    topic,
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


@pytest.mark.parametrize("size", [1, 3, 7, 64])
def test_a_stream_may_be_cut_anywhere(make: Make, size: int) -> None:
    bench = make(topic("one"))
    client = bench.client()
    stream = versions(1) + produce_request({"one": {0: batch(b"x")}}, correlation=2) + versions(3)
    stream += fetch("one", correlation=4)
    for at in range(0, len(stream), size):
        client.send(stream[at : at + size])
        bench.turn(1)
    frames = client.wait(4)
    assert client.correlations() == [1, 2, 3, 4]
    assert fetched(frames[3]).high_watermark == 1


def test_an_ack_comes_at_its_topic_s_level_and_what_is_acknowledged_is_visible(make: Make) -> None:
    levels = [
        topic("fast", configs=MEMORY),
        topic("plain", range(2, 3)),
        topic("safe", range(3, 4), DISK),
    ]
    bench = make(*levels)
    log = bench.shard.logs[0]
    log.syncs.syncer = HeldSyncer(log.memory)
    clients = {each.name: bench.client() for each in levels}
    for name, client in clients.items():
        client.send(produce_request({name: {0: batch(name.encode())}}))
    settle(bench, *clients.values())
    assert {name for name, client in clients.items() if client.frames()} == {"fast", "plain"}
    reader = bench.client()
    for i, name in enumerate(clients):
        reader.send(fetch(name))
        reader.wait(i + 1)
    assert [bool(fetched(frame).records) for frame in reader.frames()] == [True, True, False]
    log.syncs.syncer.release()
    clients["safe"].wait(1)
    reader.send(fetch("safe"))
    assert fetched(reader.wait(4)[3]).records


def test_a_poll_ends_when_enough_has_come_when_its_time_is_over_and_when_the_topic_goes(
    make: Make,
) -> None:
    bench = make(topic("one"))
    enough, late, gone, writer = (bench.client() for _ in range(4))
    enough.send(fetch("one", wait_ms=60_000, min_bytes=150))
    gone.send(fetch("one", wait_ms=60_000, min_bytes=1 << 20))
    writer.send(produce_request({"one": {0: batch(b"x" * 20)}}))
    writer.wait(1)
    settle(bench, enough)
    assert not enough.frames()
    late.send(fetch("one", wait_ms=20, min_bytes=1 << 20))
    writer.send(produce_request({"one": {0: batch(b"x" * 20)}}))
    assert len(fetched(enough.wait(1)[0]).records) >= 150
    assert fetched(late.wait(1)[0]).records
    assert not gone.frames()
    bench.publish(catalog())
    assert fetched(gone.wait(1)[0]).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("logs", [1, 2])  # A shard of one log has the kernel answer.
@pytest.mark.parametrize("min_bytes", [1, 60])
def test_a_poll_hears_of_a_topic_that_is_created_again_while_it_waits(
    make: Make, logs: int, min_bytes: int
) -> None:
    bench = make(topic("one"), logs=logs)
    reader, writer = bench.client(), bench.client()
    reader.send(fetch("one", wait_ms=60_000, min_bytes=min_bytes))
    new, heir, more = (
        topic("one", range(5, 6)),
        topic("heir", range(9, 10)),
        topic("m", range(3, 4)),
    )
    for topics in ([topic("one"), more], [heir, new, more]):  # They get free rows in this order.
        settle(bench, reader)
        bench.publish(catalog(*topics))
    settle(bench, reader)
    slots = bench.shard.logs[0].partitions.slots
    assert slots[9] == 0, "it has the place that the poll stood at"
    writer.send(produce_request({"heir": {0: batch(b"x")}}))
    writer.wait(1)
    settle(bench, reader)
    assert not reader.frames()
    bench.server.polls.invariants()
    writer.send(produce_request({"one": {0: batch(b"new")}}))
    assert b"new" in bytes(fetched(reader.wait(1)[0]).records)
    bench.server.polls.invariants()


def test_a_poll_whose_client_is_gone_leaves_nothing_behind(make: Make) -> None:
    bench = make(topic("one"))
    client, writer = bench.client(), bench.client()
    client.send(fetch("one", wait_ms=60_000))
    settle(bench)
    client.socket.close()
    turn_until(bench.loop, lambda: len(bench.server.clients) == 1)
    writer.send(produce_request({"one": {0: batch(b"x")}}))
    assert len(writer.wait(1)) == 1


@pytest.mark.slow
def test_a_slow_reader_gets_its_own_bytes_while_the_ring_and_the_wal_move_on(make: Make) -> None:
    """No foreign byte: payloads are tagged by topic, the WAL is recycled as it fills."""
    bench = make(topic("mine"), topic("other", range(2, 3)))
    writer, slow = bench.client(), bench.client(receive_bytes=4096)
    count = 200
    for i in range(count):
        writer.send(produce_request({"mine": {0: batch(b"MINE" * 200 * (1 + i % 7))}}))
    writer.wait(count)
    slow.send(fetch("mine"))
    settle(bench)
    log = bench.shard.logs[0]
    for i in range(2 * RING_BYTES // 20_000):
        writer.send(produce_request({"other": {0: batch(b"EVIL" * 5000)}}))
        writer.wait(count + i + 1)
        for led in bench.shard.led():
            log.sealing.advance(led.number, led.offsets().high_watermark, 0)
        log.checkpoint()
        slow.pull()
    slow.wait(1)
    assert not slow.is_closed
    records = bytes(fetched(slow.frames()[0]).records)
    assert b"EVIL" not in records
    assert records.count(b"MINE") == sum(200 * (1 + i % 7) for i in range(count))


def test_producers_are_slowed_when_space_is_short_and_others_are_not(make: Make) -> None:
    bench = make(topic("one"))
    log, producer, reader = bench.shard.logs[0], bench.client(), bench.client()
    log.words[WORD_SPACE_END] = log.tail + 40_000
    bench.shard.throttle.is_on = True
    producer.send(produce_request({"one": {0: batch(b"v" * 5000)}}))
    [first] = producer.wait(1)
    throttle_ms = decoded("Produce", 9, first).throttle_time_ms
    assert 500 <= throttle_ms <= 900
    sent_ms = monotonic_ms()
    producer.send(produce_request({"one": {0: batch(b"v")}}, correlation=2))
    reader.send(fetch("one"))
    assert fetched(reader.wait(1)[0]).records
    assert monotonic_ms() - sent_ms < throttle_ms
    assert not producer.frames()[1:]
    producer.wait(2)
    assert monotonic_ms() - sent_ms >= throttle_ms - 30
    bench.shard.throttle.is_on = False
    producer.send(produce_request({"one": {0: batch(b"v")}}, correlation=3))
    producer.wait(3)


def test_a_client_that_does_not_read_is_not_read_from_and_loses_nothing(make: Make) -> None:
    bench = make(topic("one"))
    writer, slow = bench.client(), bench.client(receive_bytes=65536)
    writer.send(produce_request({"one": {0: batch(b"x" * 10_000)}}))
    writer.wait(1)
    asked = 0
    unsent = b""
    for asked in range(1, 601):
        unsent += fetch("one", correlation=asked)
    taken = 0
    for _ in range(200):
        with suppress(BlockingIOError):
            taken += slow.socket.send(unsent[taken:])
        bench.turn(1)
    [connection] = [c for c in bench.server.clients.by_fd.values() if c.slots]
    assert connection.is_full
    assert len(connection.slots) <= 256

    def all_answered() -> bool:
        nonlocal taken
        with suppress(BlockingIOError):
            taken += slow.socket.send(unsent[taken:]) if taken < len(unsent) else 0
        slow.pull()
        while len(slow.received) >= 4:
            size = int.from_bytes(slow.received[:4])
            if len(slow.received) < 4 + size:
                break
            seen.append(int.from_bytes(slow.received[4:8]))
            slow.received = slow.received[4 + size :]
        return len(seen) == asked

    seen: list[int] = []
    turn_until(bench.loop, all_answered)
    assert seen == [*range(1, asked + 1)]


def test_when_asked_to_stop_it_answers_and_takes_no_more(make: Make) -> None:
    bench = make(topic("one"))
    waiting, idle = bench.client(), bench.client()
    waiting.send(fetch("one", wait_ms=60_000))
    settle(bench)
    bench.server.stop()
    assert len(waiting.wait(1)) == 1
    waiting.wait_closed()
    idle.wait_closed()
    assert len(bench.server.clients) == 0


def test_garbage_of_any_kind_does_no_harm(tmp_path: Path) -> None:
    bench = ServerBench(tmp_path, topic("one"))
    seeds = [versions(), fetch("one", wait_ms=5), produce_request({"one": {0: batch(b"x")}})]
    neighbour = bench.client()

    @settings(deadline=None, max_examples=60)
    @given(
        seed=st.sampled_from(seeds),
        at=st.floats(0, 1),
        noise=st.binary(max_size=40),
        rest=st.binary(max_size=40),
    )
    def harmless(seed: bytes, at: float, noise: bytes, rest: bytes) -> None:
        client = bench.client()
        cut = int(at * len(seed))
        client.send(seed[:cut] + noise + seed[cut + len(noise) :] + rest)
        settle(bench, client)
        client.socket.close()
        neighbour.received = b""
        neighbour.send(versions())
        assert len(neighbour.wait(1)) == 1
        turn_until(bench.loop, lambda: len(bench.server.clients) == 1)
        bench.shard.invariants()

    harmless()
    bench.close()


def test_requests_that_never_end_hold_no_more_than_their_bytes(make: Make) -> None:
    bench = make(topic("one"))
    unfinished = (1 << 20).to_bytes(4) + bytes(100)
    for _ in range(50):
        bench.client().send(unfinished)
    settle(bench)
    pool = bench.server._buffers
    assert pool._lent == 0
    held = sum(len(c.rest.copied) for c in bench.server.clients.by_fd.values())
    assert held == 50 * len(unfinished)


def test_parts_of_requests_are_bounded_together_and_the_slowest_pay(make: Make) -> None:
    bench = make(topic("one"))
    pool, part = bench.server._buffers, (1 << 20).to_bytes(4) + bytes(100_000)
    pool.bytes_max = 10 * BUFFER_BYTES
    slow, steady = bench.client(), bench.client()
    slow.send(part)
    settle(bench)
    [oldest] = (each for each in bench.server.clients.by_fd.values() if each.rest.held_bytes)
    for _ in range(20):
        bench.client().send(part)
        settle(bench)
        pool.invariants(bench.server.clients.by_fd.values())
        assert pool.held_bytes <= pool.bytes_max
    assert oldest.closed
    steady.send(produce_request({"one": {0: batch(bytes(50_000))}}))
    assert len(steady.wait(1)) == 1


def test_a_closing_connection_keeps_no_received_bytes(make: Make) -> None:
    bench = make(topic("one"))
    client = bench.client()
    client.send(fetch("one", wait_ms=60_000) + (2**31 - 1).to_bytes(4) + bytes(100_000))
    settle(bench)
    [connection] = bench.server.clients.by_fd.values()
    assert connection.is_closing
    client.send(bytes(8_000_000))
    settle(bench)
    assert not connection.closed
    assert (connection.rest.held_bytes, bench.server._buffers.held_bytes) == (0, 0)
