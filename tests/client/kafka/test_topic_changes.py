"""Changes of topics, against a broker."""

from uuid import uuid4

import pytest

from smq.client.errors import NoSuchTopic
from smq.client.kafka.admin import SOURCE_TOPIC, create_topic, topic_configs
from smq.client.kafka.cluster import Cluster
from smq.client.kafka.topic_changes import (
    HIGH_WATERMARK,
    add_partitions,
    alter_topic,
    delete_records,
)
from smq.model.errors import BrokerError, ErrorCode
from smq.testing.smq_broker import SmqBroker


def test_what_is_changed_is_there_at_once(smq_session_broker: SmqBroker) -> None:
    name = uuid4().hex[:8]
    with Cluster(smq_session_broker.bootstrap) as cluster:
        create_topic(cluster, name, 1, {"retention.ms": "77"})
        alter_topic(cluster, name, {"segment.ms": "60000"}, ["retention.ms"])
        own = {
            each.name: each.value
            for each in topic_configs(cluster, name)
            if each.config_source == SOURCE_TOPIC
        }
        assert own == {"segment.ms": "60000"}
        assert add_partitions(cluster, name, 2) == 3
        assert delete_records(cluster, name, HIGH_WATERMARK) == {0: 0, 1: 0, 2: 0}
        with pytest.raises(BrokerError) as refused:
            delete_records(cluster, name, 5, [1])
        assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_compacted_topic_keeps_its_records(smq_session_broker: SmqBroker) -> None:
    name = uuid4().hex[:8]
    with Cluster(smq_session_broker.bootstrap) as cluster:
        create_topic(cluster, name, 1, {"cleanup.policy": "compact"})
        with pytest.raises(BrokerError, match="keeps the last record of each key"):
            delete_records(cluster, name, HIGH_WATERMARK)


def test_a_topic_that_is_not_there_does_not_change(smq_session_broker: SmqBroker) -> None:
    with Cluster(smq_session_broker.bootstrap) as cluster:
        for change in (
            lambda: alter_topic(cluster, "nope", {}, []),
            lambda: add_partitions(cluster, "nope", 1),
            lambda: delete_records(cluster, "nope", 0),
        ):
            with pytest.raises(NoSuchTopic):
                change()
