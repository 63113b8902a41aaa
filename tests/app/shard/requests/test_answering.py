"""Answers that others know: the coordinator, and the sealer with its files."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from smq.app.shard.connections.connection import RELAYED_BYTES_MAX, RELAYED_MAX
from smq.log.files.background import BackgroundThread, InlineBackground
from smq.model.errors import ErrorCode
from smq.wire.generated.add_offsets_to_txn import AddOffsetsToTxnRequest
from smq.wire.generated.add_partitions_to_txn import AddPartitionsToTxnRequest
from smq.wire.generated.end_txn import EndTxnRequest
from smq.wire.generated.fetch import FetchPartition, FetchRequest, FetchTopic
from smq.wire.generated.find_coordinator import FindCoordinatorRequest
from smq.wire.generated.heartbeat import HeartbeatRequest
from smq.wire.generated.join_group import JoinGroupRequest
from smq.wire.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from smq.wire.generated.metadata import MetadataRequest
from smq.wire.generated.txn_offset_commit import TxnOffsetCommitRequest
from smq.wire.internal.form import Failed
from smq.wire.internal.reads import BatchFile, Cold
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
from tests.shard.shard_bench import NOW_MS, RING_BYTES, batch, produce_request, topic

Make = Callable[..., ServerBench]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    with benches(tmp_path, ServerBench) as make:
        yield make


def test_an_answer_of_the_coordinator_is_relayed_unchanged_and_once(make: Make) -> None:
    bench = make()
    client = bench.client()
    client.send(request("FindCoordinator", 3, FindCoordinatorRequest(coordinator_keys=["g"]), 7))
    settle(bench, client)
    [(asked, answered)] = bench.peers.relayed
    assert asked[4:8] == (7).to_bytes(4)
    assert client.frames() == []
    answered((7).to_bytes(4) + b"found")
    assert client.wait(1) == [(7).to_bytes(4) + b"found"]


def test_an_answer_to_someone_who_has_gone_is_dropped(make: Make) -> None:
    bench = make()
    client, neighbour = bench.client(), bench.client()
    client.send(request("FindCoordinator", 3, FindCoordinatorRequest(coordinator_keys=["g"]), 7))
    settle(bench, client)
    client.socket.close()
    turn_until(bench.loop, lambda: len(bench.server.clients) == 1)
    bench.peers.relayed[0][1]((7).to_bytes(4) + b"found")
    neighbour.send(versions())
    assert len(neighbour.wait(1)) == 1


def test_a_coordinator_that_dies_closes_who_waits_for_it(make: Make) -> None:
    bench = make()
    client, neighbour = bench.client(), bench.client()
    client.send(request("FindCoordinator", 3, FindCoordinatorRequest(coordinator_keys=["g"]), 1))
    settle(bench)
    bench.peers.relayed[0][1](b"")
    client.wait_closed()
    neighbour.send(versions())
    assert len(neighbour.wait(1)) == 1


def test_cold_records_come_from_the_sealer_s_file_and_its_silence_is_an_error(
    make: Make, tmp_path: Path
) -> None:
    bench = make(topic("one"))
    client = bench.client()
    client.send(produce_request({"one": {0: batch(b"x" * 30_000)}}))
    client.wait(1)
    log = bench.shard.logs[0]
    for _ in range(12):
        client.send(produce_request({"one": {0: batch(b"y" * 30_000)}}))
    client.wait(13)
    log.sealing.advance(1, 13, 0)
    log.checkpoint()
    (tmp_path / "cache").write_bytes(b"cold batches")
    client.send(fetch("one", correlation=20) + fetch("one", correlation=21))
    turn_until(bench.loop, lambda: len(bench.peers.asked) == 2)
    (command, found), (_, silent) = bench.peers.asked
    assert isinstance(command, Cold)
    assert (command.number, command.offset) == (1, 0)
    found(BatchFile(str(tmp_path / "cache"), at=5, length=7, next_offset=1))
    silent(Failed("it is away"))
    first, second = client.wait(15)[13:]
    assert bytes(fetched(first).records) == b"batches"
    assert fetched(second).error_code == ErrorCode.KAFKA_STORAGE_ERROR


def by_time(name: str, count: int) -> bytes:
    """A ListOffsets of a topic's first partitions by time."""
    asked = [ListOffsetsPartition(partition_index=i, timestamp=NOW_MS) for i in range(count)]
    topics = [ListOffsetsTopic(name=name, partitions=asked)]
    return request("ListOffsets", 7, ListOffsetsRequest(replica_id=-1, topics=topics))


def test_one_question_may_lead_to_the_next_many_times(make: Make) -> None:
    count = 400
    bench = make(topic("many", range(1, count + 1)))
    client = bench.client()
    client.send(produce_request({"many": {i: batch(b"x") for i in range(count)}}))
    client.wait(1)
    client.send(by_time("many", count))
    answer = decoded("ListOffsets", 7, client.wait(2)[1]).topics[0].partitions
    found = {(each.error_code, each.offset, each.timestamp) for each in answer}
    assert (len(answer), found) == (count, {(0, 0, NOW_MS)})


def test_a_client_that_leaves_during_a_search_by_time_does_not_delay_others(make: Make) -> None:
    bench = make(topic("one"))
    client, neighbour = bench.client(), bench.client()
    client.send(produce_request({"one": {0: batch(b"x")}}))
    client.wait(1)
    [log] = bench.shard.logs.values()
    log.background = BackgroundThread(lambda: None)
    client.send(by_time("one", 1))
    client.socket.close()
    turn_until(bench.loop, lambda: len(bench.server.clients) == 1)
    neighbour.send(by_time("one", 1))
    assert len(neighbour.wait(1)) == 1


MINE = b"MINE" * 7500


def write_past_the_ring(bench: ServerBench) -> None:
    """Two batches of topic `one`, which the ring has left, and others."""
    client = bench.client()
    for i in range(RING_BYTES // len(MINE) + 4):
        name = "one" if i < 2 else "other"
        client.send(produce_request({name: {0: batch(MINE)}}))
        client.wait(i + 1)
    [log] = bench.shard.logs.values()
    assert not log.in_ring(0)


def recycle(bench: ServerBench) -> None:
    """Everything is sealed: the WAL frees what nobody holds."""
    [log] = bench.shard.logs.values()
    for led in bench.shard.led():
        log.sealing.advance(led.number, led.offsets().high_watermark, 0)
    log.checkpoint()


class Recycling(InlineBackground):
    """A checkpoint that is ready at a turn's end, when the turn has found what it will send."""

    def __init__(self, bench: ServerBench) -> None:
        self._bench = bench

    def collect(self) -> int:
        recycle(self._bench)
        return 1


def test_a_segment_lent_in_a_turn_is_not_recycled_in_that_turn(make: Make) -> None:
    bench = make(topic("one"), topic("other", range(2, 3)))
    write_past_the_ring(bench)
    [log] = bench.shard.logs.values()
    reader = bench.client()
    log.background = Recycling(bench)
    reader.send(fetch("one"))
    assert bytes(fetched(reader.wait(1)[0]).records).count(MINE) == 2
    recycle(bench)
    assert log.wal.find(0) is None


def test_a_segment_lent_to_an_answer_behind_an_open_one_is_not_recycled(make: Make) -> None:
    bench = make(topic("one"), topic("other", range(2, 3)))
    write_past_the_ring(bench)
    reader = bench.client()
    reader.send(
        request("FindCoordinator", 3, FindCoordinatorRequest(coordinator_keys=["g"]), 7)
        + fetch("one")
    )
    settle(bench, reader)
    recycle(bench)
    bench.peers.relayed[0][1]((7).to_bytes(4) + b"found")
    assert bytes(fetched(reader.wait(2)[1]).records).count(MINE) == 2


def fetch_of(*names: str) -> bytes:
    """A Fetch of topics from their beginnings."""
    partition = FetchPartition(partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic=name, partitions=[partition]) for name in names]
    return request("Fetch", 12, FetchRequest(max_bytes=1 << 20, topics=topics))


def test_a_segment_lent_to_an_answer_that_waits_for_the_sealer_is_not_recycled(
    make: Make, tmp_path: Path
) -> None:
    bench = make(topic("one"), topic("other", range(2, 3)), topic("cold", range(3, 4)))
    bench.shard.logs[0].sealing.advance(3, 8, 0)
    write_past_the_ring(bench)
    reader = bench.client()
    reader.send(fetch_of("one", "cold"))
    turn_until(bench.loop, lambda: bool(bench.peers.asked))
    recycle(bench)
    (tmp_path / "cache").write_bytes(b"cold batches")
    [(_, found)] = bench.peers.asked
    found(BatchFile(str(tmp_path / "cache"), at=5, length=7, next_offset=1))
    assert bytes(fetched(reader.wait(1)[0]).records).count(MINE) == 2


def test_an_answer_that_cannot_be_given_holds_nothing(make: Make) -> None:
    bench = make(topic("bad"), topic("one", range(2, 3)), topic("cold", range(3, 4)))
    bench.shard.logs[0].sealing.advance(3, 8, 0)
    client = bench.client()
    client.send(produce_request({"bad": {0: batch(b"small")}}))
    for i in range(RING_BYTES // len(MINE) + 4):
        client.send(produce_request({"one": {0: batch(MINE)}}))
        client.wait(i + 2)
    [log] = bench.shard.logs.values()
    with log.wal.segments[0].path.open("r+b") as file:
        file.seek(file.read(4096).index(b"small"))
        file.write(b"other")
    client.send(fetch_of("bad", "one", "cold"))
    turn_until(bench.loop, lambda: bool(bench.peers.asked))
    bench.peers.asked[0][1](Failed("it is away"))
    client.wait_closed()
    assert all(segment.pins == segment.loans == 0 for segment in log.wal.segments)


# --- what one client may cost others -------------------------------------------------------------


def find(*keys: str, correlation: int = 1) -> bytes:
    asked = FindCoordinatorRequest(coordinator_keys=list(keys))
    return request("FindCoordinator", 4, asked, correlation)


def test_one_client_has_few_requests_at_the_coordinator_and_others_are_not_held_up(
    make: Make,
) -> None:
    bench = make()
    flood, other = bench.client(), bench.client()
    for number in range(3 * RELAYED_MAX):
        flood.send(find("g", correlation=number))
    settle(bench, flood)
    assert len(bench.peers.relayed) == RELAYED_MAX
    other.send(find("h", correlation=99))
    settle(bench, flood, other)
    assert len(bench.peers.relayed) == RELAYED_MAX + 1
    while bench.peers.relayed:
        asked, answered = bench.peers.relayed.pop(0)
        answered(asked[4:8] + b"found")
        settle(bench, flood, other)
    assert other.correlations() == [99]
    assert flood.correlations() == list(range(3 * RELAYED_MAX))


def test_one_client_has_few_bytes_at_the_coordinator(make: Make) -> None:
    bench = make()
    client, long = bench.client(), find(*["k" * 30_000] * 12)
    assert 2 * len(long) < RELAYED_BYTES_MAX < 3 * len(long)
    for _ in range(5):
        client.send(long)
    settle(bench, client)
    assert sum(len(asked) for asked, _ in bench.peers.relayed) < RELAYED_BYTES_MAX + len(long)
    assert len(bench.peers.relayed) == 3


def join(correlation: int) -> bytes:
    return request("JoinGroup", 9, JoinGroupRequest(group_id="g", member_id="m"), correlation)


def heartbeat(correlation: int) -> bytes:
    return request("Heartbeat", 4, HeartbeatRequest(group_id="g", member_id="m"), correlation)


def test_one_client_has_one_request_at_the_coordinator_whose_answer_may_be_large(
    make: Make,
) -> None:
    """A leader that asked eight times for the list of its group's members, of 4 MiB, and read none
    held all of them."""
    bench = make()
    client, other = bench.client(), bench.client()
    client.send(heartbeat(0) + join(1) + join(2) + heartbeat(3) + join(4))
    settle(bench, client)
    other.send(heartbeat(9))
    settle(bench, client, other)
    taken = []
    while bench.peers.relayed:
        taken.append([int.from_bytes(asked[4:8]) for asked, _ in bench.peers.relayed])
        asked, answered = bench.peers.relayed.pop(0)
        answered(asked[4:8] + b"found")
        settle(bench, client, other)
    assert taken[0] == [0, 1, 9]
    assert all(sum(number in {1, 2, 4} for number in numbers) <= 1 for numbers in taken)
    assert client.correlations() == list(range(5))
    assert other.correlations() == [9]


def test_later_requests_do_not_overtake_one_that_waits_for_the_end_of_a_transaction(
    make: Make,
) -> None:
    bench = make()
    client = bench.client()
    client.send(request("AddPartitionsToTxn", 4, AddPartitionsToTxnRequest(), 0))
    client.send(request("AddOffsetsToTxn", 3, AddOffsetsToTxnRequest(), 1))
    client.send(request("TxnOffsetCommit", 3, TxnOffsetCommitRequest(), 2))
    client.send(request("EndTxn", 3, EndTxnRequest(), 3) + heartbeat(4))
    taken = []
    for _ in range(5):
        settle(bench, client)
        taken.append([int.from_bytes(asked[4:8]) for asked, _ in bench.peers.relayed])
        asked, answered = bench.peers.relayed.pop(0)
        answered(asked[4:8] + b"done")
    assert taken == [[0], [1], [2], [3, 4], [4]]
    settle(bench, client)
    assert client.correlations() == list(range(5))


def test_a_client_that_leaves_while_it_waits_for_a_large_answer_is_gone(make: Make) -> None:
    bench = make()
    client = bench.client()
    client.send(join(1))
    settle(bench, client)
    assert len(bench.peers.relayed) == 1
    client.socket.close()
    turn_until(bench.loop, lambda: not bench.server.clients)


def test_a_request_that_is_too_large_for_its_api_closes_after_what_was_asked_before(
    make: Make,
) -> None:
    bench = make()
    client = bench.client()
    client.send(versions(5) + find(*["k" * 30_000] * 40))
    client.wait_closed()
    assert client.correlations() == [5]
    assert not bench.peers.relayed


# --- answers in parts ----------------------------------------------------------------------------

WIDE = 900


def all_topics(correlation: int = 1) -> bytes:
    return request("Metadata", 12, MetadataRequest(topics=None), correlation)


def wide_fetch(correlation: int, wait_ms: int = 20_000, count: int = WIDE) -> bytes:
    partitions = [FetchPartition(partition=i, partition_max_bytes=1000) for i in range(count)]
    asked = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        topics=[FetchTopic(topic="wide", partitions=partitions)],
    )
    return request("Fetch", 12, asked, correlation)


def test_a_large_answer_is_made_in_turns_and_others_are_served_meanwhile(make: Make) -> None:
    bench = make(topic("wide", range(1, WIDE + 1)))
    greedy, other = bench.client(), bench.client()
    greedy.send(b"".join(all_topics(number) for number in range(20)))
    bench.turn(1)
    other.send(versions(7))
    other.wait(1)
    greedy.pull()
    assert len(greedy.frames()) < 10, "it has not had more than its share"
    assert len(greedy.wait(20)) == 20
    assert greedy.correlations() == list(range(20))


def test_a_fetch_of_many_partitions_waits_for_any_of_them(make: Make) -> None:
    bench = make(topic("wide", range(1, WIDE + 1)))
    client, producer = bench.client(), bench.client()
    client.send(wide_fetch(3) + versions(4))
    settle(bench, client)
    turn_until(bench.loop, lambda: bool(bench.server.polls.watched.any()))
    assert client.frames() == [], "answers come in the order asked"
    producer.send(produce_request({"wide": {700: batch(b"come")}}))
    found, _ = client.wait(2)
    rows = decoded("Fetch", 12, found).responses[0].partitions
    assert [row.partition_index for row in rows if row.records] == [700]
    assert client.correlations() == [3, 4]
    assert not bench.server.polls.watched.any()


def test_damage_found_by_a_large_fetch_costs_that_client_its_connection(make: Make) -> None:
    """It ended the shard: only a fetch of few partitions expected it."""
    bench = make(topic("wide", range(1, WIDE + 1)))
    client, neighbour = bench.client(), bench.client()
    client.send(produce_request({"wide": {5: batch(b"small")}}))
    for i in range(RING_BYTES // len(MINE) + 4):
        client.send(produce_request({"wide": {4 - 4 * (i % 2): batch(MINE)}}))
        client.wait(i + 2)
    [log] = bench.shard.logs.values()
    with log.wal.segments[0].path.open("r+b") as file:
        file.seek(file.read(4096).index(b"small"))
        file.write(b"other")
    client.send(wide_fetch(3))
    client.wait_closed()
    assert all(segment.pins == segment.loans == 0 for segment in log.wal.segments)
    neighbour.send(wide_fetch(4))
    [found] = neighbour.wait(1)
    rows = decoded("Fetch", 12, found).responses[0].partitions
    assert {row.partition_index for row in rows if row.records} == {0}, "within its bounds"


def test_a_client_that_leaves_during_a_large_fetch_is_not_watched_for(make: Make) -> None:
    bench = make(topic("wide", range(1, WIDE + 1)))
    client = bench.client()
    client.send(wide_fetch(3))
    turn_until(bench.loop, lambda: bool(bench.server.polls.watched.any()))
    client.socket.close()
    turn_until(bench.loop, lambda: len(bench.server.clients) == 0)
    assert not bench.server.polls.watched.any()


def test_a_large_fetch_that_has_waited_its_time_is_answered(make: Make) -> None:
    bench = make(topic("wide", range(1, WIDE + 1)))
    client = bench.client()
    client.send(wide_fetch(3, wait_ms=50))
    [found] = client.wait(1)
    rows = decoded("Fetch", 12, found).responses[0].partitions
    assert len(rows) == WIDE
    assert not any(row.records for row in rows)


def test_a_large_request_that_is_malformed_closes_after_what_was_asked_before(make: Make) -> None:
    bench = make(topic("wide", range(1, WIDE + 1)))
    client = bench.client()
    good = wide_fetch(3)
    body = good[4:-20]
    client.send(versions(5) + len(body).to_bytes(4) + body)
    client.wait_closed()
    assert client.correlations() == [5]


def test_a_large_fetch_whose_partitions_move_while_it_is_read_is_answered_once(make: Make) -> None:
    bench = make(topic("wide", range(1, WIDE + 1)))
    client = bench.client()
    client.send(wide_fetch(3))
    turn_until(bench.loop, lambda: len(bench.server._replies.answering._steps) == 1)
    bench.turn(1)  # Some portions are read, the first partition with them.
    appended = bench.shard.logs[0].tail
    producer = bench.client()
    producer.send(produce_request({"wide": {0: batch(b"come")}}))
    turn_until(bench.loop, lambda: bench.shard.logs[0].tail > appended)
    [found] = client.wait(1)
    rows = decoded("Fetch", 12, found).responses[0].partitions
    assert [row.partition_index for row in rows] == list(range(WIDE))
    assert [row.partition_index for row in rows if row.records] == [0]
    assert len(bench.server._replies.answering._steps) == 0
    client.send(versions(4))
    assert len(client.wait(2)) == 2
