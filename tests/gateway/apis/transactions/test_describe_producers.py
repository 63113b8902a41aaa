"""DescribeProducers: a partition's facts about each producer, also for very many."""

from pathlib import Path
from typing import Any

import pytest

from gateway.apis.transactions.describe_producers import handle
from gateway.context import ShardContext
from smq.log import producers as producers_module
from smq.model.errors import ErrorCode
from smq.wire.generated.describe_producers import DescribeProducersRequest, TopicRequest
from smq.wire.headers import RequestHeader
from smq.wire.markers import Marker
from tests.gateway.shard_api_bench import ShardBench
from tests.shard.shard_bench import NOW, NOW_MS, topic
from tests.shard.transactional_bench import Producers

HEADER = RequestHeader(61, 0, 1, "test")
ME, OTHER = (7, 3), (9, 0)


@pytest.fixture
def bench(tmp_path: Path) -> ShardBench:
    return ShardBench(tmp_path, topic("one", range(1, 3)))


def describe(bench: ShardBench, *topics: tuple[str, list[int]]) -> Any:
    asked = [TopicRequest(name=name, partition_indexes=indexes) for name, indexes in topics]
    return bench.ask("DescribeProducers", 0, DescribeProducersRequest(topics=asked)).topics


def test_a_producer_is_described_by_its_last_batch_and_its_open_transaction(
    bench: ShardBench,
) -> None:
    producers = Producers(bench.shard)
    producers.write([b"a", b"b"], OTHER)
    producers.write([b"a", b"b"], ME)
    producers.write([b"c"], ME, sequence=2)
    [described] = describe(bench, ("one", [0, 1]))
    [first, second] = described.partitions
    assert second.active_producers == []
    [me] = [each for each in first.active_producers if each.producer_id == ME[0]]
    assert (me.producer_epoch, me.last_sequence, me.last_timestamp) == (3, 2, NOW_MS)
    assert (me.coordinator_epoch, me.current_txn_start_offset) == (-1, 2)


def test_after_its_marker_nothing_is_open_and_the_coordinator_is_known(bench: ShardBench) -> None:
    producers = Producers(bench.shard)
    producers.write([b"a"], ME)
    producers.end(1, Marker(*ME, True, 4))
    [described] = describe(bench, ("one", [0]))
    [me] = described.partitions[0].active_producers
    assert (me.last_sequence, me.coordinator_epoch, me.current_txn_start_offset) == (0, 4, -1)


def test_a_missing_partition_gets_an_error(bench: ShardBench) -> None:
    codes = {
        name: [each.error_code for each in partitions]
        for name, partitions in (
            (each.name, each.partitions)
            for each in describe(bench, ("one", [5]), ("two", [0]), ("a b", [0]), ("none", []))
        )
    }
    unknown = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    bad = [ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert codes == {"one": unknown, "two": unknown, "a b": bad, "none": []}


def test_a_large_table_is_searched_in_steps(
    bench: ShardBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producers_module, "ROWS_AT_ONCE", 10)
    producers, ids = Producers(bench.shard), range(100, 150)
    for producer_id in ids:
        producers.write([b"x"], (producer_id, 0))
    asked = [TopicRequest(name="one", partition_indexes=[1, 0])]
    steps = handle(DescribeProducersRequest(topics=asked), ShardContext(HEADER, bench.shard, NOW))
    assert [len(each.topics) for each in steps] == [0, 0, 0, 0, 1]
    [described] = describe(bench, ("one", [1, 0]))
    assert [each.producer_id for each in described.partitions[1].active_producers] == list(ids)


def test_very_many_producers_are_described_in_parts_of_one_answer(bench: ShardBench) -> None:
    producers = Producers(bench.shard)
    ids = range(100, 800)
    for producer_id in ids:
        producers.write([b"x"], (producer_id, 0))
    [described] = describe(bench, ("one", [1, 0]))
    assert [each.partition_index for each in described.partitions] == [1, 0]
    assert [each.producer_id for each in described.partitions[1].active_producers] == list(ids)
