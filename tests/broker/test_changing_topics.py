"""Topics change while they are used: clients notice, and nothing that was acknowledged is lost."""

from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

import pytest
from confluent_kafka import (
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewPartitions

from smq.app.process.clock import wall_ms
from smq.client.kafka.cluster import Cluster
from smq.model.errors import ErrorCode
from smq.testing.smq_broker import SUPERVISOR, SmqBroker
from smq.wire.records import Record, write_batch
from tests.app.fake_broker import eventually
from tests.broker.one_topic import EARLIEST, LATEST, SETTINGS, OneTopic

pytestmark = pytest.mark.timeout(120)

ANSWER_S = 30
HOUR_MS = 3_600_000
LEVELS = ("memory", "disk", "os")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SmqBroker]:
    settings = SETTINGS | {"log.retention.check.interval.ms": "100"}
    with SmqBroker(tmp_path, settings) as broker:
        yield broker


@pytest.fixture
def admin(broker: SmqBroker) -> AdminClient:
    return admin_of(broker)


def admin_of(broker: SmqBroker) -> AdminClient:
    """A client of a broker that has just been started, maybe at another port than before."""
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def grow(admin: AdminClient, topic: str, count: int) -> None:
    admin.create_partitions([NewPartitions(topic, count)])[topic].result(ANSWER_S)


def change(admin: AdminClient, topic: str, name: str, value: str | None) -> None:
    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entry = ConfigEntry(name, value, incremental_operation=operation)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    [answer] = admin.incremental_alter_configs([resource]).values()
    answer.result(ANSWER_S)


def one(value: bytes = b"x", age_ms: int = 0) -> bytes:
    return write_batch([Record(0, wall_ms() - age_ms, None, value)])


def test_partitions_are_added_and_keep_their_records_over_a_restart(
    broker: SmqBroker, cluster: Cluster, admin: AdminClient
) -> None:
    topic = OneTopic(broker, cluster, "grows")
    topic.append(one())
    grow(admin, topic.name, 3)
    cluster.forget()
    assert [topic.append(one(), partition) for partition in range(3)] == [1, 0, 0]
    broker.kill(SUPERVISOR)
    broker.restart()
    cluster.forget()
    assert [topic.append(one(), partition) for partition in range(3)] == [2, 1, 1]


def test_a_partition_count_that_is_no_increase_is_refused(
    broker: SmqBroker, cluster: Cluster, admin: AdminClient
) -> None:
    topic = OneTopic(broker, cluster, "stays", partitions=2)
    with pytest.raises(KafkaException) as refusal:
        grow(admin, topic.name, 2)
    assert refusal.value.args[0].code() == KafkaError.INVALID_PARTITIONS


def test_a_group_takes_up_new_partitions(
    broker: SmqBroker, cluster: Cluster, admin: AdminClient
) -> None:
    topic = OneTopic(broker, cluster, "shared")
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "g",
        "auto.offset.reset": "earliest",
        "topic.metadata.refresh.interval.ms": 500,
    }
    consumer = Consumer(settings)
    consumer.subscribe([topic.name])

    def sees(partition: int, value: bytes) -> bool:
        message = consumer.poll(0.2)
        if message is None:
            return False
        return (message.partition(), message.value()) == (partition, value)

    topic.append(one(b"before"))
    eventually(lambda: sees(0, b"before"), "the first record is read")
    grow(admin, topic.name, 3)
    cluster.forget()
    topic.append(one(b"after"), 2)
    eventually(lambda: sees(2, b"after"), "the new partition is read")
    consumer.close()


def test_a_changed_size_limit_holds_at_once_and_after_a_restart(
    broker: SmqBroker, cluster: Cluster, admin: AdminClient
) -> None:
    topic = OneTopic(broker, cluster, "sized")
    assert topic.produce(one(bytes(2000))).error_code == ErrorCode.NONE
    change(admin, topic.name, "max.message.bytes", "1000")
    eventually(
        lambda: topic.produce(one(bytes(2000))).error_code == ErrorCode.MESSAGE_TOO_LARGE,
        "the limit is known to the shard",
    )
    broker.kill(SUPERVISOR)
    broker.restart()
    cluster.forget()
    assert topic.append(one()) > 0
    assert topic.produce(one(bytes(2000))).error_code == ErrorCode.MESSAGE_TOO_LARGE
    change(admin_of(broker), topic.name, "max.message.bytes", None)
    eventually(
        lambda: topic.produce(one(bytes(2000))).error_code == ErrorCode.NONE, "the limit is gone"
    )


def test_a_changed_retention_deletes_what_is_there(
    broker: SmqBroker, cluster: Cluster, admin: AdminClient
) -> None:
    topic = OneTopic(broker, cluster, "kept", {"retention.ms": "-1"})
    topic.append(one(age_ms=2 * HOUR_MS))
    topic.append(one(age_ms=2 * HOUR_MS))
    assert topic.offset_at(EARLIEST) == 0
    change(admin, topic.name, "retention.ms", str(HOUR_MS))
    eventually(lambda: topic.offset_at(EARLIEST) == 2, "both are deleted")


def test_a_changed_durability_strands_no_ack(
    broker: SmqBroker, cluster: Cluster, admin: AdminClient
) -> None:
    topic = OneTopic(broker, cluster, "levels")
    acked: list[int] = []

    def report(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        acked.append(int(message.value() or b""))

    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all", "linger.ms": 0})
    level, sent = cycle(LEVELS), 0
    for _ in range(4 * len(LEVELS)):
        for _ in range(50):
            producer.produce(topic.name, b"%d" % sent, on_delivery=report)
            sent += 1
            producer.poll(0)
        change(admin, topic.name, "smq.durability", next(level))
    assert producer.flush(ANSWER_S) == 0, "acks are missing"
    assert acked == list(range(sent))
    eventually(lambda: topic.offset_at(LATEST) == sent, "all is shown")


def delete(admin: AdminClient, topic: str, offset: int) -> int:
    """The low watermark after records below an offset are deleted."""
    place = TopicPartition(topic, 0, offset)
    low: int = admin.delete_records([place])[place].result(ANSWER_S).low_watermark
    return low


def three() -> bytes:
    return write_batch([Record(i, wall_ms(), b"%d" % i, b"value") for i in range(3)])


def test_deleted_records_are_gone_also_after_a_kill(
    broker: SmqBroker, cluster: Cluster, admin: AdminClient
) -> None:
    topic = OneTopic(broker, cluster, "cut", {"smq.seal.ms": str(HOUR_MS)})
    topic.append(three())
    topic.append(three())
    assert delete(admin, topic.name, 4) == 4
    assert topic.fetch(3).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert [each.offset for each in topic.records(6, 4)] == [4, 5]
    broker.kill(SUPERVISOR)
    broker.restart()
    cluster.forget()
    assert topic.append(three()) == 6
    assert topic.offset_at(EARLIEST) == 4
    assert topic.fetch(3).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert [each.offset for each in topic.records(9, 4)] == [4, 5, 6, 7, 8]
    assert delete(admin_of(broker), topic.name, OFFSET_END) == 9
    assert topic.offset_at(EARLIEST) == topic.offset_at(LATEST) == 9


def test_records_deleted_inside_a_batch_are_not_sealed(
    broker: SmqBroker, cluster: Cluster, admin: AdminClient
) -> None:
    topic = OneTopic(broker, cluster, "trimmed", {"smq.seal.ms": str(HOUR_MS)})
    topic.append(three())
    assert delete(admin, topic.name, 2) == 2
    change(admin, topic.name, "smq.seal.ms", "1")
    [segment] = topic.wait_sealed(3)
    assert (segment.base_offset, segment.end_offset, segment.record_count) == (2, 3, 1)


def test_sealed_records_are_deleted_from_the_manifest_too(
    broker: SmqBroker, cluster: Cluster, admin: AdminClient
) -> None:
    topic = OneTopic(broker, cluster, "filed")
    topic.append(three())
    topic.wait_sealed(3)
    topic.append(three())
    topic.wait_sealed(6)
    assert delete(admin, topic.name, 4) == 4
    eventually(lambda: topic.segments()[0].base_offset == 3, "the first segment is deleted")
    assert [each.offset for each in topic.records(6, 4)] == [4, 5]
    eventually(lambda: topic.files() == topic.named_files(), "its file is deleted")
