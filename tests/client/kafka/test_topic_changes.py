"""Changes of topics, against a broker."""

from typing import Any
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
from smq.model.errors import BrokerError, ErrorCode, PeerError
from smq.testing.smq_broker import SmqBroker
from smq.wire.generated.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from tests.client.fake_kafka import HANDLERS, FakeKafka


def test_a_change_of_a_topic_is_visible_at_once(smq_session_broker: SmqBroker) -> None:
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


@pytest.mark.parametrize("index", [None, 1])
def test_a_broker_that_answers_about_other_partitions_is_not_believed(
    kafka: FakeKafka, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, index: int | None
) -> None:
    """Of the kind of door fault 12."""

    def other(_kafka: FakeKafka, _node: int, _request: Any, _code: ErrorCode) -> Any:
        indexes = [] if index is None else [index]
        partitions = [DeleteRecordsPartitionResult(partition_index=each) for each in indexes]
        topic = DeleteRecordsTopicResult(name="a", partitions=partitions)
        return DeleteRecordsResponse(topics=[topic])

    monkeypatch.setitem(HANDLERS, "DeleteRecords", other)
    kafka.add_topic("a")
    with pytest.raises(PeerError, match="answers about other partitions"):
        delete_records(cluster, "a", HIGH_WATERMARK)
