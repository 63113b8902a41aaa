"""Kafka's clients and the SDK's on one topic: all of them see the same records in the same order.

Four producers take turns by a plan that Hypothesis makes up, while four consumers read along. What
each of them has seen at the end is compared, partition by partition, record by record.
"""

import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from typing import NamedTuple

import confluent_kafka
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import smq
from smq.testing import broker as fresh_broker
from smq.testing.smq_broker import SmqBroker

with warnings.catch_warnings():  # kafka-python reads its tables in a way that is going away.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

pytestmark = [pytest.mark.slow, pytest.mark.clients, pytest.mark.timeout(300)]

PARTITIONS = 3
READ_SECONDS_MAX = 30.0
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
SHARED, WIRE = "shared memory", "kafka"


class Row(NamedTuple):
    """A record, whoever tells of it."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, str | bytes | None], ...]


class Step(NamedTuple):
    """A producer's turn: so many records of so many bytes, to one partition."""

    producer: int
    partition: int
    records: int
    bytes: int
    is_keyed: bool
    is_flushed: bool


Seen = dict[int, list[Row]]
Send = Callable[[int, bytes, bytes | None, int], None]
Flush = Callable[[], None]

_steps = st.lists(
    st.builds(
        Step,
        producer=st.integers(0, 3),
        partition=st.integers(0, PARTITIONS - 1),
        records=st.sampled_from([1, 1, 2, 50, 400]),
        bytes=st.sampled_from([0, 10, 300, 3000]),
        is_keyed=st.booleans(),
        is_flushed=st.booleans(),
    ),
    min_size=1,
    max_size=12,
)


@pytest.fixture(scope="module")
def broker() -> Iterator[SmqBroker]:
    with fresh_broker(shards=2) as broker:
        yield broker


# --- producers -----------------------------------------------------------------------------------


def sdk_producer(client: smq.Client, topic: str, compression: str) -> tuple[Send, Flush]:
    producer = client.producer(compression=compression)

    def send(partition: int, value: bytes, key: bytes | None, time_ms: int) -> None:
        headers = [("by", client.transport.encode()), ("null", None)]
        producer.send(
            topic, value, key=key, headers=headers, timestamp_ms=time_ms, partition=partition
        )

    return send, producer.flush


def librdkafka_producer(bootstrap: str, topic: str, compression: str) -> tuple[Send, Flush]:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "compression.type": compression,
            "linger.ms": 1,
        }
    )

    def send(partition: int, value: bytes, key: bytes | None, time_ms: int) -> None:
        headers: list[tuple[str, str | bytes | None]] = [("by", b"librdkafka"), ("null", None)]
        producer.produce(topic, value, key, partition, timestamp=time_ms, headers=headers)

    def flush() -> None:
        assert producer.flush(READ_SECONDS_MAX) == 0

    return send, flush


def kafka_python_producer(bootstrap: str, topic: str, compression: str) -> tuple[Send, Flush]:
    producer = kafka.KafkaProducer(
        bootstrap_servers=bootstrap, compression_type=None if compression == "none" else compression
    )

    def send(partition: int, value: bytes, key: bytes | None, time_ms: int) -> None:
        headers = [("by", b"kafka-python")]
        producer.send(topic, value, key, headers, partition, time_ms)

    return send, partial(producer.flush, READ_SECONDS_MAX)


# --- consumers -----------------------------------------------------------------------------------


def seen_by_sdk(client: smq.Client, topic: str, begun: threading.Barrier, total: int) -> Seen:
    seen: Seen = {partition: [] for partition in range(PARTITIONS)}
    with client.consumer(topic, start="earliest") as consumer:
        begun.wait()
        left = total
        while left:
            with consumer.poll(READ_SECONDS_MAX) as batch:
                assert batch, f"{client.transport}: {left} of {total} are missing"
                for record in batch:
                    value = None if record.value is None else bytes(record.value)
                    headers = tuple(record.headers)
                    row = Row(record.offset, record.timestamp_ms, record.key, value, headers)
                    seen[record.partition].append(row)
                    left -= 1
    return seen


def seen_by_librdkafka(bootstrap: str, topic: str, begun: threading.Barrier, total: int) -> Seen:
    seen: Seen = {partition: [] for partition in range(PARTITIONS)}
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": topic})
    partitions = [confluent_kafka.TopicPartition(topic, each, 0) for each in range(PARTITIONS)]
    consumer.assign(partitions)
    begun.wait()
    for _ in range(total):
        message = consumer.poll(READ_SECONDS_MAX)
        assert message is not None
        assert message.error() is None
        offset, partition, headers = message.offset(), message.partition(), message.headers()
        assert offset is not None
        assert partition is not None
        assert isinstance(headers, list)
        time_ms = message.timestamp()[1]
        row = Row(offset, time_ms, message.key(), message.value(), tuple(headers))
        seen[partition].append(row)
    consumer.close()
    return seen


def seen_by_kafka_python(bootstrap: str, topic: str, begun: threading.Barrier, total: int) -> Seen:
    seen: Seen = {partition: [] for partition in range(PARTITIONS)}
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap, consumer_timeout_ms=int(READ_SECONDS_MAX * 1000)
    )
    partitions = [kafka.TopicPartition(topic, each) for each in range(PARTITIONS)]
    consumer.assign(partitions)
    consumer.seek_to_beginning(*partitions)
    begun.wait()
    for _ in range(total):
        record = next(consumer)
        row = Row(record.offset, record.timestamp, record.key, record.value, tuple(record.headers))
        seen[record.partition].append(row)
    consumer.close()
    return seen


# --- the property --------------------------------------------------------------------------------


def sent_in_order(seen: Seen, steps: list[Step]) -> None:
    """Each producer's records of a partition are all there, once, in the order it sent them."""
    for partition, rows in seen.items():
        assert [row.offset for row in rows] == list(range(len(rows)))
        for producer in range(4):
            numbers = [
                int(row.key or b"0") if row.key else row.timestamp_ms
                for row in rows
                if (row.value or b"").startswith(b"%d:" % producer)
            ]
            expected = sum(step.records for step in steps if step[:2] == (producer, partition))
            assert len(numbers) == expected
            assert numbers == sorted(numbers)
            assert len(set(numbers)) == expected


def test_everybody_sees_the_same_records_in_the_same_order(broker: SmqBroker) -> None:
    names = map("mixed-{}".format, count())

    @settings(deadline=None, max_examples=12, suppress_health_check=[HealthCheck.too_slow])
    @given(steps=_steps, compression=st.sampled_from(COMPRESSIONS))
    def same(steps: list[Step], compression: str) -> None:
        topic, bootstrap = next(names), broker.bootstrap
        with (
            broker.connect(transport=SHARED) as near,
            broker.connect(transport=WIRE) as far,
            ThreadPoolExecutor(4) as pool,
        ):
            assert (near.transport, far.transport) == (SHARED, WIRE)
            near.create_topic(topic, partitions=PARTITIONS)
            total = sum(step.records for step in steps)
            begun = threading.Barrier(5, timeout=READ_SECONDS_MAX)
            consumers = [
                pool.submit(seen_by_sdk, near, topic, begun, total),
                pool.submit(seen_by_sdk, far, topic, begun, total),
                pool.submit(seen_by_librdkafka, bootstrap, topic, begun, total),
                pool.submit(seen_by_kafka_python, bootstrap, topic, begun, total),
            ]
            producers = (
                sdk_producer(near, topic, compression),
                sdk_producer(far, topic, compression),
                librdkafka_producer(bootstrap, topic, compression),
                kafka_python_producer(bootstrap, topic, compression),
            )
            begun.wait()
            number = count(1)
            for step in steps:
                send, flush = producers[step.producer]
                for _ in range(step.records):
                    n = next(number)
                    key = b"%d" % n if step.is_keyed else None
                    send(step.partition, b"%d:" % step.producer + bytes(step.bytes), key, n)
                if step.is_flushed:
                    flush()
            for _, flush in producers:
                flush()
            first, *others = [each.result() for each in consumers]
            sent_in_order(first, steps)
            for other in others:
                assert other == first

    same()
