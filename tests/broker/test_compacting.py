"""A compacted topic of a real broker: its clients find the last of each key, and reach the end."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError

from smq.client.kafka.cluster import Cluster
from smq.model.errors import ErrorCode
from smq.testing.smq_broker import SmqBroker
from smq.wire.compression import Codec
from smq.wire.records import Record, write_batch
from tests.app.fake_broker import eventually
from tests.broker.one_topic import SETTINGS, OneTopic, query

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
OFTEN = {"seal.ms": "1", "log.retention.check.interval.ms": "100"}
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
KEYS, ROUNDS = 5, 6


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SmqBroker]:
    with SmqBroker(tmp_path, SETTINGS | OFTEN) as broker:
        yield broker


def appended(topic: OneTopic) -> dict[bytes, tuple[int, bytes]]:
    """Write each key some times, a segment for each time; the last of each key."""
    last: dict[bytes, tuple[int, bytes]] = {}
    for number in range(ROUNDS):
        pairs = [(b"key %d" % key, b"value %d" % number) for key in range(KEYS)]
        records = [Record(i, 0, key, value) for i, (key, value) in enumerate(pairs)]
        base = topic.append(write_batch(records, compression=Codec.ZSTD))
        last |= {key: (base + i, value) for i, (key, value) in enumerate(pairs)}
        topic.wait_sealed(base + KEYS)
    return last


def is_compacted(topic: OneTopic, records: int) -> bool:
    segments = topic.segments()
    counted = sum(each.record_count for each in segments)
    return all(each.compacted_ms for each in segments) and counted == records


def test_all_readers_find_the_last_of_each_key(broker: SmqBroker) -> None:
    with Cluster(broker.bootstrap) as cluster:
        topic = OneTopic(broker, cluster, "state", COMPACTED)
        last = appended(topic)
        eventually(lambda: is_compacted(topic, KEYS), "it is compacted")
        files = [str(broker.data_dir / "filer" / each.path) for each in topic.segments()]
        rows = query(f"SELECT _key, _offset, _value FROM read_parquet({files})")
        assert {bytes(key): (offset, bytes(value)) for key, offset, value in rows} == last
        end = ROUNDS * KEYS
        for start in (0, KEYS + 1, end - KEYS, end - 1):
            found = topic.records(end, start)
            expected = [(offset, key) for key, (offset, _) in last.items() if offset >= start]
            assert [(each.offset, each.key) for each in found] == expected
        assert topic.offset_at(-2) == 0
        assert topic.offset_at(0) == end - KEYS
        with broker.connect() as client, client.consumer(start="earliest") as consumer:
            consumer.assign([("state", 0)])
            seen: dict[bytes | None, int] = {}

            def has_read_all() -> bool:
                with consumer.poll(0.1) as batch:
                    seen.update({record.key: record.offset for record in batch})
                return consumer.position("state", 0) == end

            eventually(has_read_all, "the consumer comes to the end")
            assert seen == {key: offset for key, (offset, _) in last.items()}, "the last of each"


def test_a_client_of_librdkafka_reads_the_last_of_each_key_to_the_end(broker: SmqBroker) -> None:
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "readers",
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
    }
    with Cluster(broker.bootstrap) as cluster:
        topic = OneTopic(broker, cluster, "read", COMPACTED)
        last = appended(topic)
        eventually(lambda: is_compacted(topic, KEYS), "it is compacted")
        consumer = Consumer(settings)
        consumer.subscribe(["read"])
        seen: dict[bytes | None, tuple[int | None, bytes | None]] = {}

        def has_read_all() -> bool:
            message = consumer.poll(0.1)
            if message is None:
                return False
            if (error := message.error()) is not None:
                return bool(error.code() == KafkaError._PARTITION_EOF)
            seen[message.key()] = message.offset(), message.value()
            return False

        eventually(has_read_all, "the consumer comes to the end")
        consumer.close()
        assert seen == last


def test_a_record_without_a_key_is_refused(broker: SmqBroker) -> None:
    with Cluster(broker.bootstrap) as cluster:
        topic = OneTopic(broker, cluster, "keyed", COMPACTED)
        answer = topic.produce(write_batch([Record(0, 0, None, b"v")]))
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert topic.append(write_batch([Record(0, 0, b"k", None)])) == 0


def test_a_worker_that_is_killed_begins_anew(broker: SmqBroker) -> None:
    with Cluster(broker.bootstrap) as cluster:
        topic = OneTopic(broker, cluster, "killed", COMPACTED)
        last = appended(topic)
        broker.kill("sealer")
        broker.restart()
        eventually(lambda: is_compacted(topic, KEYS), "its successor compacts it")
        found = topic.records(ROUNDS * KEYS)
        assert [(each.offset, each.value) for each in found] == list(last.values())
