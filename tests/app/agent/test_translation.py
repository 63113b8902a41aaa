"""SeaweedMQ's messages of topics and partitions."""

from uuid import UUID

import pytest

from smq.agent.layouts import RingLayout, RingRange
from smq.agent.proto.mq_schema_pb2 import Topic
from smq.agent.topic_names import TopicName
from smq.app.agent.topics import KnownTopic
from smq.app.agent.translation import (
    assignments,
    partition_message,
    range_of,
    topic_message,
    topic_name,
)


def test_names_and_ranges_come_back_from_their_messages() -> None:
    name, found = TopicName("shop", "orders"), RingRange(2520, 840, 1680, 7)
    assert topic_name(topic_message(name)) == name
    assert range_of(partition_message(found)) == found
    with pytest.raises(ValueError, match="no name"):
        topic_name(Topic(namespace="shop"))


def test_every_partition_is_behind_one_door_without_a_follower() -> None:
    layouts = (RingLayout(1, 1), RingLayout(5, 2))
    topic = KnownTopic(TopicName("shop", "orders"), UUID(int=1), {}, layouts)
    found = [*assignments(topic, "here:1")]
    assert [each.partition.range_start for each in found] == [0, 1260]
    assert {each.partition.unix_time_ns for each in found} == {5}
    assert {(each.leader_broker, each.follower_broker) for each in found} == {("here:1", "")}
