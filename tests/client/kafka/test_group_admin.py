"""Groups are described, reset and deleted through their coordinator."""

from uuid import uuid4

import pytest

from smq.client.kafka.admin import create_topic
from smq.client.kafka.cluster import Cluster
from smq.client.kafka.group_admin import (
    commit_offsets,
    committed_offsets,
    delete_group,
    describe_group,
)
from smq.client.names import TopicPartition
from smq.model.errors import BrokerError, ErrorCode
from smq.testing.smq_broker import SmqBroker


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
