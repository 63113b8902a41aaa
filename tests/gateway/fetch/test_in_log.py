"""Readers of committed records see exactly those, and are told few aborted transactions."""

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from gateway.fetch import answer, handle_search
from smq.model.errors import ErrorCode
from smq.wire.generated.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from smq.wire.generated.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from smq.wire.markers import Marker, read_marker
from smq.wire.records import read_batches
from tests.gateway.shard_api_bench import ShardBench
from tests.shard.shard_bench import batch, topic
from tests.shard.transactional_bench import Producers, transactional_batch, transactional_request

NUMBER, COUNT_MAX, ALL_BYTES = 1, 5, 1 << 20
COMMITTED = 1


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ShardBench:
    monkeypatch.setattr(answer, "ABORTED_MAX", COUNT_MAX)
    return ShardBench(tmp_path, topic("one", range(1, 4)))


def written(bench: ShardBench, producer_count: int, seed: int) -> list[bytes]:
    """Transactions of producers that are at work side by side; the values that are committed."""
    producers, chance = Producers(bench.shard), Random(seed)
    sequences = dict.fromkeys(range(producer_count), 0)
    opened: dict[int, list[tuple[int, bytes]]] = {}
    committed: list[tuple[int, bytes]] = []
    for turn in range(4 * producer_count):
        own = chance.randrange(producer_count) if turn >= producer_count else turn
        if own in opened and chance.random() < 0.5:
            commits = chance.random() < 0.3
            producers.end(NUMBER, Marker(own, 0, commits, 1))
            committed += opened.pop(own) if commits else []
            opened.pop(own, None)
        else:
            value = b"%d of %d" % (turn, own)
            offset = producers.write([value], (own, 0), sequences[own])
            sequences[own] += 1
            opened.setdefault(own, []).append((offset, value))
    for own, rows in opened.items():
        producers.end(NUMBER, Marker(own, 0, own % 2 == 0, 1))
        committed += rows if own % 2 == 0 else []
    return [value for _, value in sorted(committed)]


def asked(bench: ShardBench, offset: int, bytes_max: int) -> PartitionData:
    partition = FetchPartition(fetch_offset=offset, partition_max_bytes=bytes_max)
    request = FetchRequest(
        topics=[FetchTopic(topic="one", partitions=[partition])],
        isolation_level=COMMITTED,
        max_bytes=bytes_max,
    )
    [response] = bench.ask("Fetch", 12, request).responses
    return response.partitions[0]  # type: ignore[no-any-return]


def read(data: PartitionData) -> Iterator[tuple[int, list[bytes]]]:
    """What a client makes of an answer, as Kafka's does: the offset after a batch, its values."""
    told = sorted(data.aborted_transactions or (), key=lambda each: each.first_offset)
    is_aborted: set[int] = set()
    records: Any = data.records
    for each in read_batches(records):
        while told and told[0].first_offset <= each.last_offset:
            is_aborted.add(told.pop(0).producer_id)
        values: list[bytes] = []
        if each.is_control:
            if not read_marker(each).committed:
                is_aborted.discard(each.producer_id)
        elif each.producer_id not in is_aborted:
            values = [record.value or b"" for record in each.records()]
        yield each.last_offset + 1, values


@pytest.mark.parametrize("bytes_max", [1, 300, ALL_BYTES])
@pytest.mark.parametrize("producer_count", [2, 5, 40])
def test_read_committed_returns_committed_records_and_few_aborted_transactions(
    bench: ShardBench, producer_count: int, bytes_max: int
) -> None:
    """data fault 14: all that overlapped were told, however little was read."""
    expected = written(bench, producer_count, seed=producer_count)
    offset, found = 0, list[bytes]()
    for _ in range(20 * producer_count):
        data = asked(bench, offset, bytes_max)
        for end, values in read(data):
            offset, found = end, found + values
        assert len(data.aborted_transactions or ()) <= COUNT_MAX
    assert offset == data.high_watermark
    assert found == expected


def test_an_aborted_transaction_is_listed_from_the_first_batch_of_the_answer(
    bench: ShardBench,
) -> None:
    """Data fault 29, its other side: records were deleted up to the middle of its first batch. It
    was told from there on; librdkafka, which looks at where a batch begins, showed the rest."""
    producers = Producers(bench.shard)
    producers.write([b"a", b"b", b"c"], (0, 0))
    rows = [DeleteRecordsPartition(partition_index=0, offset=1)]
    deletion = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="one", partitions=rows)])
    bench.ask("DeleteRecords", 2, deletion)
    producers.end(NUMBER, Marker(0, 0, False, 1))
    data = asked(bench, 1, ALL_BYTES)
    records: Any = data.records
    first = next(read_batches(records))
    assert first.base_offset == 0
    assert [each.first_offset for each in data.aborted_transactions or ()] == [0]


def left_by_the_ring(bench: ShardBench) -> list[bytes]:
    """What is committed; the WAL has all of it, the ring nothing."""
    expected = written(bench, 40, seed=1)
    log = bench.shard.logs[0]
    while log.in_ring(log.wal.segments[0].start):
        bench.appender.append("one", 2, batch(bytes(20_000)))
    return expected


def test_few_aborted_transactions_are_listed_for_batches_that_left_the_ring(
    bench: ShardBench,
) -> None:
    """data fault 14: 32,000 over one batch were all told, in one step. The WAL says whose it is."""
    expected = left_by_the_ring(bench)
    offset, found = 0, list[bytes]()
    for _ in range(200):
        data = asked(bench, offset, ALL_BYTES)
        assert len(data.aborted_transactions or ()) <= COUNT_MAX
        for end, values in read(data):
            offset, found = end, found + values
    assert found == expected


def test_a_batch_that_cannot_be_read_is_asked_for_again(bench: ShardBench) -> None:
    left_by_the_ring(bench)
    log = bench.shard.logs[0]
    for offset in range(60):  # Up to the first batch whose header is loaded.
        asked(bench, offset, ALL_BYTES)
        if bench.later_count:
            break
    os.truncate(log.wal.segments[0].path, 0)
    data = asked(bench, offset, ALL_BYTES)
    assert data.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert not data.records
    assert not data.aborted_transactions
    assert all(not segment.loans for segment in log.wal.segments)


def test_partitions_share_what_an_answer_tells(bench: ShardBench) -> None:
    producers = Producers(bench.shard)
    for index in range(3):
        for own in range(4):
            made = transactional_batch(b"aborted", producer=(own, 0))
            producers.send(transactional_request({"one": {index: made}}))
        for own in range(4):
            producers.end(index + 1, Marker(own, 0, committed=False, coordinator_epoch=1))
    partitions = [
        FetchPartition(partition=index, partition_max_bytes=ALL_BYTES) for index in range(3)
    ]
    request = FetchRequest(
        topics=[FetchTopic(topic="one", partitions=partitions)], isolation_level=COMMITTED
    )
    [response] = bench.ask("Fetch", 12, request).responses
    told = [len(each.aborted_transactions or ()) for each in response.partitions]
    assert sum(told) <= COUNT_MAX
    assert told[0] == 4
    assert [bool(each.records) for each in response.partitions] == [True, True, False]


@pytest.mark.parametrize("count", [2, 200])
def test_partitions_share_what_is_searched_for_handles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Topics that deliver inline are searched up to a bound, and then the answer goes out, whatever
    it was to wait for. 200 partitions are read in portions."""
    made = batch(bytes(500))
    monkeypatch.setattr(handle_search, "SEARCHED_BYTES_MAX", 3 * len(made))
    configs = {"smq.reference.delivery": "inline"}
    bench = ShardBench(tmp_path, topic("one", range(1, count + 1), configs))
    for index in (0, 0, count - 1, count - 1):
        bench.appender.append("one", index, made)
    partitions = [
        FetchPartition(partition=index, partition_max_bytes=ALL_BYTES) for index in range(count)
    ]
    topics = [FetchTopic(topic="one", partitions=partitions)]
    asked = FetchRequest(topics=topics, min_bytes=ALL_BYTES, max_wait_ms=500, max_bytes=ALL_BYTES)
    [response] = bench.ask("Fetch", 12, asked).responses
    given = {each.partition_index: len(each.records) for each in response.partitions}
    assert {at: size for at, size in given.items() if size} == {
        0: 2 * len(made),
        count - 1: len(made),
    }
