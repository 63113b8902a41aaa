"""Metadata: topics by name or id, with their leaders."""

from pathlib import Path
from uuid import UUID

import pytest

from gateway.apis.metadata import NO_OPERATIONS_ASKED
from gateway.context import Relay
from smq.model.catalog import INTERNAL_TOPICS
from smq.model.config import Config
from smq.model.errors import ErrorCode
from smq.wire.generated.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.gateway.shard_api_bench import ShardBench
from tests.shard.shard_bench import NODES, topic

A, B = topic("a", range(1, 4), logs=(0, 1, 2)), topic("b", range(4, 5))
EVERYTHING = [(name, 0) for name in ("a", "b", *INTERNAL_TOPICS)]
STRANGE = UUID(int=99)


def request(*names: str, create: bool = False) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=create)


def by_id(*ids: UUID) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=None, topic_id=each) for each in ids]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


def rows(response: MetadataResponse) -> list[tuple[str | None, int]]:
    return [(each.name, each.error_code) for each in response.topics]


@pytest.fixture
def bench(tmp_path: Path) -> ShardBench:
    return ShardBench(tmp_path, A, B)


@pytest.mark.parametrize("version", range(1, 14))
def test_null_topics_mean_all_and_an_empty_list_none(bench: ShardBench, version: int) -> None:
    everything = bench.ask("Metadata", version, MetadataRequest(topics=None))
    assert rows(everything) == EVERYTHING
    assert [each.is_internal for each in everything.topics] == [False, False, True, True]
    assert bench.ask("Metadata", version, MetadataRequest(topics=[])).topics == []


def test_an_empty_list_means_all_in_version_0(bench: ShardBench) -> None:
    assert rows(bench.ask("Metadata", 0, MetadataRequest(topics=[]))) == EVERYTHING


def test_leader_and_only_replica_is_the_node_of_the_log_with_its_epoch(bench: ShardBench) -> None:
    response = bench.ask("Metadata", 12, request("a"))
    partitions = response.topics[0].partitions
    one, two = NODES
    assert [(each.partition_index, each.leader_id, each.leader_epoch) for each in partitions] == [
        (0, one.id, one.generation),
        (1, two.id, two.generation),
        (2, one.id, one.generation),
    ]
    for each in partitions:
        assert [*each.replica_nodes] == [*each.isr_nodes] == [each.leader_id]
    assert [(each.node_id, each.host, each.port) for each in response.brokers] == [
        (node.id, node.host, node.port) for node in NODES
    ]
    assert response.topics[0].topic_id == A.id


def test_unknown_and_invalid_names_have_different_errors_and_repeated_names_one_row(
    bench: ShardBench,
) -> None:
    assert rows(bench.ask("Metadata", 9, request("a", "none", "bad name", "a"))) == [
        ("a", ErrorCode.NONE),
        ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("bad name", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ]


def test_an_id_finds_its_topic_and_an_unknown_one_is_100(bench: ShardBench) -> None:
    response = bench.ask("Metadata", 12, by_id(B.id, STRANGE))
    assert rows(response) == [(None, 100), ("b", ErrorCode.NONE)]
    assert response.topics[0].topic_id == STRANGE


def test_topics_that_are_there_stand_before_unknown_names(bench: ShardBench) -> None:
    """Data fault 37."""
    names = [name for name, _ in rows(bench.ask("Metadata", 9, request("none", "b", "x", "a")))]
    assert names == ["b", "a", "none", "x"]


@pytest.mark.parametrize("version", [10, 11])
def test_an_id_before_12_is_an_invalid_request_and_nothing_else_is_answered(
    bench: ShardBench, version: int
) -> None:
    topics = [MetadataRequestTopic(name="a"), MetadataRequestTopic(name="b", topic_id=B.id)]
    asked = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    response = bench.ask("Metadata", version, asked)
    assert rows(response) == [("a", ErrorCode.INVALID_REQUEST), ("b", ErrorCode.INVALID_REQUEST)]
    assert response.brokers == []


def test_neither_name_nor_id_is_an_unknown_server_error(bench: ShardBench) -> None:
    response = bench.ask("Metadata", 13, by_id(UUID(int=0)))
    assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert [each.error_code for each in response.topics] == [ErrorCode.UNKNOWN_SERVER_ERROR]


@pytest.mark.parametrize(("version", "create"), [(3, False), (4, True), (13, True)])
def test_a_request_that_creates_topics_is_relayed(
    bench: ShardBench, version: int, create: bool
) -> None:
    assert bench.ask("Metadata", version, request("new", create=create)) == Relay()


def test_nothing_is_relayed_that_the_client_the_name_or_the_broker_forbids(
    bench: ShardBench, tmp_path: Path
) -> None:
    closed = ShardBench(tmp_path / "closed", config=Config(auto_create_topics_enable=False))
    answers = [
        bench.ask("Metadata", 4, request("new")),
        bench.ask("Metadata", 4, request("bad name", create=True)),
        closed.ask("Metadata", 4, request("new", create=True)),
    ]
    assert [answer.topics[0].error_code for answer in answers] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_authorized_operations_are_returned_on_request(bench: ShardBench) -> None:
    asked = request("a")
    response = bench.ask("Metadata", 8, asked)
    assert response.topics[0].topic_authorized_operations == NO_OPERATIONS_ASKED
    assert response.cluster_authorized_operations == NO_OPERATIONS_ASKED
    asked.include_topic_authorized_operations = True
    asked.include_cluster_authorized_operations = True
    response = bench.ask("Metadata", 8, asked)
    assert response.topics[0].topic_authorized_operations == 3576
    assert response.cluster_authorized_operations == 8096
