"""The client against SMQ and against Apache Kafka: one conversation, the same outcome."""

import time
from collections.abc import Iterator

import pytest

from smq.client.client import connect
from smq.client.errors import ProducerFenced
from smq.client.kafka import admin, group_admin
from smq.client.kafka.cluster import Cluster
from smq.client.kafka.offsets import LATEST, OffsetPlace, resolve
from smq.model.errors import BrokerError, ErrorCode
from smq.testing.kafka import Kafka, KafkaUnavailable
from smq.testing.processes import Broker
from smq.testing.smq_broker import SmqBroker
from smq.wire.compression import Codec
from tests.client.reading import read

PARTITIONS = 3
RECORDS = 1000
HEADERS = ((b"h", b"1"), (b"n", None))
DEADLINE_S = 30


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


def produce(cluster: Cluster, topic: str, compression: str = "none") -> dict[int, int]:
    """Send records; the offsets after them, by partition."""
    with (
        connect(cluster.bootstrap, transport="kafka") as client,
        client.producer(compression=compression) as producer,
    ):
        sent = [
            producer.send(
                topic,
                b"%d" % number,
                key=b"%d" % number if number % 2 else None,
                headers=HEADERS,
                timestamp_ms=1_000_000 + number,
            )
            for number in range(RECORDS)
        ]
        places = sorted(future.result(DEADLINE_S)[1:3] for future in sent)
    return {partition: offset + 1 for partition, offset in places}


@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.name)
def test_produced_records_are_consumed(cluster: Cluster, topic: str, codec: Codec) -> None:
    next_offsets = produce(cluster, topic, codec.name.lower())
    ends = resolve(cluster, topic, range(PARTITIONS), LATEST)
    assert {each: end for each, end in ends.items() if end} == next_offsets
    found = read(cluster.bootstrap, topic, ends)
    assert sorted(int(record.value or b"") for record in found) == list(range(RECORDS))
    assert {record.headers for record in found} == {(("h", b"1"), ("n", None))}
    assert all(record.timestamp_ms == 1_000_000 + int(record.value or b"") for record in found)


def test_times_become_offsets(cluster: Cluster, topic: str) -> None:
    produce(cluster, topic)
    ends = resolve(cluster, topic, range(PARTITIONS), LATEST)
    found = read(cluster.bootstrap, topic, ends, start=OffsetPlace(timestamp=1_000_500))
    assert {int(record.value or b"") for record in found} >= set(range(500, RECORDS))
    assert resolve(cluster, topic, range(PARTITIONS), OffsetPlace(timestamp=2_000_000)) == ends


def test_many_partitions_are_read_in_a_session(cluster: Cluster) -> None:
    """Records come in rounds, a few partitions in each: an answer tells only of these."""
    many, rounds, each = 60, 8, 5
    assert admin.create_topic(cluster, "wide", many) == many
    with (
        connect(cluster.bootstrap, transport="kafka") as client,
        client.producer() as producer,
        client.consumer("wide", start="earliest") as consumer,
    ):
        found: list[tuple[int, bytes]] = []
        sent: list[tuple[int, bytes]] = []
        for number in range(rounds):
            new = [((number * 7 + i * 11) % many, b"%d-%d" % (number, i)) for i in range(each)]
            for partition, value in new:
                producer.send("wide", value, partition=partition)
            producer.flush()
            sent += new
            deadline = time.monotonic() + DEADLINE_S
            while len(found) < len(sent):
                assert time.monotonic() < deadline, f"{len(found)} of {len(sent)} records came"
                with consumer.poll(1) as batch:
                    found += [(record.partition, bytes(record.value or b"")) for record in batch]
        assert sorted(found) == sorted(sent)
    admin.delete_topic(cluster, "wide")


def test_transactions_are_seen_whole_or_not_at_all(cluster: Cluster, topic: str) -> None:
    def write(first: int, *, fails: bool) -> None:
        with producer.transaction() as transaction:
            for number in range(first, first + 100):
                producer.send(topic, b"%d" % number)
            transaction.commit_offsets("group", {(topic, 0): first})
            producer.flush()
            if fails:
                raise KeyError(first)

    with connect(cluster.bootstrap, transport="kafka") as client:
        producer = client.producer(transactional_id="talk", compression="lz4")
        for first in range(0, 600, 200):
            write(first, fails=False)
            with pytest.raises(KeyError):
                write(first + 100, fails=True)
        with client.consumer(group="group", start="earliest") as consumer:
            consumer.assign([(topic, 0)])
            assert consumer.committed() == {(topic, 0): 400}
        with client.producer(transactional_id="talk") as successor, successor.transaction():
            successor.send(topic, b"600")
        with pytest.raises(ProducerFenced):
            write(601, fails=False)
        producer.close()
        settings = {"start": "earliest", "isolation_level": "read_committed"}
        with client.consumer(topic, **settings) as consumer:  # type: ignore[arg-type]
            found = [
                int(bytes(r.value or b"")) for r in consumer.read_until(consumer.find("latest"))
            ]
    assert sorted(found) == [*range(100), *range(200, 300), *range(400, 500), 600]
    group_admin.delete_group(cluster, "group")


def test_topics_and_their_settings_are_listed(cluster: Cluster, topic: str) -> None:
    own = [
        each
        for each in admin.topic_configs(cluster, topic)
        if each.config_source == admin.SOURCE_TOPIC
    ]
    assert [(each.name, each.value) for each in own] == [("retention.ms", "-1")]
    assert "talk" in [each.name for each in cluster.topics()]
    assert admin.group_lags(cluster, "nobody") == []
    assert admin.groups(cluster) == []


def test_invalid_topics_and_offsets_are_refused(cluster: Cluster, topic: str) -> None:
    for name, code in (
        (topic, ErrorCode.TOPIC_ALREADY_EXISTS),
        ("not/a/name", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ):
        with pytest.raises(BrokerError) as raised:
            admin.create_topic(cluster, name)
        assert raised.value.code == code
    with pytest.raises(BrokerError, match=f"{topic}-0 has no offset 99"):
        read(cluster.bootstrap, topic, {0: 100}, start=99)


def test_a_topic_that_is_created_again_is_read_from_its_beginning(
    cluster: Cluster, topic: str
) -> None:
    with (
        connect(cluster.bootstrap, transport="kafka") as client,
        client.consumer(topic, group="again", start="earliest") as consumer,
    ):
        for first in (0, 10_000, 20_000):
            with client.producer() as producer:
                for number in range(first, first + RECORDS + first):
                    producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
            found: list[int] = []
            deadline = time.monotonic() + DEADLINE_S
            while len(found) < RECORDS + first:
                assert time.monotonic() < deadline, f"{len(found)} records came"
                with consumer.poll(1) as batch:
                    found += [int(bytes(record.value or b"")) for record in batch]
            assert sorted(found) == [*range(first, first + RECORDS + first)]
            consumer.commit()
            admin.delete_topic(cluster, topic)
            admin.create_topic(cluster, topic, PARTITIONS)
            assert consumer.committed() == {}
