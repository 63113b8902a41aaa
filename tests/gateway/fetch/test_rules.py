"""Wrong topics, offsets, epochs and limits of a fetch."""

from pathlib import Path

import pytest

from smq.model.catalog import INTERNAL_TOPICS
from smq.model.errors import ErrorCode
from smq.wire.generated.fetch import (
    FetchPartition,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from tests.gateway.fetch.asking import (
    fetch,
    new_bench,
    offsets,
    row,
    wanted,
)
from tests.gateway.shard_api_bench import EPOCH, ShardBench


@pytest.fixture
def bench(tmp_path: Path) -> ShardBench:
    return new_bench(tmp_path)


@pytest.mark.parametrize(("offset", "is_there"), [(-1, False), (0, True), (6, True), (7, False)])
def test_offsets_outside_of_the_log_are_out_of_range(
    bench: ShardBench, offset: int, is_there: bool
) -> None:
    data = row(bench.ask("Fetch", 12, fetch(wanted(fetch_offset=offset))))
    error = ErrorCode.NONE if is_there else ErrorCode.OFFSET_OUT_OF_RANGE
    assert data.error_code == error
    assert data.high_watermark == (6 if is_there else -1)


def test_an_offset_below_the_log_start_is_out_of_range(bench: ShardBench) -> None:
    bench.shard.logs[0].sealing.set_log_start(1, 3)
    assert row(bench.ask("Fetch", 12, fetch(wanted(fetch_offset=2)))).error_code == 1
    data = row(bench.ask("Fetch", 12, fetch(wanted(fetch_offset=3))))
    assert (data.error_code, data.log_start_offset, offsets(data)) == (0, 3, [3, 4, 5])


@pytest.mark.parametrize(
    ("asked", "error", "told"),
    [
        (wanted(fetch_offset=9), ErrorCode.OFFSET_OUT_OF_RANGE, None),
        (wanted(current_leader_epoch=99), ErrorCode.UNKNOWN_LEADER_EPOCH, None),
        (wanted("none"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []),
        (wanted(), ErrorCode.NONE, []),
    ],
)
def test_a_refused_partition_tells_no_aborted_transactions_unless_it_is_unknown(
    bench: ShardBench, asked: FetchTopic, error: ErrorCode, told: list[object] | None
) -> None:
    """As Kafka does, also to who reads committed records."""
    data = row(bench.ask("Fetch", 11, fetch(asked, isolation_level=1)))
    assert (data.error_code, data.aborted_transactions) == (error, told)


@pytest.mark.parametrize(
    ("epoch", "error"), [(-1, 0), (EPOCH, 0), (EPOCH - 1, 74), (EPOCH + 1, 75)]
)
def test_the_leader_epoch_a_client_believes_in_is_checked(
    bench: ShardBench, epoch: int, error: int
) -> None:
    data = row(bench.ask("Fetch", 9, fetch(wanted(current_leader_epoch=epoch))))
    assert data.error_code == error


def test_a_fetch_from_a_truncated_epoch_returns_the_diverging_epoch(bench: ShardBench) -> None:
    def ask(epoch: int) -> PartitionData:
        return row(bench.ask("Fetch", 12, fetch(wanted(fetch_offset=6, last_fetched_epoch=epoch))))

    assert ask(EPOCH).diverging_epoch is None
    assert ask(EPOCH + 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    cut = ask(EPOCH - 1).diverging_epoch
    assert cut is not None
    assert (cut.epoch, cut.end_offset) == (EPOCH - 1, 0)


@pytest.mark.parametrize(
    ("version", "error"),
    [(12, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (13, ErrorCode.UNKNOWN_TOPIC_ID)],
)
def test_topics_are_names_before_13_and_ids_from_there(
    bench: ShardBench, version: int, error: ErrorCode
) -> None:
    assert row(bench.ask("Fetch", version, fetch(wanted("none")))).error_code == error
    known = row(bench.ask("Fetch", version, fetch(wanted("t"))))
    assert known.error_code == ErrorCode.NONE


def test_a_topic_twice_is_one_row_and_the_last_of_a_partition_counts(bench: ShardBench) -> None:
    twice = wanted(fetch_offset=99), wanted("u"), wanted(fetch_offset=4), FetchTopic(topic="none")
    response = bench.ask("Fetch", 12, fetch(*twice))
    assert [each.topic for each in response.responses] == ["t", "u"]
    assert offsets(response.responses[0].partitions[0]) == [4, 5]


@pytest.mark.parametrize("version", [12, 15])
def test_a_followers_fetch_gets_not_leader_or_follower(bench: ShardBench, version: int) -> None:
    who = ReplicaState(replica_id=2)
    data = row(bench.ask("Fetch", version, fetch(wanted(), replica_state=who)))
    assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_impossible_limits_and_isolation_levels_are_unknown_server_errors(
    bench: ShardBench,
) -> None:
    answers = [
        row(bench.ask("Fetch", 12, fetch(wanted(), max_bytes=-1))),
        row(bench.ask("Fetch", 12, fetch(wanted(partition_max_bytes=-1)))),
        bench.ask("Fetch", 12, fetch(wanted(), isolation_level=2)),
    ]
    assert {each.error_code for each in answers} == {ErrorCode.UNKNOWN_SERVER_ERROR}


@pytest.mark.parametrize("version", [4, 12, 13, 18])
def test_an_internal_topic_is_empty(bench: ShardBench, version: int) -> None:
    topic = INTERNAL_TOPICS["__consumer_offsets"]
    asked = wanted(topic.name, FetchPartition(partition=48), topic_id=topic.id)
    data = row(bench.ask("Fetch", version, fetch(asked)))
    assert (data.error_code, data.high_watermark, data.records) == (0, 0, b"")
    behind = FetchPartition(partition=48, fetch_offset=1)
    data = row(bench.ask("Fetch", version, fetch(wanted(topic.name, behind, topic_id=topic.id))))
    assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    beyond = FetchPartition(partition=50)
    data = row(bench.ask("Fetch", version, fetch(wanted(topic.name, beyond, topic_id=topic.id))))
    assert data.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
