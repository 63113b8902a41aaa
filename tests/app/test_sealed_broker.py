"""A whole broker that seals: deaths of any process, retention, and a filer that is down."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shm.kernels import records_reference as plain
from shm.kernels.words import BATCH_HEADER_BYTES
from smq.app.clock import wall_ms
from smq.client.admin import create_topic
from smq.client.cluster import Cluster, check
from smq.client.consumer import LIST_OFFSETS, Consumer
from smq.client.line_producer import INIT_PRODUCER_ID, PRODUCE
from smq.model.errors import BrokerError
from smq.store.manifest import open_manifest
from smq.store.rows import Segment
from smq.testing.records import INT64_MAX, YEAR_2263_MS
from smq.testing.smq_broker import SmqBroker
from smq.wire.compression import Codec
from smq.wire.generated.init_producer_id import InitProducerIdRequest
from smq.wire.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from smq.wire.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from smq.wire.records import Batch, Record, write_batch

pytestmark = pytest.mark.slow

TOPIC = "strange"
SETTINGS = {
    "wal.segment.bytes": "1MiB",
    "ring.bytes": "4MiB",
    "wal.bytes.max": "16MiB",
    "seal.ms": "300",
    "message.max.bytes": "300000",
}
ANY_TIME = {"message.timestamp.after.max.ms": str(INT64_MAX)}
FILLER_BATCHES, FILLER_BYTES = 60, 200_000  # Enough to overtake the ring and every WAL segment.
FILLER = write_batch([Record(0, 7, None, bytes(FILLER_BYTES))])
DEADLINE_S = 30
STRANGE = [
    Record(0, -1, None, None),
    Record(1, 0, b"", b""),
    Record(2, YEAR_2263_MS, b"k", None, ((b"twice", b"1"), (b"twice", None), (b"", b""))),
    Record(3, INT64_MAX, None, b"v" * 5000),
    Record(4, 5, b"not text", b"v", ((b"\xff\xfe", b"1"),)),
    Record(5, 6, b"k", b"\0" * 3000),
]
GARBAGE_OFFSET = len(STRANGE)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SmqBroker]:
    with SmqBroker(tmp_path, SETTINGS) as broker:
        yield broker


def _produce(cluster: Cluster, batch: bytes) -> None:
    data = PartitionProduceData(index=0, records=batch)
    request = ProduceRequest(
        acks=-1,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])],
    )
    [topic] = cluster.broker(cluster.topic(TOPIC).leaders[0]).ask(PRODUCE, request).responses
    check(topic.partition_responses[0].error_code)


def _produce_all(cluster: Cluster) -> int:
    """Send what is strange, a batch each in every compression, garbage, and filler; the end."""
    for record in STRANGE:
        codec = list(Codec)[record.offset % len(Codec)]
        _produce(cluster, write_batch([record._replace(offset=0)], compression=codec))
    nothing = plain.PlainRecord(0, 0, None, None)
    _produce(cluster, plain.batch([nothing], end_offset=1, inflated=b"garbage, its CRC good"))
    _produce_filler(cluster)
    return GARBAGE_OFFSET + 1 + FILLER_BATCHES


def _produce_filler(cluster: Cluster) -> None:
    for _ in range(FILLER_BATCHES):
        _produce(cluster, FILLER)


def _segments(broker: SmqBroker) -> list[Segment]:
    with open_manifest(broker.data_dir / "store.sqlite") as manifest:
        [topic] = [each for each in manifest.topics() if each.name == TOPIC]
        return manifest.segments(topic.partition_numbers[0])


def _wait_sealed(broker: SmqBroker, end: int) -> list[Segment]:
    deadline = time.monotonic() + DEADLINE_S
    while not (segments := _segments(broker)) or segments[-1].end_offset < end:
        assert time.monotonic() < deadline, f"sealed: {segments}"
        time.sleep(0.05)
    return segments


def _wait_recycled(broker: SmqBroker) -> None:
    """Until the segment with the first offsets is gone from the write-ahead log."""
    first = broker.data_dir / "logs" / "0" / f"{0:020d}.wal"
    deadline = time.monotonic() + DEADLINE_S
    while first.exists():
        assert time.monotonic() < deadline, "the first segment is still there"
        time.sleep(0.05)


def _fetched(cluster: Cluster, end: int) -> list[Batch]:
    consumer, batches = Consumer(cluster, TOPIC, {0: 0}), list[Batch]()
    while consumer.offsets[0] < end:
        for _, batch in consumer._fetch([0]):
            batches.append(batch)
            consumer.offsets[0] = batch.last_offset + 1
    return batches


def _expected(batches: list[Batch], end: int) -> None:
    """What was sent, and nothing else, in order."""
    records = {
        record.offset: record
        for batch in batches
        if batch.base_offset != GARBAGE_OFFSET
        for record in batch.records()
    }
    assert sorted([*records, GARBAGE_OFFSET]) == list(range(end))
    assert [records[record.offset] for record in STRANGE] == STRANGE
    assert records[end - 1] == Record(end - 1, 7, None, bytes(FILLER_BYTES))
    [garbage] = [batch for batch in batches if batch.base_offset == GARBAGE_OFFSET]
    assert bytes(garbage.data[BATCH_HEADER_BYTES:]) == b"garbage, its CRC good"


def _offset_at(cluster: Cluster, timestamp: int) -> tuple[int, int]:
    wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=TOPIC, partitions=[wanted])])
    leader = cluster.broker(cluster.topic(TOPIC).leaders[0])
    answer = leader.ask(LIST_OFFSETS, request).topics[0].partitions[0]
    check(answer.error_code)
    return answer.offset, answer.timestamp


def test_everything_comes_back_whoever_was_killed(broker: SmqBroker) -> None:
    with Cluster(broker.bootstrap) as cluster:
        create_topic(cluster, TOPIC, 1, ANY_TIME)
        end = _produce_all(cluster)
        segments = _wait_sealed(broker, end)
        assert {segment.kind for segment in segments} == {"parquet", "raw"}
        _wait_recycled(broker)
        _expected(_fetched(cluster, end), end)
        assert _offset_at(cluster, 0)[0] == 1
        assert _offset_at(cluster, YEAR_2263_MS + 1) == (3, INT64_MAX)
    for process in ("sealer", "shard-1", "coordinator", "supervisor"):
        broker.kill(process)
        broker.restart()
        with Cluster(broker.bootstrap) as cluster:
            _expected(_fetched(cluster, end), end)


def test_retention_moves_the_start_and_deletes_the_files(tmp_path: Path) -> None:
    settings = {**SETTINGS, "log.retention.check.interval.ms": "100", "log.retention.ms": "1"}
    with SmqBroker(tmp_path, settings) as broker, Cluster(broker.bootstrap) as cluster:
        create_topic(cluster, TOPIC, 1, ANY_TIME)
        _produce_filler(cluster)
        deadline = time.monotonic() + DEADLINE_S
        while (start := _offset_at(cluster, -2)[0]) < FILLER_BATCHES:
            assert time.monotonic() < deadline, f"the log starts at {start}"
            time.sleep(0.05)
        files = broker.data_dir / "filer" / "topics" / "kafka" / TOPIC / "partition=0"
        while left := list(files.iterdir()):
            assert time.monotonic() < deadline, f"these are still there: {left}"
            time.sleep(0.05)
        assert _offset_at(cluster, -1)[0] == FILLER_BATCHES


def test_while_the_filer_is_down_the_log_stays_bounded_and_says_so(tmp_path: Path) -> None:
    filer, bytes_max = tmp_path / "filer", 8 * 1024 * 1024
    filer.write_bytes(b"a file where a directory should be")
    settings = {**SETTINGS, "wal.bytes.max": str(bytes_max), "filer.root": str(filer)}
    with SmqBroker(tmp_path, settings) as broker, Cluster(broker.bootstrap) as cluster:
        create_topic(cluster, TOPIC, 1, ANY_TIME)
        with pytest.raises(BrokerError, match="KAFKA_STORAGE_ERROR"):
            _fill(cluster)
        segments = (broker.data_dir / "logs" / "0").glob("*.wal")
        assert sum(segment.stat().st_size for segment in segments) <= bytes_max
        deadline = time.monotonic() + DEADLINE_S
        while f"{filer}: files cannot be kept there" not in (tmp_path / "output.log").read_text():
            assert time.monotonic() < deadline, "nobody says what is wrong"
            time.sleep(0.05)
        filer.unlink()
        while not _takes(cluster):
            assert time.monotonic() < deadline, "producers are still refused"
            time.sleep(0.05)
        end, _ = _offset_at(cluster, -1)
        assert [batch.last_offset for batch in _fetched(cluster, end)][-1] == end - 1


def _fill(cluster: Cluster) -> None:
    for _ in range(100):
        _produce_filler(cluster)
        time.sleep(0.1)


def _takes(cluster: Cluster) -> bool:
    try:
        _produce(cluster, FILLER)
    except BrokerError:
        return False
    return True


@pytest.mark.parametrize("killed", ["shard-1", "sealer", "supervisor"])
def test_a_retry_from_before_the_sealing_is_no_duplicate(broker: SmqBroker, killed: str) -> None:
    with Cluster(broker.bootstrap) as cluster:
        create_topic(cluster, TOPIC, 1, ANY_TIME)
        given = cluster.anyone().ask(INIT_PRODUCER_ID, InitProducerIdRequest(transactional_id=None))
        check(given.error_code)
        batch = write_batch(
            [Record(0, wall_ms(), None, b"once")],  # A producer is forgotten by its records' time.
            producer_id=given.producer_id,
            producer_epoch=given.producer_epoch,
            base_sequence=0,
        )
        _produce(cluster, batch)
        _produce_filler(cluster)
        end = 1 + FILLER_BATCHES
        _wait_sealed(broker, end)
        _wait_recycled(broker)
    broker.kill(killed)
    broker.restart()
    with Cluster(broker.bootstrap) as cluster:
        _produce(cluster, batch)
        assert _offset_at(cluster, -1)[0] == end
        batches = _fetched(cluster, end)
        values = [record.value for each in batches for record in each.records()]
        assert values.count(b"once") == 1
