"""One open transaction in a busy partition does not fill the log: unmodified clients, use fault 2.

More than the log's bytes go by in the partition before the transaction ends.
"""

import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

import smq
from smq.client.kafka.cluster import Cluster
from smq.store.manifest import Manifest, open_manifest
from smq.testing.smq_broker import SmqBroker
from tests.app.fake_broker import eventually
from tests.broker.one_topic import FILLER_BYTES, SETTINGS, OneTopic, query

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]

SECONDS_MAX = 30
FILLERS = 60  # 24 MB, where the log has 16.
OPEN_FIRST, OPEN_LAST = b"open-first", b"open-last"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmqBroker]:
    with SmqBroker(tmp_path_factory.mktemp("broker"), SETTINGS) as broker:
        yield broker


@pytest.fixture
def topic(broker: SmqBroker) -> Iterator[OneTopic]:
    with Cluster(broker.bootstrap) as cluster:
        forever = {"retention.ms": "-1"}  # Fillers have no time of today.
        yield OneTopic(broker, cluster, f"busy-{uuid4().hex[:8]}", forever)


def transaction(broker: SmqBroker, name: str = "") -> Producer:
    name = name or uuid4().hex
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name})
    producer.init_transactions(SECONDS_MAX)
    producer.begin_transaction()
    return producer


def send(producer: Producer, topic: OneTopic, value: bytes) -> None:
    producer.produce(topic.name, value, partition=0)
    assert producer.flush(SECONDS_MAX) == 0


def undecided_of(topic: OneTopic) -> int:
    """How many undecided segments the topic's partition has."""
    with open_manifest(topic.broker.data_dir / "store.sqlite") as manifest:
        assert isinstance(manifest, Manifest)
        return len(manifest.undecided(topic.number))


def busy(topic: OneTopic, producer: Producer) -> None:
    """An open transaction, whose first record has left the log; another, aborted in between."""
    topic.append_filler(1)
    send(producer, topic, OPEN_FIRST)
    topic.append_filler(5)
    other = transaction(topic.broker)
    send(other, topic, b"aborted")
    other.abort_transaction(SECONDS_MAX)
    topic.append_filler(FILLERS)
    send(producer, topic, OPEN_LAST)


def expected(*, committed: bool) -> list[bytes]:
    """What is not a filler."""
    return [OPEN_FIRST, OPEN_LAST] if committed else []


def read(topic: OneTopic, isolation: str = "read_committed") -> list[bytes]:
    """All values as librdkafka reads them; fillers by their length."""
    reader = Consumer(
        {
            "bootstrap.servers": topic.broker.bootstrap,
            "group.id": uuid4().hex,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    reader.assign([TopicPartition(topic.name, 0, OFFSET_BEGINNING)])
    found: list[bytes] = []
    while True:
        message = reader.poll(SECONDS_MAX)
        assert message is not None, "no end"
        if message.error() is not None:
            break
        found.append(message.value() or b"")
    reader.close()
    return found


def read_with_kafka_python(topic: OneTopic, end: int) -> list[bytes]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from kafka import (  # noqa: PLC0415  (Its import warns.)
            KafkaConsumer,
            TopicPartition as KafkaPythonPartition,
        )
    reader = KafkaConsumer(
        bootstrap_servers=topic.broker.bootstrap,
        isolation_level="read_committed",
        enable_auto_commit=False,
    )
    place = KafkaPythonPartition(topic.name, 0)
    reader.assign([place])
    reader.seek(place, 0)
    found: list[bytes] = []

    def reached() -> bool:
        for rows in reader.poll(timeout_ms=1000).values():
            found.extend(row.value for row in rows)
        return bool(reader.position(place) >= end)

    eventually(reached, "kafka-python reads to the end")
    reader.close()
    return found


def small(values: list[bytes]) -> list[bytes]:
    return [each for each in values if len(each) < 100]


def test_a_busy_partition_goes_on_under_an_open_transaction(topic: OneTopic) -> None:
    """Use fault 2: all producers of the shard were refused until the transaction's timeout."""
    producer = transaction(topic.broker)
    busy(topic, producer)
    assert undecided_of(topic) > 0
    other = OneTopic(topic.broker, topic.cluster, f"other-{uuid4().hex[:8]}")
    other.append_filler(30)
    assert read(topic) == read(topic)[:1]
    everything = read(topic, "read_uncommitted")
    assert small(everything) == [OPEN_FIRST, b"aborted", OPEN_LAST]
    assert len(everything) == FILLERS + 6 + 3
    producer.abort_transaction(SECONDS_MAX)


@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("killed", ["", "shard-1", "sealer", "all"])
def test_records_sealed_under_an_open_transaction_are_visible_once_it_is_decided(
    topic: OneTopic,
    killed: str,
    committed: bool,
) -> None:
    """Use fault 2: the same before and after the undecided files are sealed."""
    producer = transaction(topic.broker)
    busy(topic, producer)
    if killed == "all":
        topic.broker.kill("supervisor")
        topic.broker.restart()
        topic.cluster.forget()
    elif killed:
        topic.broker.kill(killed)
        topic.cluster.forget()
    topic.broker.restart()
    assert [len(each) for each in read(topic)] == [FILLER_BYTES]
    if committed:
        producer.commit_transaction(SECONDS_MAX)
    else:
        producer.abort_transaction(SECONDS_MAX)
    for _ in range(2):
        values = read(topic)
        assert small(values) == expected(committed=committed)
        assert len(values) == FILLERS + 6 + len(expected(committed=committed))
        eventually(lambda: undecided_of(topic) == 0, "what is decided is sealed")
    end = topic.offset_at(-1)
    topic.wait_sealed(end)
    values = read_with_kafka_python(topic, end)
    assert small(values) == expected(committed=committed)
    assert len(values) == FILLERS + 6 + len(expected(committed=committed))


def smq_says(*arguments: str) -> str:
    """What a verb of the command line prints."""
    command = [str(Path(sys.executable).with_name("smq")), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def read_with_the_sdk(topic: OneTopic, transport: str) -> list[bytes]:
    """All committed values, over Kafka's protocol or through the local door."""
    with (
        smq.connect(topic.broker.bootstrap, transport=transport) as client,
        client.consumer(start="earliest", isolation_level="read_committed") as consumer,
    ):
        consumer.assign([(topic.name, 0)])
        end = consumer.find("latest")
        return [bytes(each.value or b"") for each in consumer.read_until(end)]


def copied(topic: OneTopic) -> list[bytes]:
    """The values of a copy of the topic."""
    name = f"copy-{uuid4().hex[:8]}"
    smq_says("copy", topic.name, name, "--bootstrap", topic.broker.bootstrap)
    copy = OneTopic.__new__(OneTopic)
    copy.broker, copy.cluster, copy.name = topic.broker, topic.cluster, name
    return read(copy)


def exported(topic: OneTopic, directory: Path) -> list[bytes]:
    """The values of an exported file."""
    file = directory / f"{uuid4().hex}.parquet"
    smq_says("export", topic.name, str(file), "--bootstrap", topic.broker.bootstrap)
    return [row[0] for row in query(f"SELECT value FROM '{file}' ORDER BY \"offset\"")]


def in_sql(topic: OneTopic) -> str:
    """How many records `smq sql` sees, and the values that are no fillers."""
    question = (
        "SELECT count(*), string_agg(value, ' ' ORDER BY \"offset\") "
        f'FILTER (length(value) < 100) FROM "{topic.name}"'
    )
    where = "--data-dir", str(topic.broker.data_dir), "--format", "csv"
    return smq_says("sql", question, *where).splitlines()[1]


@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
def test_programs_of_ours_see_it_once_it_is_decided(
    topic: OneTopic,
    tmp_path: Path,
    committed: bool,
) -> None:
    """Use fault 2: SQL, the SDK, copies and exports, before the undecided files are sealed and
    after."""
    producer = transaction(topic.broker)
    busy(topic, producer)
    assert undecided_of(topic) > 0
    assert in_sql(topic) == "1,"
    ways: list[Callable[[], list[bytes]]] = [
        partial(read_with_the_sdk, topic, "kafka"),
        partial(read_with_the_sdk, topic, "shared memory"),
        partial(copied, topic),
    ]
    assert [len(way()) for way in ways] == [1, 1, 1]
    everything = [OPEN_FIRST, b"aborted", OPEN_LAST]
    assert small(exported(topic, tmp_path)) == everything
    if committed:
        producer.commit_transaction(SECONDS_MAX)
    else:
        producer.abort_transaction(SECONDS_MAX)
    seen = f"{FILLERS + 8},open-first open-last" if committed else f"{FILLERS + 6},"
    assert in_sql(topic) == seen
    for way in ways:
        assert small(way()) == expected(committed=committed)
    topic.wait_sealed(topic.offset_at(-1))
    assert in_sql(topic) == seen
    ways.append(partial(exported, topic, tmp_path))
    for way in ways:
        values = way()
        assert small(values) == expected(committed=committed)
        assert len(values) == FILLERS + 6 + len(expected(committed=committed))


def test_records_are_deleted_and_looked_up_by_time_under_an_open_transaction(
    topic: OneTopic,
) -> None:
    """Use fault 2: DeleteRecords into an undecided range, ListOffsets by time in one."""
    producer = transaction(topic.broker)
    topic.append_filler(1, timestamp_ms=1000)
    send(producer, topic, OPEN_FIRST)
    end = topic.append_filler(FILLERS, timestamp_ms=2000)
    end = topic.append_filler(FILLERS // 2, timestamp_ms=3000)
    eventually(lambda: undecided_of(topic) > 1, "it is sealed as it was sent")
    assert topic.offset_at(1000) == 0
    assert topic.offset_at(3000) == 1  # The open one's own time is that of its sending.
    admin = AdminClient({"bootstrap.servers": topic.broker.bootstrap})
    wanted = 10
    [deleted] = admin.delete_records([TopicPartition(topic.name, 0, wanted)]).values()
    assert deleted.result(SECONDS_MAX).low_watermark == wanted
    values = read(topic, "read_uncommitted")
    assert len(values) == end - wanted
    assert topic.offset_at(2000) == wanted
    assert topic.offset_at(3000) == FILLERS + 2
    producer.commit_transaction(SECONDS_MAX)
    assert len(read(topic)) == end - wanted
    eventually(lambda: undecided_of(topic) == 0, "what is decided is sealed")
    assert len(read(topic)) == end - wanted


def test_a_snapshot_over_what_is_not_decided_is_restored(topic: OneTopic, tmp_path: Path) -> None:
    """Use fault 2: its transaction is aborted there."""
    name = uuid4().hex
    producer = transaction(topic.broker, name)
    busy(topic, producer)
    assert undecided_of(topic) > 0
    where = "--data-dir", str(topic.broker.data_dir)
    smq_says("snapshot", str(tmp_path / "s"), *where)
    producer.commit_transaction(SECONDS_MAX)
    target = tmp_path / "b" / "data"
    smq_says("restore", str(tmp_path / "s"), "--data-dir", str(target))
    with SmqBroker(tmp_path / "b", SETTINGS) as broker, Cluster(broker.bootstrap) as cluster:
        restored = OneTopic.__new__(OneTopic)
        restored.broker, restored.cluster, restored.name = broker, cluster, topic.name
        restored.number = topic.number
        count = FILLERS + 6
        eventually(lambda: len(read(restored)) == count, "what was open at the cut is aborted")
        assert small(read(restored)) == []
        eventually(lambda: undecided_of(restored) == 0, "what is decided is sealed")
        assert [small(values := read(restored)), len(values)] == [[], count]
        again = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name})
        again.init_transactions(SECONDS_MAX)
