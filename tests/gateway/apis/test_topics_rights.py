"""What is told of topics to clients with few rights: each case was asked of Kafka 4.3.1."""

from pathlib import Path
from uuid import UUID

import pytest

from gateway.context import Relay
from smq.model.errors import ErrorCode
from smq.wire.generated.create_topics import CreatableTopic, CreateTopicsRequest
from smq.wire.generated.delete_topics import DeleteTopicsRequest, DeleteTopicState
from smq.wire.generated.metadata import MetadataRequest, MetadataRequestTopic
from tests.gateway.apis.rights import limit_caller, limited
from tests.gateway.coordinator_bench import CoordinatorBench
from tests.gateway.shard_api_bench import ShardBench
from tests.shard.shard_bench import topic

E = ErrorCode
DENIED = E.TOPIC_AUTHORIZATION_FAILED


def names(*topics: str, creates: bool = False) -> MetadataRequest:
    asked = [MetadataRequestTopic(name=each) for each in topics]
    return MetadataRequest(topics=asked, allow_auto_topic_creation=creates)


def test_a_name_that_may_not_be_described_is_refused_whether_or_not_it_exists(
    tmp_path: Path,
) -> None:
    bench = ShardBench(tmp_path, topic("a"), topic("b", range(2, 3)))
    limit_caller(bench, "alice", "READ TOPIC a", "DESCRIBE TOPIC no")
    answer = bench.ask("Metadata", 12, names("a", "b", "no", "nowhere"))
    found = {each.name: each.error_code for each in answer.topics}
    unknown = E.UNKNOWN_TOPIC_OR_PARTITION
    assert found == {"a": E.NONE, "b": DENIED, "no": unknown, "nowhere": DENIED}
    assert {each.name for each in answer.topics if each.partitions} == {"a"}


def test_an_id_that_may_not_be_described_has_no_name(tmp_path: Path) -> None:
    bench = ShardBench(tmp_path, topic("a"))
    limit_caller(bench, "alice")
    ids = [MetadataRequestTopic(name=None, topic_id=UUID(int=each)) for each in (1, 99)]
    answer = bench.ask("Metadata", 12, MetadataRequest(topics=ids))
    told = {each.topic_id.int: (each.name, each.error_code) for each in answer.topics}
    assert told == {1: (None, DENIED), 99: (None, E.UNKNOWN_TOPIC_ID)}


@pytest.mark.parametrize(
    ("right", "is_relayed"),
    [
        ("DESCRIBE TOPIC n", False),
        ("CREATE TOPIC n", False),
        ("WRITE TOPIC n,CREATE TOPIC n", True),
        ("WRITE TOPIC n,CREATE CLUSTER kafka-cluster", True),
    ],
)
def test_a_missing_topic_is_created_for_who_may_create_and_describe_it(
    tmp_path: Path, right: str, *, is_relayed: bool
) -> None:
    bench = ShardBench(tmp_path, topic("a"))
    limit_caller(bench, "alice", *right.split(","))
    answer = bench.ask("Metadata", 12, names("n", creates=True))
    assert isinstance(answer, Relay) == is_relayed
    assert is_relayed or [each.error_code for each in answer.topics] == [DENIED]


def test_the_coordinator_creates_only_what_the_client_may_create(bench: CoordinatorBench) -> None:
    limited(bench, "alice", "ALL TOPIC mine", "DESCRIBE TOPIC theirs")
    answer = bench.ask("Metadata", 12, names("mine", "theirs", creates=True))
    assert {each.name: each.error_code for each in answer.topics} == {
        "mine": E.NONE,
        "theirs": DENIED,
    }
    assert bench.coordinator.topics.catalog.find("theirs") is None


def test_a_creator_learns_the_configs_only_if_it_may_describe_them(bench: CoordinatorBench) -> None:
    limited(bench, "alice", "CREATE CLUSTER kafka-cluster", "DESCRIBE_CONFIGS TOPIC b")
    made = [CreatableTopic(name=each, num_partitions=1, replication_factor=1) for each in "ab"]
    answer = bench.ask("CreateTopics", 7, CreateTopicsRequest(topics=made))
    a, b = sorted(answer.topics, key=lambda each: str(each.name))
    assert (a.error_code, a.topic_config_error_code, a.num_partitions) == (E.NONE, DENIED, -1)
    assert not a.configs
    assert (b.error_code, b.topic_config_error_code, b.num_partitions) == (E.NONE, E.NONE, 1)
    assert b.configs


@pytest.mark.parametrize(
    ("rights", "by_name", "by_id"),
    [
        ("", (DENIED, "a"), (DENIED, None)),
        ("DESCRIBE TOPIC a", (DENIED, "a"), (DENIED, "a")),
        ("DELETE TOPIC a", (E.NONE, "a"), (E.NONE, "a")),
        ("DELETE CLUSTER kafka-cluster", (E.NONE, "a"), (E.NONE, "a")),
    ],
)
def test_a_topic_is_deleted_by_who_may_and_named_to_who_may_know_it(
    bench: CoordinatorBench,
    rights: str,
    by_name: tuple[int, str],
    by_id: tuple[int, str | None],
) -> None:
    limited(bench, "alice", rights)
    for asked_by_id in (False, True):
        bench.coordinator.topics.ensure(["a"], bench.now)
        found = bench.coordinator.topics.catalog.by_name["a"]
        state = DeleteTopicState(name="a")
        if asked_by_id:
            state = DeleteTopicState(name=None, topic_id=found.id)
        answer = bench.ask("DeleteTopics", 6, DeleteTopicsRequest(topics=[state]))
        [row] = answer.responses
        assert (row.error_code, row.name) == (by_id if asked_by_id else by_name)
        there = bench.coordinator.topics.catalog.find("a") is not None
        assert there == (row.error_code != E.NONE)
