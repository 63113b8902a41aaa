"""CreateTopics: each topic is made, or has an error and a sentence of its own."""

from typing import Any

import pytest

from gateway.apis.create_topics import PART_NAMES
from smq.coordinator import config_room
from smq.coordinator.topics import PARTITIONS_PER_REQUEST_MAX
from smq.model.errors import ErrorCode
from smq.model.topic_configs import TOPIC_CONFIGS
from smq.wire.codec import ZERO_UUID
from smq.wire.generated.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tests.gateway.apis.rights import limited
from tests.gateway.coordinator_bench import CoordinatorBench

E = ErrorCode


def topic(name: str, **fields: Any) -> CreatableTopic:
    plain: dict[str, Any] = {"name": name, "num_partitions": 2, "replication_factor": 1}
    return CreatableTopic(**plain | fields)


def create(
    bench: CoordinatorBench, version: int, *topics: CreatableTopic, validate_only: bool = False
) -> list[Any]:
    request = CreateTopicsRequest(topics=topics, validate_only=validate_only)
    return list(bench.ask("CreateTopics", version, request).topics)


@pytest.mark.parametrize("version", range(2, 8))
def test_a_created_topic_is_described_in_the_answer(bench: CoordinatorBench, version: int) -> None:
    wanted = topic("t", configs=[CreatableTopicConfig(name="retention.ms", value="5")])
    [result] = create(bench, version, wanted)
    made = bench.coordinator.topics.catalog.by_name["t"]
    assert (result.name, result.error_code, result.error_message) == ("t", E.NONE, None)
    assert made.partition_count == 2
    assert result.topic_id == (made.id if version >= 7 else ZERO_UUID)
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (2, 1)
        configs = {each.name: (each.value, each.config_source) for each in result.configs}
        assert configs.keys() == TOPIC_CONFIGS.keys()
        assert configs["retention.ms"] == ("5", 1)
        assert configs["segment.bytes"] == ("1073741824", 5)


@pytest.mark.parametrize(
    ("bound", "code"), [("TOPIC", E.INVALID_CONFIG), ("LONG", E.POLICY_VIOLATION)]
)
def test_configs_that_take_too_much_of_the_catalog_are_refused_with_a_sentence(
    bench: CoordinatorBench, monkeypatch: pytest.MonkeyPatch, bound: str, code: int
) -> None:
    monkeypatch.setattr(config_room, f"{bound}_BYTES_MAX", 1000)
    configs = [CreatableTopicConfig(name="smq.key.columns", value="a" * 1300)]
    plain, large = create(bench, 5, topic("t"), topic("u", configs=configs))
    assert (plain.error_code, large.error_code) == (E.NONE, code)
    assert "1000 bytes" in large.error_message


def test_minus_one_is_the_brokers_default(bench: CoordinatorBench) -> None:
    [result] = create(bench, 5, topic("t", num_partitions=-1, replication_factor=-1))
    assert (result.num_partitions, result.replication_factor) == (1, 1)


def test_validating_makes_nothing(bench: CoordinatorBench) -> None:
    good, bad = create(bench, 7, topic("t"), topic("u", replication_factor=3), validate_only=True)
    assert (good.error_code, good.num_partitions) == (E.NONE, 2)
    assert bad.error_code == E.INVALID_REPLICATION_FACTOR
    assert bench.coordinator.topics.catalog.by_name == {}


def test_a_name_that_comes_twice_is_refused_once_and_last(bench: CoordinatorBench) -> None:
    results = create(bench, 7, topic("a"), topic("b"), topic("a"))
    assert [(each.name, each.error_code) for each in results] == [
        ("b", E.NONE),
        ("a", E.INVALID_REQUEST),
    ]
    assert results[1].error_message == "Duplicate topic name."
    assert set(bench.coordinator.topics.catalog.by_name) == {"b"}


def test_each_topic_has_an_error_and_a_sentence_of_its_own(bench: CoordinatorBench) -> None:
    create(bench, 7, topic("there"))
    results = create(
        bench,
        7,
        topic("there"),
        topic("a b"),
        topic("c", num_partitions=0),
        topic("d", replication_factor=0),
        topic("e", configs=[CreatableTopicConfig(name="nope", value="1")]),
        topic("f", assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[1])]),
        topic("fine"),
    )
    assert [each.error_code for each in results] == [
        E.TOPIC_ALREADY_EXISTS,
        E.INVALID_TOPIC_EXCEPTION,
        E.INVALID_PARTITIONS,
        E.INVALID_REPLICATION_FACTOR,
        E.INVALID_CONFIG,
        E.INVALID_REQUEST,
        E.NONE,
    ]
    assert all(each.error_message for each in results[:-1])
    assert {each.num_partitions for each in results[:-1]} == {-1}


def test_partitions_can_be_given_to_nodes(bench: CoordinatorBench) -> None:
    assignments = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=[node])
        for index, node in enumerate((2, 1))
    ]
    wanted = topic("t", num_partitions=-1, replication_factor=-1, assignments=assignments)
    [result] = create(bench, 7, wanted)
    assert (result.error_code, result.num_partitions) == (E.NONE, 2)
    assert bench.coordinator.topics.catalog.by_name["t"].logs == (1, 0)


def test_too_many_partitions_in_all_are_refused_in_all(bench: CoordinatorBench) -> None:
    half = PARTITIONS_PER_REQUEST_MAX // 2 + 1
    results = create(bench, 7, *(topic(name, num_partitions=half) for name in "ab"))
    assert [each.error_code for each in results] == [E.POLICY_VIOLATION] * 2
    assert bench.coordinator.topics.catalog.by_name == {}


def test_too_many_partitions_refuse_repeated_and_denied_names_too(bench: CoordinatorBench) -> None:
    limited(bench, "bob", "CREATE TOPIC big", "CREATE TOPIC twice")
    big = topic("big", num_partitions=PARTITIONS_PER_REQUEST_MAX + 1)
    others = [topic(f"denied {number}") for number in range(PART_NAMES)]
    results = create(bench, 7, big, topic("twice"), topic("twice"), *others)
    assert [each.name for each in results][:4] == ["big", "twice", "twice", "denied 0"]
    assert [each.error_code for each in results] == [E.POLICY_VIOLATION] * (3 + PART_NAMES)
