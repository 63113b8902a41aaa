"""Clients of several libraries log in to a real broker, write to a topic, and read it again."""

import subprocess
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer

import smq
from smq.client.kafka.cluster import Cluster
from smq.client.kafka.offsets import LATEST, resolve
from smq.client.locate import way_to
from smq.testing.kafka import KafkaUnavailable, kafka_jars
from smq.testing.smq_broker import SmqBroker

VALUES = [bytes([i]) * 20_000 for i in range(20)]
PARTITIONS = 4
SECONDS_MAX = 60.0
TOOLS = "org.apache.kafka.tools"


def new_topic(broker: SmqBroker) -> str:
    """The name of a topic that is empty."""
    name = uuid4().hex[:8]
    with broker.connect() as client:
        client.create_topic(name, PARTITIONS)
    return name


def tails_of(broker: SmqBroker, topic: str) -> dict[int, int]:
    """The end of each partition of a topic."""
    bootstrap, security = way_to(broker.data_dir)
    with Cluster(bootstrap, security=security) as cluster:
        return resolve(cluster, topic, range(len(cluster.topic(topic).leaders)), LATEST)


def by_librdkafka(topic: str, writes: Mapping[str, Any], reads: Mapping[str, Any]) -> set[int]:
    """Have librdkafka write by one configuration and read by another; returns the brokers' ports
    that it was told."""
    producer = Producer({**writes})
    failed: list[object] = []
    for i, value in enumerate(VALUES):
        producer.produce(
            topic,
            value,
            partition=i % PARTITIONS,
            on_delivery=lambda error, _: failed.append(error),
        )
    assert producer.flush(SECONDS_MAX) == 0
    assert failed == [None] * len(VALUES)
    group = {"group.id": uuid4().hex, "auto.offset.reset": "earliest"}
    consumer = Consumer({**reads, **group})
    consumer.subscribe([topic])
    read: list[bytes] = []
    while len(read) < len(VALUES):
        message = consumer.poll(SECONDS_MAX)
        assert message is not None
        assert message.error() is None
        read.append(message.value() or b"")
    brokers = consumer.list_topics(topic).brokers.values()
    consumer.close()
    assert sorted(read) == sorted(VALUES)
    return {each.port for each in brokers}


def by_our_client(topic: str, config: Mapping[str, Any]) -> None:
    """Have the SDK write and read by a configuration that names things as librdkafka does."""
    own = {**config}
    address = own.pop("bootstrap.servers")
    with (
        smq.connect(address, config=own, transport="kafka") as client,
        client.producer() as producer,
        client.consumer(topic, group=uuid4().hex, start="earliest") as consumer,
    ):
        sent = [
            producer.send(topic, value, partition=i % PARTITIONS) for i, value in enumerate(VALUES)
        ]
        assert {each.result(SECONDS_MAX).partition for each in sent} == set(range(PARTITIONS))
        read = [bytes(record.value or b"") for record in islice(consumer, len(VALUES))]
        consumer.commit()
    assert sorted(read) == sorted(VALUES)


def java_classpath() -> str:
    """Where Java finds Kafka's own clients; without them the test is skipped."""
    try:
        return f"{kafka_jars()}/*"
    except KafkaUnavailable as reason:
        pytest.skip(str(reason))


def by_kafkas_tools(classpath: str, topic: str, address: str, file: Path, *options: str) -> None:
    """Have Kafka's console tools write and read by a file of properties, with options of Java."""
    given = ("--bootstrap-server", address, "--topic", topic, "--command-config", str(file))
    until = ("--from-beginning", "--max-messages", "3", "--timeout-ms", "30000")
    for tool, lines, expected in (
        ((f"{TOOLS}.ConsoleProducer", *given), "a\nb\nc\n", None),
        ((f"{TOOLS}.consumer.ConsoleConsumer", *given, *until), "", {"a", "b", "c"}),
    ):
        done = subprocess.run(
            ["java", *options, "-cp", classpath, *tool],
            input=lines, capture_output=True, text=True, check=False, timeout=SECONDS_MAX,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert expected is None or {*done.stdout.split()} == expected
