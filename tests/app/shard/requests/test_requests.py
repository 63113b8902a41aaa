"""Whole requests are taken in order, and a malformed one ends its connection."""

import itertools
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shm.kernels.base.words import WORD_SPACE_END
from smq.app.process.clock import monotonic_ms, replaced
from smq.model.client_quotas import CLIENT, PRODUCE, REQUEST_TIME, key_of
from smq.shard.led import Led
from smq.shard.produce import REQUESTS_MAX
from smq.shard.quotas import ClientLimits
from smq.wire.generated.find_coordinator import FindCoordinatorRequest
from smq.wire.generated.metadata import MetadataRequest
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
    HeldSyncer,
    batch,
    produce_request,
    responses,
    topic,
)
from tests.shard.transactional_bench import transactional_request

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


def python_steps(work: Callable[[], object]) -> int:
    """How many functions are called meanwhile."""
    count = 0

    def profile(_frame: object, event: str, _arg: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


BAD = {
    "a negative size": b"\xff\xff\xff\xff",
    "a size beyond the limit": b"\x7f\xff\xff\xff" + bytes(100),
    "an unknown key": (10).to_bytes(4) + (999).to_bytes(2) + bytes(8),
    "an unknown version": (10).to_bytes(4) + (3).to_bytes(2) + (99).to_bytes(2) + bytes(6),
    "a size of nothing": bytes(4),
    "a request of another world": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "Produce 0": (10).to_bytes(4) + bytes(10),
}


def test_answers_keep_the_order_of_the_requests(make: Make) -> None:
    bench = make(topic("one"), topic("safe", range(2, 3), DISK))
    log = bench.shard.logs[0]
    log.syncs.syncer = HeldSyncer(log.memory)
    client = bench.client()
    client.send(
        find_coordinator(1)
        + produce_request({"safe": {0: batch(b"s")}}, correlation=2)
        + fetch("one", wait_ms=60_000, correlation=3)
        + versions(4)
        + produce_request({"one": {0: batch(b"o")}}, correlation=5)
    )
    settle(bench, client)
    assert client.correlations() == []
    [(_, answered)] = bench.peers.relayed
    answered((1).to_bytes(4) + b"found")
    settle(bench, client)
    assert client.correlations() == [1]
    log.syncs.syncer.release()
    client.wait(5)
    assert client.correlations() == [1, 2, 3, 4, 5]
    assert fetched(client.frames()[2]).high_watermark == 1


@pytest.mark.parametrize("garbage", BAD.values(), ids=BAD)
def test_a_protocol_error_closes_its_connection_after_earlier_answers_and_no_other(
    make: Make, garbage: bytes
) -> None:
    bench = make()
    client, neighbour = bench.client(), bench.client()
    client.send(versions(1) + garbage)
    client.wait_closed()
    assert client.correlations() == [1]
    neighbour.send(request("Metadata", 12, MetadataRequest(topics=[])))
    assert len(neighbour.wait(1)) == 1


def test_many_small_produce_requests_are_taken_over_several_turns(make: Make) -> None:
    bench = make(topic("one"))
    client = bench.client()
    settle(bench, client)
    count = 6 * REQUESTS_MAX

    def taken() -> int:
        led = bench.shard.find(bench.shard.catalog.by_name["one"], 0)
        assert isinstance(led, Led)
        return led.offsets().log_end

    one = produce_request({"one": {0: batch(b"")}})
    client.send(one * count)
    offsets = [taken()]
    while offsets[-1] < count:
        bench.turn(1)
        offsets.append(taken())
    most = max(after - before for before, after in itertools.pairwise(offsets))
    assert most <= 3 * REQUESTS_MAX  # What comes in two pieces, and what is left of the second.
    assert len(client.wait(count)) == count


def test_python_s_steps_depend_on_wake_ups_and_not_on_requests_or_partitions(make: Make) -> None:
    bench = make(topic("one", range(1, 101)))
    client, steps, asked = bench.client(), list[int](), 0
    one = produce_request({"one": {0: batch(b"v")}})
    many = produce_request({"one": {i: batch(b"v") for i in range(100)}})
    for data, count in ((one * 3, 3), (one, 1), (one * 200, 200), (many * 2, 2)):
        assert client.socket.send(data) == len(data)
        steps.append(python_steps(lambda: bench.loop.run_once(0.5)))
        asked += count
        client.wait(asked)
    _, least, *others = steps  # The first time is like no other.
    assert max(others) < least + 40  # A segment may begin in any turn.


@pytest.mark.parametrize("step_ms", [-3_600_000, 3_600_000])
def test_a_quotas_throttle_time_does_not_depend_on_the_wall_clock(make: Make, step_ms: int) -> None:
    """Data fault 4: after an hour back each answer said 3,599,999 ms, and nobody was limited."""
    wall_ms = [1_700_000_000_000]
    with replaced(lambda: wall_ms[0] * 1_000_000, time.monotonic_ns):
        bench = make(topic("one"))
        bench.shard.quotas.take({key_of({CLIENT: None}): {PRODUCE: "100000.0"}})
        client, told = bench.client(), []
        for count in range(1, 4):
            client.send(produce_request({"one": {0: batch(b"x" * 104_000)}}))
            [*_, last] = client.wait(count)
            told += [each.throttle_time_ms for _, each in responses(len(last).to_bytes(4) + last)]
            wall_ms[0] += step_ms
    assert told[1] > 500, "the second one has to pay"
    assert max(told) < 5000


ONE = produce_request({"one": {0: batch(b"x" * 1000)}})
SMALL = produce_request({"one": {0: batch(b"")}})
UNKNOWN = produce_request({"unknown": {0: batch(b"x")}})
TRANSACTIONAL = transactional_request({"one": {0: batch(b"x" * 1000)}})
PIPELINED = {
    "ordinary": (ONE, 8),
    "more than a plan holds": (SMALL, 3 * REQUESTS_MAX),
    "transactional": (TRANSACTIONAL, 8),
    "of both kinds": (ONE + TRANSACTIONAL, 8),
    "with others between": (ONE + versions(2) + ONE, 8),
    "refused": (UNKNOWN, 8),
}


@pytest.mark.parametrize(("one", "count"), PIPELINED.values(), ids=PIPELINED)
def test_each_produce_request_is_charged_once(
    make: Make, monkeypatch: pytest.MonkeyPatch, one: bytes, count: int
) -> None:
    charged, produced = list[int](), ClientLimits.produced

    def noted(self: ClientLimits, byte_count: int, now_ms: int) -> int:
        charged.append(byte_count)
        return produced(self, byte_count, now_ms)

    monkeypatch.setattr(ClientLimits, "produced", noted)
    bench = make(topic("one"))
    bench.shard.quotas.take({key_of({CLIENT: None}): {PRODUCE: "1e9"}})
    client, answers = bench.client(), one.count(b"test") * count
    client.send(one * count)
    client.wait(answers)
    assert sum(charged) == len(one.replace(versions(2), b"")) * count


@pytest.mark.parametrize("one", [ONE, TRANSACTIONAL], ids=["ordinary", "transactional"])
def test_the_answer_says_the_quotas_throttle_time(make: Make, one: bytes) -> None:
    bench = make(topic("one"))
    bench.shard.quotas.take({key_of({CLIENT: None}): {PRODUCE: "1000.0"}})
    client = bench.client()
    client.send(one * 2 + SMALL[:-1])
    [first, *_] = client.wait(1)
    version = int.from_bytes(one[6:8])
    assert 0 < decoded("Produce", version, first).throttle_time_ms < 2 * len(one)


def test_the_time_of_a_produce_request_is_charged(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    charged = list[int]()

    def worked(_: ClientLimits, spent_ns: int, _now_ms: int) -> int:
        charged.append(spent_ns)
        return 0

    monkeypatch.setattr(ClientLimits, "worked", worked)
    bench = make(topic("one"))
    bench.shard.quotas.take({key_of({CLIENT: None}): {REQUEST_TIME: "1.0"}})
    client = bench.client()
    client.send(ONE[:-1])
    for _ in range(10):
        bench.loop.run_once(0)
    assert not charged, "a request that is not whole is free"
    client.send(ONE[-1:])
    client.wait(1)
    assert sum(charged) > 0


def test_a_quotas_wait_lasts_while_space_is_short(make: Make) -> None:
    """A mute of a millisecond, for the space, ended one of half a second."""
    bench = make(topic("one"))
    bench.shard.quotas.take({key_of({CLIENT: None}): {PRODUCE: "100000.0"}})
    bench.shard.throttle.is_on = True  # With so much left that it asks for nothing.
    client = bench.client()
    client.send(produce_request({"one": {0: batch(b"x" * 149_000)}}))
    [first] = client.wait(1)
    told_ms = decoded("Produce", 9, first).throttle_time_ms
    assert 400 < told_ms < 600
    sent_ms = monotonic_ms()
    client.send(SMALL)
    client.wait(2)
    assert monotonic_ms() - sent_ms > told_ms - 100


def test_only_what_is_taken_counts_while_space_is_short(make: Make) -> None:
    bench = make(topic("one"))
    log, client = bench.shard.logs[0], bench.client()
    log.words[WORD_SPACE_END] = log.tail + 1_000_000
    bench.shard.throttle.is_on = True
    long = produce_request({"one": {0: batch(b"x" * 50_000)}})
    client.send(ONE + long[:-1])
    [first] = client.wait(1)
    assert 4 <= decoded("Produce", 9, first).throttle_time_ms <= 6
