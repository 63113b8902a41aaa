"""Partitions of internal topics: each API knows them where Metadata says that they are led."""

from pathlib import Path
from typing import Any

import pytest

import gateway
from gateway.context import Ask
from smq.model.errors import ErrorCode
from smq.wire.generated.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from smq.wire.generated.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from smq.wire.generated.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from smq.wire.generated.describe_producers import DescribeProducersRequest, TopicRequest
from smq.wire.generated.elect_leaders import ElectLeadersRequest, TopicPartitions
from smq.wire.generated.fetch import FetchPartition, FetchRequest, FetchTopic
from smq.wire.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from smq.wire.generated.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from smq.wire.generated.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from smq.wire.internal.messages import DescribeStorage, Storage
from tests.gateway.shard_api_bench import ShardBench
from tests.shard.shard_bench import topic

E = ErrorCode
TRANSACTIONS = "__transaction_state"
HERE, ELSEWHERE, NOWHERE = 0, 1, 50  # The other node leads partitions with odd numbers.
EPOCH = 7  # Of this node.
VERDICTS = [(HERE, E.NONE), (ELSEWHERE, E.NOT_LEADER_OR_FOLLOWER), (NOWHERE, 3)]


@pytest.fixture
def bench(tmp_path: Path) -> ShardBench:
    return ShardBench(tmp_path, topic("t"))


@pytest.mark.parametrize(("index", "error"), VERDICTS)
def test_no_producer_has_written_there(bench: ShardBench, index: int, error: int) -> None:
    """Data fault 32."""
    asked = [TopicRequest(name=TRANSACTIONS, partition_indexes=[index])]
    answer = bench.ask("DescribeProducers", 0, DescribeProducersRequest(topics=asked))
    [row] = answer.topics[0].partitions
    assert (row.error_code, row.active_producers) == (error, [])


@pytest.mark.parametrize(("index", "error"), VERDICTS)
def test_there_is_no_transaction_to_end(bench: ShardBench, index: int, error: int) -> None:
    """Data fault 32."""
    places = [WritableTxnMarkerTopic(name=TRANSACTIONS, partition_indexes=[index])]
    marker = WritableTxnMarker(
        producer_id=1, producer_epoch=0, transaction_result=False, topics=places
    )
    answer = bench.ask("WriteTxnMarkers", 1, WriteTxnMarkersRequest(markers=[marker]))
    assert answer.markers[0].topics[0].partitions[0].error_code == error


@pytest.mark.parametrize(
    ("index", "error"), [(HERE, E.ELECTION_NOT_NEEDED), (ELSEWHERE, 84), (NOWHERE, 3)]
)
def test_they_need_no_election(bench: ShardBench, index: int, error: int) -> None:
    """Data fault 32."""
    asked = [TopicPartitions(topic=TRANSACTIONS, partitions=[index])]
    answer = bench.ask("ElectLeaders", 2, ElectLeadersRequest(topic_partitions=asked))
    assert answer.replica_election_results[0].partition_result[0].error_code == error


@pytest.mark.parametrize(
    ("index", "replicas", "error"),
    [(HERE, [1], 0), (HERE, None, 85), (HERE, [2], 39), (ELSEWHERE, [2], 0), (NOWHERE, [1], 3)],
)
def test_they_stay_where_they_are(
    bench: ShardBench, index: int, replicas: list[int] | None, error: int
) -> None:
    """Data fault 32."""
    row = ReassignablePartition(partition_index=index, replicas=replicas)
    asked = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=TRANSACTIONS, partitions=[row])]
    )
    answer = bench.ask("AlterPartitionReassignments", 1, asked)
    assert answer.responses[0].partitions[0].error_code == error


def test_those_that_are_led_here_have_no_bytes(bench: ShardBench) -> None:
    """Data fault 32."""

    def sizes(topics: Any) -> dict[str, list[tuple[int, int]]]:
        ask = bench.ask("DescribeLogDirs", 4, DescribeLogDirsRequest(topics=topics))
        while isinstance(ask, Ask):
            [question] = ask.questions
            assert isinstance(question, DescribeStorage)
            ask = bench.read(ask.then([Storage([9] * len(question.numbers), 100, 50)]))
        return {
            each.name: [(row.partition_index, row.partition_size) for row in each.partitions]
            for each in ask.results[0].topics
        }

    named = [DescribableLogDirTopic(topic=TRANSACTIONS, partitions=[HERE, ELSEWHERE, NOWHERE])]
    assert sizes(named) == {TRANSACTIONS: [(HERE, 0)]}
    mine = [(index, 0) for index in range(0, 50, 2)]
    assert sizes(None) == {"t": [(0, 9)], "__consumer_offsets": mine, TRANSACTIONS: mine}


@pytest.mark.parametrize(
    ("claimed", "error"),
    [(-1, E.NONE), (7, E.NONE), (6, E.FENCED_LEADER_EPOCH), (8, E.UNKNOWN_LEADER_EPOCH)],
)
def test_an_epoch_is_checked(bench: ShardBench, claimed: int, error: ErrorCode) -> None:
    """Data fault 32."""
    place = ListOffsetsPartition(partition_index=0, timestamp=-1, current_leader_epoch=claimed)
    listed = ListOffsetsRequest(topics=[ListOffsetsTopic(name=TRANSACTIONS, partitions=[place])])
    [row] = bench.ask("ListOffsets", 5, listed).topics[0].partitions
    assert (row.error_code, row.leader_epoch) == (error, -1 if error else EPOCH)
    row = FetchPartition(partition=0, current_leader_epoch=claimed, partition_max_bytes=9)
    fetch = FetchRequest(
        max_wait_ms=0, max_bytes=9, topics=[FetchTopic(topic=TRANSACTIONS, partitions=[row])]
    )
    assert bench.ask("Fetch", 12, fetch).responses[0].partitions[0].error_code == error
    row = OffsetForLeaderPartition(partition=0, current_leader_epoch=claimed, leader_epoch=7)
    asked = [OffsetForLeaderTopic(topic=TRANSACTIONS, partitions=[row])]
    [row] = bench.ask("OffsetForLeaderEpoch", 4, OffsetForLeaderEpochRequest(topics=asked)).topics
    assert row.partitions[0].error_code == error


@pytest.mark.parametrize(
    ("epoch", "answer"), [(7, (7, 0)), (8, (-1, -1)), (-1, (-1, -1)), (3, (3, 0))]
)
def test_an_epoch_ends_where_it_began(
    bench: ShardBench, epoch: int, answer: tuple[int, int]
) -> None:
    """Data fault 32."""
    row = OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=epoch)
    asked = [OffsetForLeaderTopic(topic=TRANSACTIONS, partitions=[row])]
    [found] = bench.ask("OffsetForLeaderEpoch", 4, OffsetForLeaderEpochRequest(topics=asked)).topics
    [end] = found.partitions
    assert (end.leader_epoch, end.end_offset) == answer


def test_records_of_a_partition_that_is_not_there_cannot_be_deleted(bench: ShardBench) -> None:
    """Data fault 32."""
    rows = [DeleteRecordsPartition(partition_index=index, offset=-1) for index in (HERE, NOWHERE)]
    asked = [DeleteRecordsTopic(name=TRANSACTIONS, partitions=rows)]
    answer = bench.ask("DeleteRecords", 2, DeleteRecordsRequest(topics=asked))
    codes = [row.error_code for row in answer.topics[0].partitions]
    assert codes == [E.INVALID_TOPIC_EXCEPTION, E.UNKNOWN_TOPIC_OR_PARTITION]


def test_no_api_looks_among_the_topics_of_users_only() -> None:
    """Data fault 32: an API finds a topic by `find` or `find_by_id`, which know internal ones."""
    [root] = gateway.__path__
    sources = sorted(Path(root).rglob("*.py"))
    assert len(sources) > 50
    guilty = [
        each.name
        for each in sources
        if any(word in each.read_text() for word in ("catalog.by_name", "catalog.by_id"))
    ]
    assert not guilty
