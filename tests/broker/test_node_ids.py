"""The nodes have the ids that `node.id` says, on every path that names one."""

from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import smq
from smq.model.errors import ErrorCode
from smq.testing import broker as fresh_broker
from smq.testing.smq_broker import SmqBroker
from smq.wire.generated.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from smq.wire.generated.describe_cluster import DescribeClusterRequest
from smq.wire.generated.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from smq.wire.generated.fetch import FetchPartition, FetchRequest, FetchTopic
from smq.wire.generated.find_coordinator import FindCoordinatorRequest
from smq.wire.generated.metadata import MetadataRequest
from smq.wire.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from smq.wire.records import Record, write_batch
from tests.broker.hostile import RawClient
from tests.broker.one_topic import SETTINGS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

BROKER = 4


@pytest.mark.parametrize("transport", ["shared memory", "kafka"])
def test_a_broker_whose_first_node_is_0(transport: str) -> None:
    with fresh_broker(shards=2, node_id=0) as broker, RawClient(broker.port) as raw:
        assignments = [
            CreatableReplicaAssignment(partition_index=index, broker_ids=[1 - index])
            for index in range(2)
        ]
        wanted = CreatableTopic(
            name="t", num_partitions=-1, replication_factor=-1, assignments=assignments
        )
        created = raw.ask("CreateTopics", 7, CreateTopicsRequest(topics=[wanted], timeout_ms=9000))
        assert created.topics[0].error_code == 0
        metadata = raw.ask("Metadata", 12, MetadataRequest(topics=None))
        assert [node.node_id for node in metadata.brokers] == [0, 1]
        assert metadata.controller_id == 0
        [topic] = [each for each in metadata.topics if each.name == "t"]
        leaders = {each.partition_index: each.leader_id for each in topic.partitions}
        assert leaders == {0: 1, 1: 0}
        with smq.connect(broker.bootstrap, transport=transport) as client:
            with client.producer() as producer:
                for partition in range(2):
                    producer.send("t", b"%d" % partition, partition=partition).result(30)
            with client.consumer("t", start="earliest") as consumer:
                values = {bytes(record.value or b"") for record in islice(consumer, 2)}
        assert values == {b"0", b"1"}


def test_each_node_shows_its_own_id() -> None:
    with fresh_broker(shards=2, node_id=7) as broker:
        for address, node_id in zip(broker.bootstrap.split(","), (7, 8), strict=True):
            with RawClient(int(address.rpartition(":")[2])) as raw:
                asked = DescribeConfigsResource(
                    resource_type=BROKER,
                    resource_name=str(node_id),
                    configuration_keys=["node.id"],
                )
                answer = raw.ask("DescribeConfigs", 4, DescribeConfigsRequest(resources=[asked]))
                (result,) = answer.results
                assert result.error_code == 0
                assert [(each.name, each.value) for each in result.configs] == [
                    ("node.id", str(node_id))
                ]


def test_a_request_at_the_wrong_node_is_answered_with_the_leaders_address() -> None:
    """KIP-951: in Produce from 10 on, in Fetch from 16 on."""
    with (
        fresh_broker(shards=2) as broker,
        RawClient(broker.port) as first,
        smq.connect(broker.bootstrap) as client,
    ):
        client.create_topic("t", partitions=2)
        metadata = first.ask("Metadata", 12, MetadataRequest(topics=None))
        ports = {node.node_id: node.port for node in metadata.brokers}
        [topic] = [each for each in metadata.topics if each.name == "t"]
        [other] = [each for each in topic.partitions if ports[each.leader_id] != broker.port]
        hint = (other.leader_id, other.leader_epoch), (other.leader_id, ports[other.leader_id])
        for version in (9, 10, 13):
            data = [
                PartitionProduceData(
                    index=other.partition_index, records=write_batch([Record(0, 1, b"k", b"v")])
                )
            ]
            named = TopicProduceData(name="t", topic_id=topic.topic_id, partition_data=data)
            request = ProduceRequest(acks=-1, timeout_ms=9000, topic_data=[named])
            answer = first.ask("Produce", version, request)
            [partition] = answer.responses[0].partition_responses
            assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert said(partition, answer) == (hint if version >= 10 else (None, None))
        for version, epoch in ((15, -1), (16, -1), (18, -1)):
            place = FetchPartition(
                partition=other.partition_index,
                current_leader_epoch=epoch,
                fetch_offset=0,
                partition_max_bytes=1000,
            )
            asked = FetchTopic(topic_id=topic.topic_id, partitions=[place])
            answer = first.ask("Fetch", version, FetchRequest(max_wait_ms=0, topics=[asked]))
            [partition] = answer.responses[0].partitions
            assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert said(partition, answer) == (hint if version >= 16 else (None, None))


@pytest.mark.parametrize("transactional_id", [None, "t"])
def test_the_leaders_address_is_that_of_the_listener_that_is_asked(
    tmp_path: Path, transactional_id: str | None
) -> None:
    settings = SETTINGS | {"shards": "2"}
    with (
        SmqBroker(tmp_path, settings, listeners={"OTHER": "PLAINTEXT"}) as broker,
        smq.connect(broker.bootstrap) as client,
    ):
        client.create_topic("t", partitions=2)
        seen = set[int]()
        for port in (broker.port, broker.port_of("OTHER")) * 3:  # Kernels take the later ones.
            with RawClient(port) as asker:
                metadata = asker.ask("Metadata", 12, MetadataRequest(topics=None))
                ports = {node.node_id: node.port for node in metadata.brokers}
                [topic] = [each for each in metadata.topics if each.name == "t"]
                [other] = [each for each in topic.partitions if ports[each.leader_id] != port]
                records = write_batch([Record(0, 1, b"k", b"v")])
                data = [PartitionProduceData(index=other.partition_index, records=records)]
                named = TopicProduceData(name="t", partition_data=data)
                request = ProduceRequest(
                    transactional_id=transactional_id,
                    acks=-1,
                    timeout_ms=9000,
                    topic_data=[named],
                )
                answer = asker.ask("Produce", 10, request)
            [partition] = answer.responses[0].partition_responses
            assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            leader, address = said(partition, answer)
            assert leader == (other.leader_id, other.leader_epoch)
            assert address == (other.leader_id, ports[other.leader_id])
            seen.add(ports[other.leader_id])
        assert len(seen) == 2, "the listeners have ports of their own"


def test_the_cluster_and_its_coordinators_have_the_addresses_of_the_listener_that_is_asked(
    tmp_path: Path,
) -> None:
    keys, settings = [f"group-{number}" for number in range(9)], SETTINGS | {"shards": "2"}
    with SmqBroker(tmp_path, settings, listeners={"OTHER": "PLAINTEXT"}) as broker:
        seen = set[int]()
        for first in (broker.port, broker.port_of("OTHER")):
            with RawClient(first) as asker:
                metadata = asker.ask("Metadata", 12, MetadataRequest(topics=None))
            ports = {node.node_id: node.port for node in metadata.brokers}
            for port in ports.values():  # One of the nodes relays, or both do.
                with RawClient(port) as asker:
                    found = asker.ask(
                        "FindCoordinator", 4, FindCoordinatorRequest(coordinator_keys=keys)
                    )
                    described = asker.ask("DescribeCluster", 0, DescribeClusterRequest())
                assert {each.node_id: each.port for each in found.coordinators} == ports
                assert {each.broker_id: each.port for each in described.brokers} == ports
            seen |= {*ports.values()}
        assert len(seen) == 4, "the listeners have ports of their own"


def said(partition: Any, answer: Any) -> tuple[Any, Any]:
    """The leader that an answer names, and where that node is."""
    leader = partition.current_leader
    if leader is None:
        return None, None
    [node] = answer.node_endpoints
    return (leader.leader_id, leader.leader_epoch), (node.node_id, node.port)
