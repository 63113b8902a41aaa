"""Every RPC, asked by everybody: who lacks a right is told so, or that there is no such topic."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import grpc
import pytest

from smq.agent.proto import mq_agent_pb2 as agent_pb, mq_broker_pb2 as pb
from smq.agent.proto.mq_schema_pb2 import OffsetType, Partition, Topic
from smq.agent.rpc_rights import RPC_RIGHTS, NeededRight
from smq.security.acls import Operation, ResourceType
from smq.testing.smq_broker import SmqBroker
from tests.app.agent.doors import Doors, refused
from tests.app.agent.guarded_doors import (
    ROOT,
    GuardedDoors,
    make_certificates,
    opened_in_tls,
    settings_of,
)
from tests.app.agent.streams import OpenStream, kafka_name, topic_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
GROUP = "g"
TOPIC, OF_GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
GRANTED: dict[str, tuple[tuple[Operation, ResourceType], ...]] = {
    "nobody": (),
    "describer": ((Operation.DESCRIBE, TOPIC), (Operation.DESCRIBE, OF_GROUP)),
    "reader": ((Operation.READ, TOPIC), (Operation.READ, OF_GROUP)),
    "grouper": ((Operation.READ, OF_GROUP),),
    "fetcher": ((Operation.READ, TOPIC),),
    "writer": ((Operation.WRITE, TOPIC),),
    "creator": ((Operation.CREATE, TOPIC),),
    "changer": ((Operation.ALTER, TOPIC), (Operation.ALTER_CONFIGS, TOPIC)),
    "admin": ((Operation.ALTER, CLUSTER),),
}
IMPLIES_DESCRIBE = {Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.ALTER}


class Asked(NamedTuple):
    """The topic that all ask about; a super user has written one record."""

    doors: GuardedDoors
    topic: Topic
    partition: Partition


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    certs = make_certificates(tmp_path_factory.mktemp("certs"))
    with (
        SmqBroker(tmp_path_factory.mktemp("b"), settings_of(certs)) as broker,
        opened_in_tls(broker, certs) as doors,
    ):
        doors.add_users(ROOT, *GRANTED)
        root = doors.user(ROOT)
        topic, [partition] = topic_of(root)
        record = pb.PublishMessageRequest(data=pb.DataMessage(value=b"x", ts_ns=1))
        stream = OpenStream(root.broker.PublishMessage, published(topic, partition), record)
        assert [each.error for each in (stream.read(), *stream.finish())] == ["", ""]
        for user, rights in GRANTED.items():
            for what, kind in rights:
                doors.allow(user, what, kind, GROUP if kind is OF_GROUP else kafka_name(topic))
        yield Asked(doors, topic, partition)


def published(topic: Topic, partition: Partition) -> pb.PublishMessageRequest:
    return pb.PublishMessageRequest(
        init=pb.PublishMessageRequest.InitMessage(topic=topic, partition=partition)
    )


def first_of(call: Callable[..., Any], request: Any) -> Any:
    """The first answer of a stream."""
    stream = OpenStream(call, request)
    try:
        return stream.read()
    finally:
        stream.cancel()


def subscribed(topic: Topic, partition: Partition) -> pb.SubscribeMessageRequest:
    init = pb.SubscribeMessageRequest.InitMessage(
        consumer_group=GROUP,
        consumer_id="c",
        topic=topic,
        offset_type=OffsetType.RESET_TO_EARLIEST,
    )
    init.partition_offset.partition.CopyFrom(partition)
    return pb.SubscribeMessageRequest(init=init)


def joined(topic: Topic) -> agent_pb.SubscribeRecordRequest:
    return agent_pb.SubscribeRecordRequest(
        init=agent_pb.SubscribeRecordRequest.InitSubscribeRecordRequest(
            consumer_group=GROUP, topic=topic, offset_type=OffsetType.RESET_TO_EARLIEST
        )
    )


def coordinated(topic: Topic) -> pb.SubscriberToSubCoordinatorRequest:
    init = pb.SubscriberToSubCoordinatorRequest.InitMessage(consumer_group=GROUP, topic=topic)
    return pb.SubscriberToSubCoordinatorRequest(init=init)


def publish_record(doors: Doors, topic: Topic) -> Any:
    begun = doors.agent.StartPublishSession(agent_pb.StartPublishSessionRequest(topic=topic))
    if begun.error:
        return begun
    stream = OpenStream(
        doors.agent.PublishRecord, agent_pb.PublishRecordRequest(session_id=begun.session_id)
    )
    return [*stream.finish(), begun][0]


Request = Callable[[Doors, Topic, Partition], Any]
REQUESTS: dict[str, Request] = {
    "FindBrokerLeader": lambda d, *_: d.broker.FindBrokerLeader(pb.FindBrokerLeaderRequest()),
    "BalanceTopics": lambda d, *_: d.broker.BalanceTopics(pb.BalanceTopicsRequest()),
    "LookupTopicBrokers": lambda d, t, _: d.broker.LookupTopicBrokers(
        pb.LookupTopicBrokersRequest(topic=t)
    ),
    "GetTopicConfiguration": lambda d, t, _: d.broker.GetTopicConfiguration(
        pb.GetTopicConfigurationRequest(topic=t)
    ),
    "GetTopicPublishers": lambda d, t, _: d.broker.GetTopicPublishers(
        pb.GetTopicPublishersRequest(topic=t)
    ),
    "GetTopicSubscribers": lambda d, t, _: d.broker.GetTopicSubscribers(
        pb.GetTopicSubscribersRequest(topic=t)
    ),
    "SubscriberToSubCoordinator": lambda d, t, _: first_of(
        d.broker.SubscriberToSubCoordinator, coordinated(t)
    ),
    "PublishMessage": lambda d, t, p: first_of(d.broker.PublishMessage, published(t, p)),
    "SubscribeMessage": lambda d, t, p: first_of(d.broker.SubscribeMessage, subscribed(t, p)),
    "FetchMessage": lambda d, t, p: d.broker.FetchMessage(
        pb.FetchMessageRequest(topic=t, partition=p)
    ),
    "GetUnflushedMessages": lambda d, t, p: next(
        d.broker.GetUnflushedMessages(pb.GetUnflushedMessagesRequest(topic=t, partition=p))
    ),
    "GetPartitionRangeInfo": lambda d, t, p: d.broker.GetPartitionRangeInfo(
        pb.GetPartitionRangeInfoRequest(topic=t, partition=p)
    ),
    "StartPublishSession": lambda d, t, _: d.agent.StartPublishSession(
        agent_pb.StartPublishSessionRequest(topic=t)
    ),
    "PublishRecord": lambda d, t, _: publish_record(d, t),
    "SubscribeRecord": lambda d, t, _: first_of(d.agent.SubscribeRecord, joined(t)),
}
BY_WHAT_IT_SAYS = {"ListTopics", "TopicExists", "ConfigureTopic", "ClosePublishSession"}


def outcome(request: Request, doors: Doors, topic: Topic, partition: Partition) -> str:
    """What somebody is told who asks: ok, PERMISSION_DENIED or NOT_FOUND."""
    try:
        answer = request(doors, topic, partition)
    except grpc.RpcError as error:
        return str(error.code().name)
    said = getattr(answer, "error", "") or getattr(getattr(answer, "ctrl", None), "error", "")
    assert not said or "there is no topic" in said, said
    return "NOT_FOUND" if said else "ok"


def expected(user: str, needs: tuple[NeededRight, ...]) -> str:
    has = GRANTED[user]
    describes = any(what in IMPLIES_DESCRIBE for what, kind in has if kind is TOPIC)
    for need in needs:
        is_described = need.operation is Operation.DESCRIBE and describes
        if (need.operation, need.resource) not in has and not is_described:
            is_hidden = need.resource is TOPIC and not describes
            return "NOT_FOUND" if is_hidden else "PERMISSION_DENIED"
    return "ok"


@pytest.mark.parametrize("method", [*REQUESTS])
def test_an_rpc_asks_each_caller_for_the_rights_of_its_row(asked: Asked, method: str) -> None:
    doors, topic, partition = asked
    needs = RPC_RIGHTS[method].needs
    found = {
        user: outcome(REQUESTS[method], doors.user(user), topic, partition) for user in GRANTED
    }
    assert found == {user: expected(user, needs) for user in GRANTED}
    assert outcome(REQUESTS[method], doors.user(ROOT), topic, partition) == "ok"
    assert outcome(REQUESTS[method], doors.doors, topic, partition) == "UNAUTHENTICATED"


def test_each_rpc_is_asked_about() -> None:
    assert {*REQUESTS, *BY_WHAT_IT_SAYS} == {*RPC_RIGHTS}


@pytest.mark.parametrize("method", sorted(REQUESTS.keys() - {"FindBrokerLeader", "BalanceTopics"}))
def test_a_hidden_topic_is_answered_as_a_missing_one(asked: Asked, method: str) -> None:
    doors, topic, partition = asked
    nobody, missing = doors.user("nobody"), Topic(namespace="shop", name="missing")
    assert outcome(REQUESTS[method], nobody, topic, partition) == "NOT_FOUND"
    assert outcome(REQUESTS[method], nobody, missing, partition) == "NOT_FOUND"


def test_lists_have_what_their_reader_may_describe(asked: Asked) -> None:
    doors, topic, _ = asked
    for user, rights in GRANTED.items():
        sees = any(what in IMPLIES_DESCRIBE for what, kind in rights if kind is TOPIC)
        by = doors.user(user).broker
        listed = by.ListTopics(pb.ListTopicsRequest()).topics
        assert [each.name for each in listed] == ([topic.name] if sees else [])
        assert by.TopicExists(pb.TopicExistsRequest(topic=topic)).exists == sees


def test_a_topic_is_changed_by_users_with_the_rights_for_that(asked: Asked) -> None:
    doors, topic, _ = asked
    same = pb.ConfigureTopicRequest(topic=topic, partition_count=1)
    kept = pb.TopicRetention(retention_seconds=3600, enabled=True)
    other = pb.ConfigureTopicRequest(topic=topic, retention=kept)
    more = pb.ConfigureTopicRequest(topic=topic, partition_count=2)
    doors.user("describer").broker.ConfigureTopic(same)
    for request in (other, more):
        with refused(grpc.StatusCode.PERMISSION_DENIED, kafka_name(topic)):
            doors.user("describer").broker.ConfigureTopic(request)
    for request in (same, other):
        with refused(grpc.StatusCode.PERMISSION_DENIED, "CREATE"):
            doors.user("nobody").broker.ConfigureTopic(request)
    with refused(grpc.StatusCode.ALREADY_EXISTS, "hidden"):
        doors.user("creator").broker.ConfigureTopic(same)
    changed = doors.user("changer").broker.ConfigureTopic(other)
    assert changed.retention.retention_seconds == 3600


def test_a_topic_is_created_by_users_with_the_right_for_that(asked: Asked) -> None:
    doors = asked.doors
    new = pb.ConfigureTopicRequest(topic=Topic(namespace="shop", name="new"), partition_count=1)
    with refused(grpc.StatusCode.PERMISSION_DENIED, "CREATE"):
        doors.user("writer").broker.ConfigureTopic(new)
    doors.allow("creator", Operation.CREATE, TOPIC, "shop.new")
    assert len(doors.user("creator").broker.ConfigureTopic(new).broker_partition_assignments) == 1
    doors.user(ROOT)  # Who may do all sees it.
    exists = pb.TopicExistsRequest(topic=new.topic)
    assert doors.user(ROOT).broker.TopicExists(exists).exists


def test_a_session_is_its_principals_alone(asked: Asked) -> None:
    doors, topic, _ = asked
    begin = agent_pb.StartPublishSessionRequest(topic=topic, publisher_name="p")
    number = doors.user("writer").agent.StartPublishSession(begin).session_id
    close = agent_pb.ClosePublishSessionRequest(session_id=number)
    record = agent_pb.PublishRecordRequest(session_id=number)
    assert "no session" in doors.user(ROOT).agent.ClosePublishSession(close).error
    [answer] = OpenStream(doors.user(ROOT).agent.PublishRecord, record).finish()
    assert "no session" in answer.error
    assert doors.user("writer").agent.ClosePublishSession(close).error == ""
