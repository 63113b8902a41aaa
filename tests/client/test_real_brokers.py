"""The client against SMQ and against Apache Kafka: one conversation, the same outcome."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from smq.client import admin
from smq.client.cluster import Cluster
from smq.client.errors import NoSuchTopic
from smq.client.line_producer import Producer
from smq.client.offsets import LATEST, Place, resolve
from smq.model.errors import BrokerError, ErrorCode
from smq.testing.kafka import Kafka, KafkaUnavailable
from smq.testing.processes import Broker
from smq.testing.smq_broker import SmqBroker
from smq.wire.compression import Codec
from tests.client.reading import read

PARTITIONS = 3
RECORDS = 1000
HEADERS = ((b"h", b"1"), (b"n", None))


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("smq", marks=pytest.mark.slow),
        pytest.param("kafka", marks=pytest.mark.oracle),
    ],
)
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    directory = tmp_path_factory.mktemp(request.param)
    try:
        is_smq = request.param == "smq"
        started = SmqBroker(directory, {"shards": "2"}) if is_smq else Kafka(directory)
    except KafkaUnavailable as reason:
        pytest.skip(str(reason))
    with started:
        yield started


@pytest.fixture
def cluster(broker: Broker) -> Iterator[Cluster]:
    with Cluster(broker.bootstrap) as connected:
        yield connected


@pytest.fixture
def topic(cluster: Cluster) -> Iterator[str]:
    assert admin.create_topic(cluster, "talk", PARTITIONS, {"retention.ms": "-1"}) == PARTITIONS
    yield "talk"
    admin.delete_topic(cluster, "talk")


def produce(cluster: Cluster, topic: str, codec: Codec) -> Producer:
    producer = Producer(cluster, topic, codec)
    for number in range(RECORDS):
        key = b"%d" % number if number % 2 else None
        producer.add(b"%d" % number, 1_000_000 + number, key, HEADERS)
    producer.flush()
    return producer


@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.name)
def test_what_is_produced_is_consumed(cluster: Cluster, topic: str, codec: Codec) -> None:
    producer = produce(cluster, topic, codec)
    ends = resolve(cluster, topic, range(PARTITIONS), LATEST)
    assert {each: end for each, end in ends.items() if end} == producer.next_offsets
    found = read(cluster.bootstrap, topic, ends)
    assert sorted(int(record.value or b"") for record in found) == list(range(RECORDS))
    assert {record.headers for record in found} == {(("h", b"1"), ("n", None))}
    assert all(record.timestamp_ms == 1_000_000 + int(record.value or b"") for record in found)


def test_times_become_offsets(cluster: Cluster, topic: str) -> None:
    produce(cluster, topic, Codec.NONE)
    ends = resolve(cluster, topic, range(PARTITIONS), LATEST)
    found = read(cluster.bootstrap, topic, ends, start=Place(timestamp=1_000_500))
    assert {int(record.value or b"") for record in found} >= set(range(500, RECORDS))
    assert resolve(cluster, topic, range(PARTITIONS), Place(timestamp=2_000_000)) == ends


def test_settings_and_topics_are_told(cluster: Cluster, topic: str) -> None:
    own = [
        each
        for each in admin.topic_configs(cluster, topic)
        if each.config_source == admin.SOURCE_TOPIC
    ]
    assert [(each.name, each.value) for each in own] == [("retention.ms", "-1")]
    assert "talk" in [each.name for each in cluster.topics()]
    assert admin.group_lags(cluster, "nobody") == []
    assert admin.groups(cluster) == []


def test_what_cannot_be_is_refused(cluster: Cluster, topic: str) -> None:
    with pytest.raises(NoSuchTopic):
        Producer(cluster, "nope")
    for name, code in (
        (topic, ErrorCode.TOPIC_ALREADY_EXISTS),
        ("not/a/name", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ):
        with pytest.raises(BrokerError) as raised:
            admin.create_topic(cluster, name)
        assert raised.value.code == code
    with pytest.raises(BrokerError, match=f"{topic}-0 has no offset 99"):
        read(cluster.bootstrap, topic, {0: 100}, start=99)


@pytest.mark.slow
def test_shards_killed_in_between_lose_double_and_reorder_nothing(tmp_path: Path) -> None:
    with SmqBroker(tmp_path, {"shards": "2"}) as smq, Cluster(smq.bootstrap) as cluster:
        admin.create_topic(cluster, "killed", 2)
        producer = Producer(cluster, "killed")
        for number in range(RECORDS):
            producer.add(b"%d" % number, 0, partition=number % 2)
            if number % 100 == 99:
                if number % 400 == 199:
                    smq.kill(f"shard-{1 + number // 400 % 2}")
                producer.flush()
        ends = resolve(cluster, "killed", range(2), LATEST)
        found: dict[int, list[int]] = {0: [], 1: []}
        for record in read(smq.bootstrap, "killed", ends):
            found[record.partition].append(int(record.value or b""))
    assert producer.acknowledged == RECORDS
    assert found == {each: list(range(each, RECORDS, 2)) for each in range(2)}
