"""MirrorMaker 2 mirrors a topic from Apache Kafka to SMQ."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

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
        "exactly.once.source.support": "enabled",
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


def exists(broker: Broker, topic: str) -> bool:
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    return topic in client.list_topics(timeout=topics.SECONDS_MAX).topics


def numbers(first: int, end: int) -> list[str]:
    return [str(number) for number in range(first, end)]


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
