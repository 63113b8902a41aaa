"""CreatePartitions: topics grow, keep their partitions, and refuse a count that is no increase."""

from typing import Any

import pytest

from gateway.apis import create_partitions
from smq.model.errors import ErrorCode
from smq.wire.generated.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from tests.gateway.coordinator_bench import CoordinatorBench
from tests.gateway.groups import make_topic

E = ErrorCode


def wanted_topic(
    name: str, count: int, assignments: list[CreatePartitionsAssignment] | None = None
) -> CreatePartitionsTopic:
    return CreatePartitionsTopic(name=name, count=count, assignments=assignments)


def create(
    bench: CoordinatorBench, *topics: CreatePartitionsTopic, version: int = 3, **fields: Any
) -> list[tuple[str, int]]:
    request = CreatePartitionsRequest(topics=topics, **fields)
    answer = bench.ask("CreatePartitions", version, request)
    return [(each.name, each.error_code) for each in answer.results]


@pytest.mark.parametrize("version", range(4))
def test_a_topic_grows_and_keeps_what_it_has(bench: CoordinatorBench, version: int) -> None:
    before = make_topic(bench, "t", 3)
    wanted = wanted_topic("t", 5)
    assert create(bench, wanted, version=version) == [("t", E.NONE)]
    after = bench.coordinator.topics.catalog.by_name["t"]
    assert (after.id, after.partition_count) == (before.id, 5)
    assert after.partition_numbers[:3] == before.partition_numbers
    assert after.logs[:3] == before.logs
    assert len(set(after.partition_numbers)) == 5
    bench.store.commit()
    bench.restart()
    assert bench.coordinator.topics.catalog.by_name["t"] == after


def test_new_partitions_stand_where_they_are_assigned(bench: CoordinatorBench) -> None:
    make_topic(bench, "t", 1)
    assigned = [CreatePartitionsAssignment(broker_ids=[node]) for node in (2, 2)]
    wanted = wanted_topic("t", 3, assigned)
    assert create(bench, wanted) == [("t", E.NONE)]
    topic = bench.coordinator.topics.catalog.by_name["t"]
    shards = bench.coordinator.config.shards
    assert [log % shards for log in topic.logs[1:]] == [1, 1]


def test_a_check_changes_nothing(bench: CoordinatorBench) -> None:
    topic = make_topic(bench, "t", 1)
    wanted = wanted_topic("t", 3)
    assert create(bench, wanted, validate_only=True) == [("t", E.NONE)]
    assert bench.coordinator.topics.catalog.by_name["t"] is topic


def test_a_request_adds_a_bounded_number_of_partitions(
    bench: CoordinatorBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(create_partitions, "PARTITIONS_PER_REQUEST_MAX", 5)
    make_topic(bench, "a", 1)
    make_topic(bench, "b", 1)
    most = wanted_topic("a", 6)
    one_more = wanted_topic("b", 2)
    answers = create(bench, most, one_more, validate_only=True)
    assert answers == [("a", E.NONE), ("b", E.POLICY_VIOLATION)]


def test_a_refused_increase_changes_nothing(bench: CoordinatorBench) -> None:
    topic = make_topic(bench, "t", 3)
    for count in (3, 2, -1):
        wanted = wanted_topic("t", count)
        assert create(bench, wanted) == [("t", E.INVALID_PARTITIONS)]
    assigned = wanted_topic("t", 5, [])
    assert create(bench, assigned) == [("t", E.INVALID_REPLICA_ASSIGNMENT)]
    twice = [wanted_topic("t", 9)] * 2
    unknown = wanted_topic("none", 9)
    assert create(bench, *twice, unknown) == [
        ("t", E.INVALID_REQUEST),
        ("none", E.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert bench.coordinator.topics.catalog.by_name["t"] is topic
