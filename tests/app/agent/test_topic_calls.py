"""SeaweedMQ's calls about topics, to a real broker."""

from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from smq.agent.proto import mq_broker_pb2 as pb
from smq.agent.proto.mq_schema_pb2 import Field, RecordType, ScalarType, Topic, Type
from tests.app.agent.doors import Doors, refused

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

Status = grpc.StatusCode


def topic(name: str, namespace: str = "shop") -> Topic:
    return Topic(namespace=namespace, name=name)


def field(name: str, kind: "ScalarType", **rest: bool) -> Field:
    return Field(name=name, type=Type(scalar_type=kind), **rest)


ORDER = RecordType(fields=[field("id", ScalarType.INT64, is_required=True)])


def configure(doors: Doors, name: str, count: int = 0, **rest: object) -> pb.ConfigureTopicResponse:
    request = pb.ConfigureTopicRequest(topic=topic(name), partition_count=count, **rest)  # type: ignore[arg-type]
    return doors.broker.ConfigureTopic(request)  # type: ignore[no-any-return]


def described(doors: Doors, name: str) -> pb.GetTopicConfigurationResponse:
    request = pb.GetTopicConfigurationRequest(topic=topic(name))
    return doors.broker.GetTopicConfiguration(request)  # type: ignore[no-any-return]


def test_a_topic_is_created_with_its_layout_and_is_kafkas_too(doors: Doors) -> None:
    found = configure(doors, "created", 3)
    ranges = [each.partition for each in found.broker_partition_assignments]
    assert [(each.range_start, each.range_stop) for each in ranges] == [
        (0, 840),
        (840, 1680),
        (1680, 2520),
    ]
    assert {each.ring_size for each in ranges} == {2520}
    told = {each.leader_broker for each in found.broker_partition_assignments}
    assert told == {doors.smq.status().grpc}
    with doors.smq.connect() as client:
        assert client.topics()["shop.created"] == 3
    listed = doors.broker.ListTopics(pb.ListTopicsRequest()).topics
    assert topic("created") in listed
    assert doors.broker.TopicExists(pb.TopicExistsRequest(topic=topic("created"))).exists
    other = pb.TopicExistsRequest(topic=topic("shop.created", "kafka"))
    assert not doors.broker.TopicExists(other).exists


def test_a_topic_of_kafka_is_in_the_namespace_kafka(doors: Doors) -> None:
    with doors.smq.connect() as client:
        client.create_topic("clicks", 2)
    found = doors.broker.LookupTopicBrokers(
        pb.LookupTopicBrokersRequest(topic=topic("clicks", "kafka"))
    )
    assert len(found.broker_partition_assignments) == 2


def test_a_count_that_is_not_above_the_topics_own_changes_nothing(doors: Doors) -> None:
    first = configure(doors, "again", 2)
    for count in (0, 1, 2):
        assert configure(doors, "again", count) == first


def test_more_partitions_begin_a_later_layout(doors: Doors) -> None:
    [before] = configure(doors, "grown", 1).broker_partition_assignments
    after = configure(doors, "grown", 2).broker_partition_assignments
    assert len(after) == 2
    assert after[0].partition.unix_time_ns > before.partition.unix_time_ns
    found = described(doors, "grown")
    assert found.created_at_ns == before.partition.unix_time_ns
    assert found.last_updated_ns == after[0].partition.unix_time_ns
    assert found.partition_count == 2


def test_callers_that_want_as_many_partitions_at_once_have_as_many(doors: Doors) -> None:
    for number in range(5):
        name = f"at-once-{number}"
        configure(doors, name, 1)
        with ThreadPoolExecutor(4) as callers:
            found = callers.map(lambda _, name=name: configure(doors, name, 6), range(4))
            assert [len(each.broker_partition_assignments) for each in found] == [6] * 4
        assert described(doors, name).partition_count == 6


def test_retention_types_and_columns_are_kept_and_nil_changes_nothing(doors: Doors) -> None:
    retention = pb.TopicRetention(retention_seconds=3600, enabled=True)
    rest = {"message_record_type": ORDER, "key_columns": ["id"], "schema_format": "AVRO"}
    made = configure(doors, "typed", 1, retention=retention, **rest)
    assert made.retention == retention
    assert made.message_record_type == ORDER
    assert configure(doors, "typed") == made
    found = described(doors, "typed")
    assert [*found.key_columns] == ["id"]
    assert found.schema_format == "AVRO"
    off = configure(doors, "typed", retention=pb.TopicRetention())
    assert not off.retention.enabled
    assert described(doors, "typed").last_updated_ns > found.last_updated_ns


def test_a_record_type_gets_more_fields_and_loses_none(doors: Doors) -> None:
    configure(doors, "fields", 1, message_record_type=ORDER)
    more = RecordType(fields=[*ORDER.fields, field("note", ScalarType.STRING)])
    assert configure(doors, "fields", message_record_type=more).message_record_type == more
    with refused(Status.INVALID_ARGUMENT, "lacks the field note"):
        configure(doors, "fields", message_record_type=ORDER)


def test_a_name_that_would_be_ambiguous_is_refused(doors: Doors) -> None:
    configure(doors, "b.c", 1)
    request = pb.ConfigureTopicRequest(topic=topic("c", "shop.b"), partition_count=1)
    with refused(Status.ALREADY_EXISTS, "in another namespace"):
        doors.broker.ConfigureTopic(request)


def test_bad_requests_have_their_status_and_sentence(doors: Doors) -> None:
    with refused(Status.INVALID_ARGUMENT, "partition_count is 2521"):
        configure(doors, "large", 2521)
    with refused(Status.INVALID_ARGUMENT, "no name"):
        configure(doors, "", 1)
    with refused(Status.INVALID_ARGUMENT, ""):
        configure(doors, "no/name", 1)
    with refused(Status.NOT_FOUND, "there is no topic shop/nowhere"):
        described(doors, "nowhere")
    with refused(Status.UNIMPLEMENTED, "among themselves"):
        doors.broker.AssignTopicPartitions(pb.AssignTopicPartitionsRequest())


def test_the_door_itself_is_the_leader_and_there_is_nothing_to_balance(doors: Doors) -> None:
    found = doors.broker.FindBrokerLeader(pb.FindBrokerLeaderRequest(filer_group=""))
    assert found.broker == doors.smq.status().grpc
    assert doors.broker.BalanceTopics(pb.BalanceTopicsRequest()) == pb.BalanceTopicsResponse()
