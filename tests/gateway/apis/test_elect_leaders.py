"""ElectLeaders: the only replica leads, so nothing is to be elected."""

from pathlib import Path

import pytest

from gateway.apis import elect_leaders
from smq.model.errors import ErrorCode
from smq.wire.generated.elect_leaders import ElectLeadersRequest, TopicPartitions as ElectedTopic
from tests.gateway.shard_api_bench import ShardBench
from tests.shard.shard_bench import topic

E = ErrorCode


@pytest.fixture
def bench(tmp_path: Path) -> ShardBench:
    return ShardBench(tmp_path, topic("t", range(1, 3)))


def elect(
    bench: ShardBench, topics: dict[str, list[int]] | None, version: int = 2, kind: int = 0
) -> tuple[int, dict[str, list[tuple[int, int]]]]:
    """The error, and index and error of each partition by topic."""
    asked = None
    if topics is not None:
        asked = [ElectedTopic(topic=name, partitions=each) for name, each in topics.items()]
    request = ElectLeadersRequest(election_type=kind, topic_partitions=asked)
    answer = bench.ask("ElectLeaders", version, request)
    return answer.error_code, {
        each.topic: [(row.partition_id, row.error_code) for row in each.partition_result]
        for each in answer.replica_election_results
    }


@pytest.mark.parametrize("version", range(3))
def test_no_election_is_needed(bench: ShardBench, version: int) -> None:
    rows = [(0, E.ELECTION_NOT_NEEDED), (1, E.ELECTION_NOT_NEEDED)]
    assert elect(bench, {"t": [0, 1]}, version) == (E.NONE, {"t": rows})


def test_a_missing_partition_gets_unknown_topic_or_partition(bench: ShardBench) -> None:
    unknown = E.UNKNOWN_TOPIC_OR_PARTITION
    rows = {"t": [(2, unknown), (-1, unknown)], "none": [(0, unknown)]}
    assert elect(bench, {"t": [2, -1], "none": [0]}) == (E.NONE, rows)


def test_of_all_partitions_none_has_an_election(bench: ShardBench) -> None:
    """Data fault 32: each topic is named, as Kafka does."""
    rows: dict[str, list[tuple[int, int]]] = {"t": []}
    rows |= {"__consumer_offsets": [], "__transaction_state": []}
    assert elect(bench, None) == (E.NONE, rows)


def test_all_of_many_topics_are_answered_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data fault 32: no step holds the loop."""
    monkeypatch.setattr(elect_leaders, "PART_TOPICS", 2)
    many = [topic(f"t{number}", range(number, number + 1)) for number in range(1, 6)]
    error, rows = elect(ShardBench(tmp_path, *many), None)
    assert error == E.NONE
    assert [*rows] == [each.name for each in many] + ["__consumer_offsets", "__transaction_state"]


def test_a_type_that_is_none_is_refused(bench: ShardBench) -> None:
    assert elect(bench, {"t": [0]}, kind=9) == (E.INVALID_REQUEST, {"t": [(0, E.INVALID_REQUEST)]})
