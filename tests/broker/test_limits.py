"""Requests in great number, and scarce resources."""

import os
import resource
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from smq.client.kafka.cluster import Cluster
from smq.model.errors import BrokerError, ErrorCode
from smq.testing import broker as fresh_broker
from smq.testing.smq_broker import SmqBroker
from smq.wire.generated.api_versions import ApiVersionsRequest
from smq.wire.records import Record, read_batches, write_batch
from tests.app.fake_broker import eventually
from tests.app.shard_client import request
from tests.broker.hostile import crowd, descriptors
from tests.broker.one_topic import SETTINGS, MiB, OneTopic, fetch_request
from tests.broker.questions import FETCH

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

SMALL = {name.replace(".", "_"): value for name, value in SETTINGS.items()}


@pytest.fixture
def broker() -> Iterator[SmqBroker]:
    with fresh_broker(**SMALL) as broker:
        yield broker


def one(value: bytes, timestamp_ms: int = 0) -> bytes:
    return write_batch([Record(0, timestamp_ms, None, value)])


# --- descriptors -------------------------------------------------------------------------------


def test_clients_beyond_the_descriptors_wait_and_nothing_acknowledged_is_lost(
    broker: SmqBroker, cluster: Cluster
) -> None:
    topic = OneTopic(broker, cluster, "served")
    topic.append_filler(1)
    shard = broker.status().processes["shard-1"].pid
    _, hard = resource.prlimit(shard, resource.RLIMIT_NOFILE)
    room, acknowledged = 10, set[int]()
    resource.prlimit(shard, resource.RLIMIT_NOFILE, (descriptors(shard) + room, hard))
    question = request("ApiVersions", 0, ApiVersionsRequest())
    with crowd(broker.port, 3 * room, lambda client: client.send(question)) as clients:
        assert all(client.answer() for client in clients[: room - 5])
        before = psutil.Process(shard).cpu_times().user
        for number in range(30):  # There are none left for new files of the log either.
            try:
                answer = topic.produce(one(b"%d" % number + bytes(200_000)))
            except BrokerError:  # A write that failed closes who waits for its ack, and now others
                break  # are first.
            if answer.error_code == ErrorCode.NONE:
                acknowledged.add(number)
        assert psutil.Process(shard).cpu_times().user - before < 2, "it turns in vain"
        resource.prlimit(shard, resource.RLIMIT_NOFILE, (hard, hard))
        assert all(client.answer() for client in clients[room - 5 :])
    cluster.forget()
    end = topic.append(one(b"served again")) + 1
    values = [record.value or b"" for record in topic.records(end)]
    numbers = [int(value.rstrip(b"\0")) for value in values[1:-1]]
    assert acknowledged <= set(numbers)
    assert numbers == sorted(numbers)
    assert broker.status().processes["shard-1"].pid == shard


# --- a disk that is full -----------------------------------------------------------------------


@pytest.mark.parametrize("file_bytes_max", [1000, MiB - 1], ids=["at once", "soon"])
def test_a_disk_that_takes_no_more_refuses_producers_and_serves_readers_until_it_does(
    broker: SmqBroker, cluster: Cluster, file_bytes_max: int
) -> None:
    topic = OneTopic(broker, cluster, "t")
    taken = topic.append_filler(1)
    shard = broker.status().processes["shard-1"].pid
    _, hard = resource.prlimit(shard, resource.RLIMIT_FSIZE)
    resource.prlimit(shard, resource.RLIMIT_FSIZE, (file_bytes_max, hard))
    refused = 0
    while refused < 20:
        try:
            answer = topic.produce(one(bytes(200_000)))
        except BrokerError:  # Who waited for the ack of what could not be written.
            cluster.forget()
            continue
        if answer.error_code == ErrorCode.NONE:
            assert not refused, "a record is taken by a log that cannot be written"
            assert answer.base_offset == taken
            taken += 1
        else:
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            refused += 1
    assert len(topic.records(taken)) == taken
    said = "the log is read-only until it is repaired"
    eventually(lambda: said in broker.output.read_text(), "it is said")
    resource.prlimit(shard, resource.RLIMIT_FSIZE, (hard, hard))
    end = topic.append(one(b"taken again")) + 1
    assert topic.records(end)[-1].value == b"taken again"
    assert broker.status().processes["shard-1"].pid == shard


# --- partitions in one request -----------------------------------------------------------------

PARTITIONS = 700
RECORDS = PARTITIONS + PARTITIONS // 7


class WideReader:
    """Reads the partitions of a topic from their beginning, with one request for all of them."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._leader, self._topic = cluster.broker(1), topic
        self._offsets = dict.fromkeys(range(PARTITIONS), 0)
        self.found: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}

    def fetch(self) -> int:
        """How many records are read by now."""
        rows = self._leader.ask(FETCH, fetch_request(self._topic, self._offsets))
        for row in rows.responses[0].partitions:
            assert row.error_code == ErrorCode.NONE
            assert row.records is None or isinstance(row.records, memoryview)
            for batch in read_batches(row.records or b""):
                self.found[row.partition_index] += [r.value or b"" for r in batch.records()]
                self._offsets[row.partition_index] = batch.last_offset + 1
        assert [row.partition_index for row in rows.responses[0].partitions] == [*self._offsets]
        return sum(self._offsets.values())

    def wait_for_more(self, read: int) -> int:
        eventually(lambda: self.fetch() > read, "more comes from sealed segments")
        return sum(self._offsets.values())


def test_a_fetch_of_hundreds_of_partitions_gives_each_its_own(
    broker: SmqBroker, cluster: Cluster
) -> None:
    topic = OneTopic(broker, cluster, "wide", partitions=PARTITIONS)
    expected = {partition: [b"first of %d" % partition] for partition in range(PARTITIONS)}
    for partition, values in expected.items():
        assert topic.append(one(values[0]), partition) == 0
    for partition in range(0, PARTITIONS, 7):
        expected[partition].append(b"second of %d" % partition)
        assert topic.append(one(expected[partition][1]), partition) == 1
    reader = WideReader(cluster, "wide")
    assert reader.fetch() == RECORDS, "all of it is less than one answer may hold"
    assert reader.found == expected
    wait_all_sealed(broker, cluster, topic)
    reader, read = WideReader(cluster, "wide"), 0
    while read < RECORDS:  # An answer has a few partitions at a time: the rest waits its turn.
        read = reader.wait_for_more(read)
    assert reader.found == expected


def wait_all_sealed(broker: SmqBroker, cluster: Cluster, topic: OneTopic) -> None:
    for partition in range(PARTITIONS):
        topic.wait_sealed(2 if partition % 7 == 0 else 1, partition)
    filler = OneTopic(broker, cluster, "filler")
    filler.append_filler(12)
    filler.wait_recycled(4 * MiB)


# --- a sealer that fails -----------------------------------------------------------------------


def test_times_are_found_although_the_sealer_dies_while_it_is_asked(
    broker: SmqBroker, cluster: Cluster
) -> None:
    topic = OneTopic(broker, cluster, "timed")
    for timestamp_ms in (1000, 2000, 3000):
        topic.append(one(b"v", timestamp_ms))
    topic.seal_and_recycle(3)
    sealer = broker.status().processes["sealer"].pid
    os.kill(sealer, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool, Cluster(broker.bootstrap) as another:
        asked = OneTopic.__new__(OneTopic)
        asked.name, asked.cluster = topic.name, another
        answer = pool.submit(asked.offset_at, 1500)
        assert topic.offset_at(-1) > 3  # What the shard knows itself makes nobody wait.
        broker.kill("sealer")
        assert answer.result() == 1
    assert topic.offset_at(2500) == 2


def test_a_time_whose_segment_is_away_is_an_error_until_it_is_back(
    broker: SmqBroker, cluster: Cluster
) -> None:
    topic = OneTopic(broker, cluster, "timed")
    for timestamp_ms in (1000, 2000, 3000):
        topic.append(one(b"v", timestamp_ms))
    topic.seal_and_recycle(3)
    filer = broker.data_dir / "filer"
    filer.rename(filer.with_name("away"))
    for _ in range(2):
        assert topic.list_offset(1500).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert topic.offset_at(-2) == 0
    for left in filer.parent.glob("filer"):
        left.rename(left.with_name("made meanwhile"))
    filer.with_name("away").rename(filer)
    assert topic.offset_at(1500) == 1
