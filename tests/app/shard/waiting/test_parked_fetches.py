"""Fetches that a kernel has parked, and what ends their wait in the loop."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from shm.kernels.turn.parked import NEVER_NS, PARKED_MAX
from shm.kernels.turn.words import PARKED
from smq.app.shard.waiting import parked_fetches as module
from smq.app.shard.waiting.parked_fetches import UNPARKED_A_TURN, ParkedFetches, ParkedTable
from smq.model.errors import ErrorCode
from tests.app.fake_peers import TidyLoop, turn_until
from tests.app.quick import DISK, Make, awaited, one
from tests.app.shard_client import (
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
    topic,
)
from tests.shm.kernels.turn.test_parked import SLOTS, add

MS = 1_000_000

pytestmark = pytest.mark.usefixtures("always_quick")


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    with benches(tmp_path, ServerBench) as make:
        yield make


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


def test_all_who_wait_in_the_kernel_look_again_in_later_turns(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "UNPARKED_A_TURN", 1)
    bench = make(topic("one"))
    clients = [bench.client() for _ in range(4)]
    for client in clients:
        client.send(fetch("one", wait_ms=60_000))
    turn_until(bench.loop, lambda: awaited(bench) == len(clients))
    bench.publish(catalog(topic("two", range(2, 3))))
    bench.turn(1)
    assert 0 < awaited(bench) < len(clients)
    closed, asks = clients[-1], clients[-2]
    closed.socket.close()
    asks.send(versions(2))  # It is taken over before its turn.
    assert fetched(asks.wait(2)[0]).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for client in clients[:2]:
        assert fetched(client.wait(1)[0]).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert awaited(bench) == 0
    bench.server.invariants()


def test_a_topic_that_is_made_anew_answers_who_waits_for_it_in_the_kernel(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its records go to another slot than the one that the kernel's table has."""
    monkeypatch.setattr(module, "UNPARKED_A_TURN", 1)
    bench = make(topic("one"))
    clients, writer = [bench.client() for _ in range(4)], bench.client()
    for client in clients:
        client.send(fetch("one", wait_ms=60_000))
    turn_until(bench.loop, lambda: awaited(bench) == len(clients))
    bench.publish(catalog(topic("two"), topic("one", range(2, 3))))
    writer.send(one(b"new"))
    for client in clients:
        assert b"new" in bytes(fetched(client.wait(1)[0]).records)


def test_a_bounded_part_of_those_who_wait_in_the_kernel_is_taken_over_a_turn() -> None:
    loop, table = TidyLoop(), ParkedTable(SLOTS)
    clients = np.full(PARKED_MAX, PARKED)
    taken: list[tuple[int, bool]] = []
    parked = ParkedFetches(
        loop, table, clients, lambda fd, fetch: taken.append((fd, fetch.is_outdated))
    )
    for fd in range(PARKED_MAX - 1):
        add(table.arrays, fd, b"x", [0])
    parked.look_again()
    counts = [0, len(taken)]
    add(table.arrays, PARKED_MAX - 1, b"x", [0])  # By the catalog of now.
    while len(table) > 1:
        parked.unpark(PARKED_MAX - 2)
        loop.run_once(0.01)
        counts.append(len(taken))
    steps = [after - before for before, after in pairwise(counts)]
    assert min(steps) > 0
    assert max(steps) <= UNPARKED_A_TURN + 1
    assert sorted(taken) == [(fd, True) for fd in range(PARKED_MAX - 1)]
    parked.unpark_all()
    assert taken[-1] == (PARKED_MAX - 1, False)
    loop.close()


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


@pytest.fixture
def parked() -> ParkedTable:
    """Three clients, of whom 5 and 7 wait for slot 2."""
    parked = ParkedTable(SLOTS)
    add(parked.arrays, 5, b"five", [2, 4], wait_ms=30)
    add(parked.arrays, 6, b"six", [0], wait_ms=10)
    add(parked.arrays, 7, b"seven", [1, 2, 3], wait_ms=20)
    return parked


def test_concerned_returns_the_fetches_that_wait_for_a_partition(parked: ParkedTable) -> None:
    assert sorted(parked.clients()) == [5, 6, 7]
    assert sorted(parked.concerned([2])) == [5, 7]
    assert parked.concerned([5]) == []  # Nobody: and no row has it by accident …
    assert parked.concerned([0]) == [6]  # … as an empty place has 0.
    assert sorted(parked.concerned([4, 3, 0])) == [5, 6, 7]


def test_a_taken_fetch_no_longer_waits(parked: ParkedTable) -> None:
    request, slots, due_ns, _ = parked.take(5)
    assert (bytes(request), slots, due_ns) == (b"five", [2, 4], 30 * MS)
    assert len(parked) == 2
    assert parked.concerned([4]) == []
    assert bytes(parked.take(7).request) == b"seven"
    assert parked.clients() == [6]


def test_those_who_are_due_are_named_and_then_when_the_next_one_is(parked: ParkedTable) -> None:
    assert parked.due_ns == 10 * MS
    assert parked.due(9 * MS) == []
    assert parked.due(20 * MS) == [6, 7]
    assert parked.due_ns == 30 * MS
    for fd in (5, 6, 7):
        parked.take(fd)
    assert parked.due(40 * MS) == []
    assert parked.due_ns == NEVER_NS
