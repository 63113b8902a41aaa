"""Transactions of unmodified clients: committed records are seen, aborted ones never."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import smq
from smq.testing.processes import Broker
from tests.clients.brokers import running

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]

SECONDS_MAX = 30
PARTITIONS = 3


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running(tmp_path_factory.mktemp("broker")) as started:
        yield started


@pytest.fixture
def topic(broker: Broker) -> str:
    name = f"t-{uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_topics([NewTopic(name, PARTITIONS, 1)]).values():
        future.result(SECONDS_MAX)
    return name


def producer_of(broker: Broker, name: str, timeout_ms: int = 60_000) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": timeout_ms,
        }
    )
    producer.init_transactions(SECONDS_MAX)
    return producer


def produce(producer: Producer, topic: str, *values: str) -> None:
    for place, value in enumerate(values):
        producer.produce(topic, value.encode(), partition=place % PARTITIONS)


def read(broker: Broker, topic: str, isolation: str = "read_committed") -> set[str]:
    """All values up to the end that is seen with this isolation."""
    reader = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": uuid4().hex,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    reader.assign([TopicPartition(topic, i, OFFSET_BEGINNING) for i in range(PARTITIONS)])
    found: list[str] = []
    ended: set[int | None] = set()
    while len(ended) < PARTITIONS:
        message = reader.poll(SECONDS_MAX)
        assert message is not None, f"no end of {topic} within {SECONDS_MAX} s"
        if message.error() is not None:
            ended.add(message.partition())
        else:
            found.append((message.value() or b"").decode())
    reader.close()
    assert len(set(found)) == len(found), "nothing is read twice"
    return set(found)


def test_committed_records_are_visible_and_aborted_ones_never(broker: Broker, topic: str) -> None:
    producer = producer_of(broker, topic)
    committed: set[str] = set()
    for number in range(20):
        values = [f"{number}-{place}" for place in range(9)]
        producer.begin_transaction()
        produce(producer, topic, *values)
        producer.flush(SECONDS_MAX)
        assert read(broker, topic) == committed, "nothing is seen before it is decided"
        if number % 3:
            producer.commit_transaction(SECONDS_MAX)
            committed |= set(values)
        else:
            producer.abort_transaction(SECONDS_MAX)
    assert read(broker, topic) == committed
    assert len(read(broker, topic, "read_uncommitted")) == 180


@pytest.mark.parametrize("transport", ["shared memory", "kafka"])
def test_our_consumers_choose_what_they_read(broker: Broker, topic: str, transport: str) -> None:
    producer = producer_of(broker, topic)
    committed: list[bytes] = []

    def told(consumer: smq.Consumer, count: int) -> list[bytes]:
        found: list[bytes] = []
        while len(found) < count:
            with consumer.poll(SECONDS_MAX) as batch:
                assert batch, f"{found} and no more within {SECONDS_MAX} s"
                found += [bytes(record.value or b"") for record in batch]
        return found

    with smq.connect(broker.bootstrap, transport=transport) as client:
        careful = client.consumer(topic, start="earliest", isolation_level="read_committed")
        hasty = client.consumer(topic, start="earliest")
        for number in range(6):
            values = [f"{number}-{place}" for place in range(9)]
            producer.begin_transaction()
            produce(producer, topic, *values)
            producer.flush(SECONDS_MAX)
            assert sorted(told(hasty, 9)) == [value.encode() for value in values]
            assert not careful.poll(0), "nothing is seen before it is decided"
            if number % 2:
                producer.commit_transaction(SECONDS_MAX)
                committed += [value.encode() for value in values]
                assert sorted(told(careful, 9)) == committed[-9:]
            else:
                producer.abort_transaction(SECONDS_MAX)
        again = client.consumer(topic, start="earliest", isolation_level="read_committed")
        assert sorted(told(again, len(committed))) == committed
        assert again.statistics().resets == 0


def test_a_producer_that_begins_fences_the_one_before(broker: Broker, topic: str) -> None:
    zombie = producer_of(broker, topic)
    zombie.begin_transaction()
    produce(zombie, topic, "a", "b", "c")
    zombie.flush(SECONDS_MAX)
    producer = producer_of(broker, topic)
    with pytest.raises(KafkaException) as raised:
        zombie.commit_transaction(SECONDS_MAX)
    assert raised.value.args[0].fatal()
    producer.begin_transaction()
    produce(producer, topic, "d")
    producer.commit_transaction(SECONDS_MAX)
    assert read(broker, topic) == {"d"}


def test_a_transaction_past_its_timeout_is_aborted(broker: Broker, topic: str) -> None:
    producer = producer_of(broker, topic, timeout_ms=1000)
    producer.begin_transaction()
    produce(producer, topic, "late")
    producer.flush(SECONDS_MAX)
    other = producer_of(broker, f"{topic}-other")
    other.begin_transaction()
    produce(other, topic, "good")
    other.commit_transaction(SECONDS_MAX)
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": uuid4().hex,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    message = consumer.poll(SECONDS_MAX)  # It waits for the decision about what is before.
    consumer.close()
    assert message is not None
    assert message.value() == b"good"
    with pytest.raises(KafkaException):
        producer.commit_transaction(SECONDS_MAX)


@pytest.mark.parametrize("commits", [True, False])
def test_offsets_are_committed_with_the_records(broker: Broker, topic: str, commits: bool) -> None:
    source = producer_of(broker, f"{topic}-source")
    source.begin_transaction()
    produce(source, topic, *map(str, range(9)))
    source.commit_transaction(SECONDS_MAX)
    group = f"{topic}-group"
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": group, "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    producer = producer_of(broker, topic)
    producer.begin_transaction()
    for _ in range(3):
        message = consumer.poll(SECONDS_MAX)
        assert message is not None
        producer.produce(topic, b"copy of " + (message.value() or b""), partition=1)
    positions = consumer.position([TopicPartition(topic, 0)])
    metadata = consumer.consumer_group_metadata()
    producer.send_offsets_to_transaction(positions, metadata, SECONDS_MAX)
    if commits:
        producer.commit_transaction(SECONDS_MAX)
    else:
        producer.abort_transaction(SECONDS_MAX)
    [committed] = consumer.committed([TopicPartition(topic, 0)], SECONDS_MAX)
    consumer.close()
    assert committed.offset == (positions[0].offset if commits else -1001)
    copies = {value for value in read(broker, topic) if value.startswith("copy")}
    assert len(copies) == (3 if commits else 0)


@pytest.mark.parametrize("name", ["coordinator", "shard-1", "shard-2"])
def test_transactions_outlive_the_death_of_a_process(tmp_path: Path, name: str) -> None:
    """A process is killed in the middle of each of some transactions, whatever it is doing."""
    with running(tmp_path) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for future in admin.create_topics([NewTopic("t", PARTITIONS, 1)]).values():
            future.result(SECONDS_MAX)
        producer = producer_of(broker, "t")
        committed: set[str] = set()
        for number in range(6):
            producer.begin_transaction()
            values = [f"{number}-{place}" for place in range(300)]
            produce(producer, "t", *values)
            if number % 2:
                broker.kill(name)
            if _ended(producer):
                committed |= set(values)
        assert read(broker, "t") == committed


def _ended(producer: Producer) -> bool:
    """Commit, as a program does that knows librdkafka; whether it is committed."""
    for _ in range(SECONDS_MAX):
        try:
            producer.commit_transaction(SECONDS_MAX)
        except KafkaException as reason:
            error = reason.args[0]
            if error.txn_requires_abort():
                with suppress(KafkaException):
                    producer.abort_transaction(SECONDS_MAX)
                return False
            assert error.retriable(), error
        else:
            return True
    raise AssertionError("no decision")
