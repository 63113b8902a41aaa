"""Topics, their settings, and the lag of groups."""

import pytest

from smq.client.errors import NoSuchTopic
from smq.client.kafka import admin
from smq.client.kafka.cluster import Cluster
from smq.model.errors import BrokerError, ErrorCode
from tests.client.fake_kafka import FakeKafka


def test_a_topic_is_created_and_deleted(kafka: FakeKafka, cluster: Cluster) -> None:
    kafka.faults["Metadata"].append(ErrorCode.LEADER_NOT_AVAILABLE)
    assert admin.create_topic(cluster, "a", 3, {"retention.ms": "7"}) == 3
    assert list(kafka.topics) == ["a"]
    admin.delete_topic(cluster, "a")
    assert kafka.topics == {}
    with pytest.raises(NoSuchTopic):
        admin.delete_topic(cluster, "a")


def test_creating_an_existing_topic_raises_topic_already_exists(
    kafka: FakeKafka, cluster: Cluster
) -> None:
    kafka.add_topic("a")
    with pytest.raises(BrokerError, match="topic_already_exists") as raised:
        admin.create_topic(cluster, "a")
    assert raised.value.code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_settings_say_whence_they_are(kafka: FakeKafka, cluster: Cluster) -> None:
    kafka.add_topic("a")
    found = admin.topic_configs(cluster, "a")
    assert [each.name for each in found if each.config_source == admin.SOURCE_TOPIC] == [
        "retention.ms"
    ]


def test_groups_are_asked_of_every_broker(kafka: FakeKafka, cluster: Cluster) -> None:
    kafka.committed = {"two": {}, "one": {}}
    assert [group.group_id for group in admin.groups(cluster)] == ["one", "two"]


def test_lag_is_what_a_group_has_not_committed(kafka: FakeKafka, cluster: Cluster) -> None:
    one, two = kafka.add_topic("a", 2)
    one.end, two.end = 10, 20
    kafka.committed["g"] = {"a": {1: 20, 0: 3}}
    lags = admin.group_lags(cluster, "g")
    assert [(each.topic, each.partition, each.lag) for each in lags] == [("a", 0, 7), ("a", 1, 0)]
    assert admin.group_lags(cluster, "nobody") == []
