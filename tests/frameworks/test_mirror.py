"""MirrorMaker 2 mirrors topics, settings and groups' offsets from Apache Kafka to SMQ, and back."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewTopic

from smq.testing.kafka import Kafka, KafkaUnavailable
from smq.testing.processes import Broker, Child, free_port
from tests.clients import toolchain
from tests.clients.brokers import running
from tests.frameworks import topics
from tests.frameworks.connect import write_properties
from tests.frameworks.jvm import program
from tests.frameworks.topics import Reader

pytestmark = [pytest.mark.clients, pytest.mark.long, pytest.mark.timeout(580)]

RECORDS = 500
MIRROR_SECONDS_MAX = 200
POLL_SECONDS = 0.5


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[Broker]:
    try:
        started = Kafka(tmp_path / "kafka")
    except KafkaUnavailable as reason:
        toolchain.missing(str(reason))
    with started:
        yield started


@pytest.fixture
def smq(tmp_path: Path) -> Iterator[Broker]:
    with running(tmp_path / "smq") as started:
        yield started


@contextmanager
def mirroring(directory: Path, kafka: Broker, smq: Broker) -> Iterator[Child]:
    """MirrorMaker in its dedicated mode, both ways and exactly once."""
    values = {
        "clusters": "kafka, smq",
        "kafka.bootstrap.servers": kafka.bootstrap,
        "smq.bootstrap.servers": smq.bootstrap,
        "kafka->smq.enabled": "true",
        "kafka->smq.topics": "orders",
        "smq->kafka.enabled": "true",
        "smq->kafka.topics": "payments",
        "groups": "readers",
        "replication.factor": "1",
        "checkpoints.topic.replication.factor": "1",
        "heartbeats.topic.replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "offset.storage.replication.factor": "1",
        "status.storage.replication.factor": "1",
        "config.storage.replication.factor": "1",
        "kafka.exactly.once.source.support": "enabled",
        "smq.exactly.once.source.support": "enabled",
        "plugin.discovery": "service_load",
        "dedicated.mode.enable.internal.rest": "true",
        "listeners": f"http://127.0.0.1:{free_port()}",
        "offset.lag.max": "0",
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": "1",
        "emit.checkpoints.interval.seconds": "1",
        "emit.heartbeats.interval.seconds": "1",
        "refresh.topics.interval.seconds": "3",
        "refresh.groups.interval.seconds": "3",
        "sync.topic.configs.interval.seconds": "3",
        "consumer.auto.offset.reset": "earliest",
    }
    settings = write_properties(directory / "mirror.properties", values)
    main = "org.apache.kafka.connect.mirror.MirrorMaker"
    with program(directory / "mirror.log", main, str(settings)) as child:
        yield child


def until(reached: Callable[[], bool], child: Child, words: str) -> None:
    deadline = time.monotonic() + MIRROR_SECONDS_MAX
    while not reached():
        assert time.monotonic() < deadline, f"{words}\n{child.tail()}"
        time.sleep(POLL_SECONDS)


def admin(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def answer(broker: Broker, ask: Callable[[AdminClient], dict[Any, Any]]) -> Any:
    """What a question about one thing is answered; the client lives until then."""
    client = admin(broker)
    [found] = ask(client).values()
    return found.result(topics.SECONDS_MAX)


def exists(broker: Broker, topic: str) -> bool:
    return topic in admin(broker).list_topics(timeout=topics.SECONDS_MAX).topics


def config(broker: Broker, topic: str, name: str) -> str:
    asked = ConfigResource(ConfigResource.Type.TOPIC, topic)
    return str(answer(broker, lambda client: client.describe_configs([asked]))[name].value)


def committed(broker: Broker, topic: str) -> int:
    """What the group `readers` has committed of a topic's first partition."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers"})
    try:
        [found] = consumer.committed([TopicPartition(topic, 0)], topics.SECONDS_MAX)
        return int(found.offset)
    finally:
        consumer.close()


def commit(broker: Broker, topic: str, offset: int) -> None:
    """Commit for the group `readers`, as soon as a new Apache Kafka has its coordinator."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers"})
    deadline = time.monotonic() + topics.SECONDS_MAX
    while True:
        try:
            consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
            break
        except KafkaException as refusal:
            is_new = refusal.args[0].code() == KafkaError.NOT_COORDINATOR
            if not is_new or time.monotonic() > deadline:
                raise
            time.sleep(POLL_SECONDS)
    consumer.close()


def numbers(first: int, end: int) -> list[str]:
    return [str(number) for number in range(first, end)]


def make_topic(broker: Broker, topic: str) -> None:
    """Its retention is not the default, and a group has read half of its records."""
    made = NewTopic(topic, 1, 1, config={"retention.ms": "86400000"})
    answer(broker, lambda client: client.create_topics([made]))
    topics.send(broker.bootstrap, topic, numbers(0, RECORDS))
    commit(broker, topic, RECORDS // 2)


def assert_mirrored(source: str, end: Broker, topic: str, child: Child) -> None:
    """The topic came over with its records, its settings and its readers' offsets."""
    name = f"{source}.{topic}"
    until(lambda: exists(end, name), child, f"there is no {name}")
    reader = Reader(end.bootstrap, name)
    reader.poll_until(
        lambda: len(reader.found) >= RECORDS, MIRROR_SECONDS_MAX, f"not all of {name}"
    )
    assert [value for _, value in reader.found] == numbers(0, RECORDS)
    assert config(end, name, "retention.ms") == "86400000"
    # Offsets are translated to the nearest record at or before that was noted.
    until(lambda: 0 < committed(end, name) <= RECORDS // 2, child, f"no offsets of {name}")
    reader.close()


def test_topics_settings_and_offsets_come_over_both_ways(
    kafka: Broker, smq: Broker, tmp_path: Path
) -> None:
    make_topic(kafka, "orders")
    make_topic(smq, "payments")
    with mirroring(tmp_path, kafka, smq) as child:
        assert_mirrored("kafka", smq, "orders", child)
        assert_mirrored("smq", kafka, "payments", child)
        shorter = ConfigEntry(
            "retention.ms", "7200000", incremental_operation=AlterConfigOpType.SET
        )
        asked = ConfigResource(ConfigResource.Type.TOPIC, "orders", incremental_configs=[shorter])
        answer(kafka, lambda client: client.incremental_alter_configs([asked]))
        changed = lambda: config(smq, "kafka.orders", "retention.ms") == "7200000"  # noqa: E731
        until(changed, child, "a changed setting does not come over")


def test_a_killed_mirror_and_a_killed_shard_double_nothing(
    kafka: Broker, smq: Broker, tmp_path: Path
) -> None:
    topics.create(kafka.bootstrap, "orders", partitions=1)
    topics.send(kafka.bootstrap, "orders", numbers(0, RECORDS))
    with mirroring(tmp_path, kafka, smq) as child:
        until(lambda: exists(smq, "kafka.orders"), child, "there is no kafka.orders")
        reader = Reader(smq.bootstrap, "kafka.orders")
        reader.poll_until(lambda: len(reader.found) > 0, MIRROR_SECONDS_MAX, "nothing came over")
        topics.send(kafka.bootstrap, "orders", numbers(RECORDS, 2 * RECORDS))
        smq.kill("shard-1")
        smq.restart()
        topics.send(kafka.bootstrap, "orders", numbers(2 * RECORDS, 3 * RECORDS))
        child.kill()
    with mirroring(tmp_path, kafka, smq):
        wanted = numbers(0, 3 * RECORDS)
        reader.poll_until(lambda: len(reader.found) >= len(wanted), MIRROR_SECONDS_MAX, "not all")
        reader.poll_to_the_end()
    assert [value for _, value in reader.found] == wanted
