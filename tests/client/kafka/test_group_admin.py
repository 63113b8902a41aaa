"""Groups are described, reset and deleted through their coordinator."""

from typing import Any
from uuid import uuid4

import pytest

from smq.client.kafka.admin import create_topic, delete_topic
from smq.client.kafka.cluster import Cluster
from smq.client.kafka.group_admin import (
    commit_offsets,
    committed_offsets,
    delete_group,
    delete_offsets,
    describe_group,
)
from smq.client.names import TopicPartition
from smq.model.errors import BrokerError, ErrorCode, PeerError
from smq.testing.smq_broker import SmqBroker
from smq.wire.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from smq.wire.generated.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from tests.client.fake_kafka import HANDLERS, FakeKafka


def test_offsets_are_committed_for_a_group_without_members_and_go_with_it(
    smq_session_broker: SmqBroker,
) -> None:
    name = uuid4().hex[:8]
    with Cluster(smq_session_broker.bootstrap) as cluster:
        create_topic(cluster, name, 2)
        offsets = {TopicPartition(name, 0): 3, TopicPartition(name, 1): 0}
        assert commit_offsets(cluster, name, offsets) == []
        assert committed_offsets(cluster, name) == offsets
        assert describe_group(cluster, name).group_state == "Empty"
        delete_group(cluster, name)
        assert committed_offsets(cluster, name) == {}
        with pytest.raises(BrokerError) as raised:
            delete_group(cluster, name)
        assert raised.value.code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_partition_that_is_not_there_is_refused_alone(smq_session_broker: SmqBroker) -> None:
    name = uuid4().hex[:8]
    with Cluster(smq_session_broker.bootstrap) as cluster:
        create_topic(cluster, name, 1)
        there, not_there = TopicPartition(name, 0), TopicPartition(name, 7)
        (refused,) = commit_offsets(cluster, name, {there: 1, not_there: 1})
        assert refused.name == not_there
        assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert committed_offsets(cluster, name) == {there: 1}


def test_an_offset_that_is_committed_by_id_is_not_of_another_topic_of_its_name(
    smq_session_broker: SmqBroker,
) -> None:
    name = uuid4().hex[:8]
    place = TopicPartition(name, 0)
    with Cluster(smq_session_broker.bootstrap) as cluster:
        create_topic(cluster, name, 1)
        ids = {name: cluster.topic(name).topic_id}
        assert commit_offsets(cluster, name, {place: 3}, ids=ids) == []
        assert committed_offsets(cluster, name) == {place: 3}
        delete_topic(cluster, name)
        create_topic(cluster, name, 1)
        (refused,) = commit_offsets(cluster, name, {place: 4}, ids=ids)
        assert (refused.name, refused.error_code) == (place, ErrorCode.UNKNOWN_TOPIC_ID)
        assert committed_offsets(cluster, name) == {}


@pytest.mark.parametrize("index", [None, 1])
def test_a_coordinator_that_answers_about_other_partitions_is_not_believed(
    kafka: FakeKafka, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, index: int | None
) -> None:
    """Of the kind of door fault 12: what it was silent about counted as taken."""

    def other(_kafka: FakeKafka, _node: int, request: Any, _code: ErrorCode) -> Any:
        indexes = [] if index is None else [index]
        return response_of[type(request)](indexes)

    def committed(indexes: list[int]) -> OffsetCommitResponse:
        partitions = [OffsetCommitResponsePartition(partition_index=each) for each in indexes]
        topic = OffsetCommitResponseTopic(name="a", partitions=partitions)
        return OffsetCommitResponse(topics=[topic])

    def deleted(indexes: list[int]) -> OffsetDeleteResponse:
        partitions = [OffsetDeleteResponsePartition(partition_index=each) for each in indexes]
        return OffsetDeleteResponse(
            topics=[OffsetDeleteResponseTopic(name="a", partitions=partitions)]
        )

    response_of = {OffsetCommitRequest: committed, OffsetDeleteRequest: deleted}
    for api in ("OffsetCommit", "OffsetDelete"):
        monkeypatch.setitem(HANDLERS, api, other)
    name = TopicPartition("a", 0)
    with pytest.raises(PeerError, match="answers about other partitions"):
        commit_offsets(cluster, "g", {name: 1})
    with pytest.raises(PeerError, match="answers about other partitions"):
        delete_offsets(cluster, "g", [name])
