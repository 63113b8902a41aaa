"""SubscriberToSubCoordinator of a real broker: who is told to read what."""

from typing import Any

import grpc
import pytest

from smq.agent.proto import mq_broker_pb2 as pb
from smq.agent.proto.mq_schema_pb2 import Partition, Topic
from smq.app.agent.coordinate_calls import rebalance_ms
from tests.app.agent.doors import Doors, refused
from tests.app.agent.streams import OpenStream, topic_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

Request = pb.SubscriberToSubCoordinatorRequest


def init(topic: Topic, name: str, **rest: int) -> Request:
    said = Request.InitMessage(
        consumer_group="g", consumer_group_instance_id=name, topic=topic, **rest
    )
    return Request(init=said)


def let_go(partition: Partition) -> Request:
    return Request(ack_un_assignment=Request.AckUnAssignmentMessage(partition=partition))


def given(stream: OpenStream, count: int) -> list[Partition]:
    answers: list[Any] = stream.read_many(count)
    return [each.assignment.partition_assignment.partition for each in answers]


def test_an_instance_gets_one_partition_unless_it_asks_for_more(doors: Doors) -> None:
    topic, ranges = topic_of(doors, 2)
    one = OpenStream(doors.broker.SubscriberToSubCoordinator, init(topic, "one"))
    answer = one.read().assignment.partition_assignment
    assert answer.partition == ranges[0]
    assert answer.leader_broker == doors.smq.status().grpc
    two = OpenStream(doors.broker.SubscriberToSubCoordinator, init(topic, "two"))
    assert given(two, 1) == [ranges[1]]
    assert one.finish() == two.finish() == []


def test_a_partition_moves_once_its_instance_has_let_it_go(doors: Doors) -> None:
    topic, ranges = topic_of(doors, 2)
    call = doors.broker.SubscriberToSubCoordinator
    one = OpenStream(call, init(topic, "one", max_partition_count=9))
    assert given(one, 2) == ranges
    two = OpenStream(call, init(topic, "two", max_partition_count=9))
    back = one.read().un_assignment.partition
    one.send(let_go(back))
    assert given(two, 1) == [back]
    two.finish()
    assert given(one, 1) == [back]
    one.finish()


def test_an_instance_that_says_nothing_loses_its_partition_all_the_same(doors: Doors) -> None:
    topic, ranges = topic_of(doors, 2)
    call = doors.broker.SubscriberToSubCoordinator
    silent = OpenStream(call, init(topic, "silent", max_partition_count=2, rebalance_seconds=1))
    assert given(silent, 2) == ranges
    two = OpenStream(call, init(topic, "two"))
    assert given(two, 1) == [ranges[1]]
    silent.finish()
    two.finish()


@pytest.mark.parametrize(
    ("said_s", "given_ms"), [(0, 10_000), (-1, 10_000), (1, 1000), (600, 600_000), (601, 600_000)]
)
def test_a_partition_is_kept_for_ten_seconds_unless_another_time_is_said(
    said_s: int, given_ms: int
) -> None:
    assert rebalance_ms(Request.InitMessage(rebalance_seconds=said_s)) == given_ms


def test_bad_beginnings_have_their_status(doors: Doors) -> None:
    call = doors.broker.SubscriberToSubCoordinator
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "first message of a stream is its init"):
        OpenStream(call, let_go(Partition())).finish()
    nowhere = Topic(namespace="shop", name="nowhere")
    with refused(grpc.StatusCode.NOT_FOUND, "there is no topic"):
        OpenStream(call, init(nowhere, "one")).finish()
