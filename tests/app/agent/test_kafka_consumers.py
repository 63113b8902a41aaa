"""Consumers of Kafka's protocol among a topic's subscribers."""

import pytest

from smq.agent.proto import mq_broker_pb2 as pb
from smq.app.agent.kafka_consumers import _having
from smq.wire.generated.describe_groups import DescribedGroup, DescribedGroupMember
from tests.app.agent.doors import Doors
from tests.app.agent.streams import kafka_name, topic_of

pytestmark = pytest.mark.timeout(120)
ASSIGNED = b"\0\0" + b"\0\0\0\1\0\1t" + b"\0\0\0\2\0\0\0\4\0\0\0\3"


def member(assignment: bytes) -> DescribedGroupMember:
    return DescribedGroupMember(member_id="m", member_assignment=assignment)


def test_a_member_has_what_it_was_assigned_and_garbage_is_nothing() -> None:
    members = [member(b"\0\0\xff\xff"), member(ASSIGNED), member(b"")]
    group = DescribedGroup(group_state="Stable", members=members)
    assert [partitions for _, partitions in _having(group, "t")] == [[3, 4]]
    assert [*_having(group, "other")] == []
    group.group_state = "PreparingRebalance"
    assert [*_having(group, "t")] == []


@pytest.mark.slow
def test_subscribers_of_a_topic_are_kafkas_consumers_too(doors: Doors) -> None:
    topic, ranges = topic_of(doors, 2)
    name, asked = kafka_name(topic), pb.GetTopicSubscribersRequest(topic=topic)
    assert not doors.broker.GetTopicSubscribers(asked).subscribers
    with doors.smq.connect() as client:
        with client.producer() as producer:
            producer.send(name, b"x", partition=1)
        with client.consumer(name, group="readers", start="earliest") as consumer:
            next(iter(consumer))
            consumer.commit()
            found = doors.broker.GetTopicSubscribers(asked).subscribers
    assert {each.partition.range_start for each in found} == {each.range_start for each in ranges}
    assert {each.consumer_group for each in found} == {"readers"}
    assert [each.current_offset for each in found] == [0, 1]
    assert all(each.is_active and each.consumer_id for each in found)
    assert not doors.broker.GetTopicSubscribers(asked).subscribers
