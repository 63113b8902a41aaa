"""What lies under an open transaction in a log without space, as all who read files see it.

More than the log's bytes go by before the transaction ends, so all of it leaves the log.
"""

from collections.abc import Iterator
from contextlib import suppress
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from smq.cli.broker_facts import broker_facts
from smq.client.kafka.admin import delete_topic
from smq.client.kafka.cluster import Cluster
from smq.client.kafka.questions import Question
from smq.model.errors import BrokerError
from smq.store.manifest import open_manifest
from smq.testing.smq_broker import SmqBroker
from smq.wire.generated import apis
from smq.wire.generated.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from smq.wire.records import Record, write_batch
from tests.app.fake_broker import eventually
from tests.broker.one_topic import FILLER_BYTES, SETTINGS, MiB, OneTopic, said, store_of
from tests.broker.test_deaths import COORDINATOR, stopped
from tests.broker.test_lake_tables import rows_of
from tests.clients.test_open_transactions import read

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

OFTEN = {
    **SETTINGS,
    "seal.ms": "1",
    "log.retention.check.interval.ms": "200",
    "filer.sweep.ms": "400",
}
FILLERS = 60  # 24 MB, where the log has 16.
SECONDS_MAX = 30
DESCRIBE_LOG_DIRS = Question(apis.DESCRIBE_LOG_DIRS)
ENDINGS = pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmqBroker]:
    with SmqBroker(tmp_path_factory.mktemp("broker"), OFTEN) as broker:
        yield broker


@pytest.fixture
def cluster(broker: SmqBroker) -> Iterator[Cluster]:
    with Cluster(broker.bootstrap) as cluster:
        yield cluster


def made(broker: SmqBroker, cluster: Cluster, **configs: str) -> OneTopic:
    names = {name.replace("_", "."): value for name, value in configs.items()}
    return OneTopic(broker, cluster, f"busy-{uuid4().hex[:8]}", {"retention.ms": "-1"} | names)


class Open:
    """An open transaction of two records in a topic: one before all fillers, one behind them.

    Another one is aborted in between. Each filler is a number, and zeros.
    """

    def __init__(self, topic: OneTopic) -> None:
        self.topic, self.sent = topic, 0
        self.fill(2)
        self.producer = self._begin()
        self._send(self.producer, b"open-first")
        self.fill(3)
        aborted = self._begin()
        self._send(aborted, b"aborted")
        aborted.abort_transaction(SECONDS_MAX)
        self.fill(FILLERS)
        self._send(self.producer, b"open-last")
        self._last_at = self.sent + 1

    def _begin(self) -> Producer:
        bootstrap = self.topic.broker.bootstrap
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": uuid4().hex})
        producer.init_transactions(SECONDS_MAX)
        producer.begin_transaction()
        return producer

    def _send(self, producer: Producer, value: bytes) -> None:
        producer.produce(self.topic.name, value, key=b"key", partition=0)
        assert producer.flush(SECONDS_MAX) == 0

    def fill(self, count: int) -> None:
        for number in range(self.sent, self.sent + count):
            value = (b"%d" % number).ljust(FILLER_BYTES, b"\0")
            self.topic.append(write_batch([Record(0, 0, b"key %d" % (number % 3), value)]))
        self.sent += count

    def end(self, *, committed: bool) -> list[bytes]:
        """End it; all values that are there then."""
        if committed:
            self.producer.commit_transaction(SECONDS_MAX)
        else:
            self.producer.abort_transaction(SECONDS_MAX)
        values = [b"%d" % number for number in range(self.sent)]
        if committed:
            values[2:2] = [b"open-first"]
            values.insert(self._last_at, b"open-last")
        return values


def undecided(topic: OneTopic) -> list[int]:
    """The sizes of the partition's undecided segments."""
    with open_manifest(topic.broker.data_dir / "store.sqlite") as manifest:
        return [each.bytes for each in manifest.undecided(topic.number)]


def values_of(values: list[bytes]) -> list[bytes]:
    return [value.rstrip(b"\0") for value in values]


@ENDINGS
@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_a_table_gets_it_once_it_is_decided(
    broker: SmqBroker, cluster: Cluster, kind: str, *, committed: bool
) -> None:
    """Use fault 2: each record once, and nothing before."""
    topic = made(broker, cluster, smq_table=kind)

    def table() -> list[bytes]:
        return values_of([value for _, _, value in rows_of(broker, kind, topic.name)])

    transaction = Open(topic)
    eventually(lambda: len(undecided(topic)) > 1, "it is sealed as it was sent")
    eventually(lambda: table() == [b"0", b"1"], "the table ends where the transaction begins")
    assert undecided(topic)
    expected = transaction.end(committed=committed)
    eventually(lambda: table() == expected, "the table has what is decided")
    assert undecided(topic) == []
    assert values_of(read(topic)) == expected
    assert table() == expected


@ENDINGS
def test_compaction_waits_for_the_decision(
    broker: SmqBroker, cluster: Cluster, *, committed: bool
) -> None:
    """Use fault 2: the last of each key is that of the committed records."""
    configs = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0"}
    topic = made(broker, cluster, **configs)
    transaction = Open(topic)
    eventually(lambda: len(undecided(topic)) > 1, "it is sealed as it was sent")
    assert sum(each.record_count for each in topic.segments()) == 2, "nothing behind its start"
    values = transaction.end(committed=committed)
    last = dict(enumerate(values))
    keys = {b"key %d" % (int(value) % 3): value for value in last.values() if value.isdigit()}
    if committed:
        keys[b"key"] = b"open-last"

    def is_compacted() -> bool:
        segments = topic.segments()
        is_done = all(each.compacted_ms for each in segments) and not undecided(topic)
        return is_done and sum(each.record_count for each in segments) == len(keys)

    eventually(is_compacted, "it is compacted")
    found = topic.records(topic.offset_at(-1))
    assert {each.key: (each.value or b"").rstrip(b"\0") for each in found} == keys


def size_told(topic: OneTopic) -> int:
    """The partition's size as DescribeLogDirs has it."""
    asked = DescribableLogDirTopic(topic=topic.name, partitions=[0])
    leader = topic.cluster.broker(topic.cluster.topic(topic.name).leaders[0])
    [directory] = leader.ask(DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(topics=[asked])).results
    size: int = directory.topics[0].partitions[0].partition_size
    return size


def test_undecided_segments_count_in_sizes_and_are_deleted_with_their_topic(
    broker: SmqBroker, cluster: Cluster
) -> None:
    """Use fault 2: DescribeLogDirs and `smq status` left out what had left the log."""
    topic = made(broker, cluster)
    transaction = Open(topic)
    eventually(lambda: sum(undecided(topic)) > 8 * MiB, "it is sealed as it was sent")
    sent = (transaction.sent - 2) * FILLER_BYTES  # Those before it are compressed.
    eventually(lambda: sent < size_told(topic) < sent + 2 * MiB, "all of it is told")
    facts = broker_facts(broker.data_dir, 0.1)
    assert facts is not None
    [row] = [each for each in facts["topics"] if each["name"] == topic.name]
    assert sent < row["sealed_bytes"] + row["unsealed_bytes"] < sent + 2 * MiB
    delete_topic(cluster, topic.name)
    prefix = f"topics/kafka/{topic.name}/"
    eventually(lambda: not [*store_of(broker).list(prefix)], "its files are swept")
    transaction.producer.abort_transaction(SECONDS_MAX)


@ENDINGS
def test_a_coordinator_that_hangs_holds_it_up_and_loses_nothing(
    broker: SmqBroker, cluster: Cluster, *, committed: bool
) -> None:
    """Use fault 2: it gets a line that its sealer has given up, and both go on."""
    topic, other = made(broker, cluster), made(broker, cluster)
    transaction = Open(topic)
    before = said(broker).count("no answer")

    def has_given_up() -> bool:
        with suppress(BrokerError):  # The log has no space left some time.
            other.produce(write_batch([Record(0, 0, None, bytes(FILLER_BYTES))]))
        return said(broker).count("no answer") > before

    with stopped(broker, COORDINATOR):
        eventually(has_given_up, "the sealer asks for no line any more")
    transaction.fill(FILLERS)
    eventually(lambda: len(undecided(topic)) > 1, "it is sealed as it was sent")
    expected = transaction.end(committed=committed)
    for _ in range(2):
        assert values_of(read(topic)) == expected
        topic.wait_sealed(topic.offset_at(-1))
    eventually(lambda: topic.files() == topic.named_files(), "the files as sent are swept")
    assert {each.restarts for each in broker.status().processes.values()} == {0}
