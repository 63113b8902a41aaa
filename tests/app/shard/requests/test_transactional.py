"""Transactional produce over real sockets: it waits for the coordinator, in its place, alone."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from smq.model.errors import ErrorCode
from smq.shard.markers import end_transaction
from smq.wire.generated.fetch import PartitionData
from smq.wire.internal.form import Failed
from smq.wire.internal.transactions import AddPartitions
from smq.wire.markers import Marker
from smq.wire.records import read_batches
from tests.app.fake_peers import turn_until
from tests.app.shard_client import ServerBench, benches, fetch, fetched, versions
from tests.shard.shard_bench import NOW, batch, produce_request, topic
from tests.shard.transactional_bench import errors_of, transactional_batch, transactional_request

Make = Callable[..., ServerBench]
PRODUCER = (7, 0)
NUMBER = 1


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    with benches(tmp_path, ServerBench) as make:
        yield make


def transactional(value: bytes, sequence: int = 0, correlation: int = 1, acks: int = -1) -> bytes:
    records = transactional_batch(value, producer=PRODUCER, sequence=sequence)
    data = {"one": {0: records}}
    return transactional_request(data, correlation=correlation, acks=acks)


def with_size(frame: bytes) -> bytes:
    return len(frame).to_bytes(4) + frame


def wait_for_question(bench: ServerBench) -> tuple[AddPartitions, Callable[[object], None]]:
    turn_until(bench.loop, lambda: bool(bench.peers.asked_coordinator))
    question, answered = bench.peers.asked_coordinator.pop()
    assert isinstance(question, AddPartitions)
    return question, answered


def end(bench: ServerBench, *, committed: bool) -> None:
    marker = Marker(*PRODUCER, committed, coordinator_epoch=0)
    end_transaction(bench.shard, NUMBER, marker, 1, NOW)
    bench.turn()


def committed(bench: ServerBench, offset: int = 0) -> PartitionData:
    """What a read_committed fetch gives."""
    client = bench.client()
    client.send(fetch("one", offset=offset, isolation_level=1))
    [frame] = client.wait(1)
    found: PartitionData = fetched(frame)
    return found


def test_a_first_batch_waits_for_the_coordinator_and_what_follows_waits_behind(make: Make) -> None:
    bench = make(topic("one"))
    client, other = bench.client(), bench.client()
    client.send(transactional(b"a") + transactional(b"b", 1, correlation=2) + versions(3))
    question, answered = wait_for_question(bench)
    assert question == AddPartitions("t", *PRODUCER, [NUMBER], 0)
    other.send(produce_request({"one": {0: batch(b"of another")}}))
    other.wait(1)
    assert client.frames() == []
    answered([0])
    frames = client.wait(3)
    assert client.correlations() == [1, 2, 3]
    assert [errors_of(with_size(each)) for each in frames[:2]] == [[(0, 1)], [(0, 2)]]
    assert bench.peers.asked_coordinator == [], "it is open by then"


def test_readers_of_committed_records_wait_for_the_marker_and_skip_what_was_aborted(
    make: Make,
) -> None:
    bench = make(topic("one"))
    client = bench.client()
    client.send(transactional(b"a"))
    wait_for_question(bench)[1]([0])
    client.wait(1)
    found = committed(bench)
    assert (found.high_watermark, found.last_stable_offset, found.records) == (1, 0, b"")
    waiting = bench.client()
    waiting.send(fetch("one", isolation_level=1, wait_ms=30_000))
    bench.turn()
    assert waiting.frames() == []
    end(bench, committed=False)
    [frame] = waiting.wait(1)
    found = fetched(frame)
    assert found.last_stable_offset == 2
    assert found.aborted_transactions is not None
    [aborted] = found.aborted_transactions
    assert (aborted.producer_id, aborted.first_offset) == (PRODUCER[0], 0)
    first, marker = read_batches(found.records)
    assert first.is_transactional
    assert marker.is_control
    assert committed(bench, 2).aborted_transactions == []


def test_a_batch_behind_a_refused_first_batch_is_refused(
    make: Make,
) -> None:
    """The coordinator has let the question wait. The second batch must not take the place of the
    first, by then complete or not."""
    bench = make(topic("one"))
    client = bench.client()
    client.send(transactional(b"a") + transactional(b"b", 1, correlation=2))
    wait_for_question(bench)[1]([int(ErrorCode.CONCURRENT_TRANSACTIONS)])
    wait_for_question(bench)[1]([0])
    client.send(transactional(b"a", correlation=3) + transactional(b"b", 1, correlation=4))
    wait_for_question(bench)[1]([0])
    assert [errors_of(with_size(each)) for each in client.wait(4)] == [
        [(ErrorCode.CONCURRENT_TRANSACTIONS, -1)],
        [(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)],
        [(0, 0)],
        [(0, 1)],
    ]


def test_without_acks_nothing_is_answered_and_the_next_request_is(make: Make) -> None:
    bench = make(topic("one"))
    client = bench.client()
    client.send(transactional(b"a", acks=0) + versions(2))
    wait_for_question(bench)[1]([0])
    client.wait(1)
    assert client.correlations() == [2]


def test_without_acks_a_failure_closes_the_connection(make: Make) -> None:
    bench = make(topic("one"))
    client = bench.client()
    client.send(transactional(b"a", acks=0))
    wait_for_question(bench)[1](Failed("the coordinator is gone"))
    client.wait_closed()


def test_a_client_that_leaves_during_the_coordinators_check_harms_no_partition(make: Make) -> None:
    bench = make(topic("one"))
    client = bench.client()
    client.send(transactional(b"a"))
    _, answered = wait_for_question(bench)
    client.socket.close()
    answered([0])
    turn_until(bench.loop, lambda: not len(bench.server.clients))
    led = bench.shard.by_number(NUMBER)
    assert led is not None
    assert (led.offsets().last_stable, led.offsets().log_end) == (0, 1)
    assert bench.shard.verifying == {}


def test_a_connection_that_was_closed_meanwhile_appends_nothing(make: Make) -> None:
    bench = make(topic("one"))
    bench.client().send(transactional(b"a"))
    _, answered = wait_for_question(bench)
    for connection in list(bench.server.clients.by_fd.values()):
        connection.close()
    answered([0])
    bench.turn()
    led = bench.shard.by_number(NUMBER)
    assert led is not None
    assert led.offsets().log_end == 0
    assert bench.shard.verifying == {}
