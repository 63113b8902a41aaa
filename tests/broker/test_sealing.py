"""Sealed records equal the sent ones: from the filer, the WAL, the ring, and in between.

Every record that Kafka can hold goes in; the WAL's segments are recycled; a reader from offset 0
must not be able to tell.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from threading import Thread

import pytest

from shm.kernels.base.words import BATCH_HEADER_BYTES
from shm.kernels.twin import records as plain
from smq.client.kafka.admin import delete_topic
from smq.client.kafka.cluster import Cluster
from smq.model.errors import ErrorCode
from smq.testing.records import INT64_MAX, YEAR_2263_MS
from smq.testing.smq_broker import SUPERVISOR, SmqBroker
from smq.wire.compression import Codec
from smq.wire.records import Record, write_batch
from tests.broker.one_topic import FILLER_BYTES, LATEST, SETTINGS, OneTopic, query, said

pytestmark = pytest.mark.timeout(120)

# One batch each, for the span of a batch's timestamps is 64 bits.
STRANGE = [
    Record(0, -1, None, None),
    Record(1, 0, b"", b""),
    Record(2, 1, None, b""),
    Record(3, 2, b"", None),
    Record(4, YEAR_2263_MS, b"k", None, ((b"twice", b"1"), (b"twice", None), (b"", b""))),
    Record(5, INT64_MAX, b"k" * 300, b"v" * 5000),
    Record(6, 5, b"not text", b"v", ((b"\xff\xfe", b"1"),)),
    Record(7, 6, "Zürich".encode(), b"\0" * 3000, (("schön".encode(), b""),)),
]
GARBAGE = b"garbage, its CRC good"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmqBroker]:
    with SmqBroker(tmp_path_factory.mktemp("broker"), SETTINGS) as broker:
        yield broker


def append_strange(topic: OneTopic) -> list[Record]:
    """Each strange record in each compression; what must be read back."""
    sent = []
    for codec in Codec:
        for record in STRANGE:
            batch = write_batch([record._replace(offset=0)], compression=codec)
            sent.append(record._replace(offset=topic.append(batch)))
    several = [Record(delta, 100 - delta, b"%d" % delta, None) for delta in range(50)]
    base = topic.append(write_batch(several, compression=Codec.ZSTD))
    return sent + [record._replace(offset=base + record.offset) for record in several]


def test_every_kind_of_record_is_read_back_from_sealed_segments_after_any_kill(
    broker: SmqBroker, cluster: Cluster
) -> None:
    topic = OneTopic(broker, cluster, "strange")
    sent = append_strange(topic)
    garbage = plain.batch([plain.PlainRecord(0, 0, None, None)], end_offset=1, inflated=GARBAGE)
    garbage_offset = topic.append(garbage)
    end = garbage_offset + 1
    segments = topic.seal_and_recycle(end)
    assert {segment.kind for segment in segments} == {"parquet", "raw"}
    for victim in ("", "sealer", "shard-1", "coordinator", SUPERVISOR):
        if victim:
            broker.kill(victim)
            broker.restart()
            cluster.forget()
        assert topic.records(garbage_offset) == sent
        [batch] = topic.read(end, garbage_offset)
        assert bytes(batch.data[BATCH_HEADER_BYTES:]) == GARBAGE


def test_sealing_that_waits_for_idle_cores_comes_to_its_end(tmp_path: Path) -> None:
    settings = SETTINGS | {"seal.late.ms": "2000"}  # Others' tests may leave no core idle.
    with SmqBroker(tmp_path, settings) as broker, Cluster(broker.bootstrap) as cluster:
        topic = OneTopic(broker, cluster, "patient")
        sent = append_strange(topic)
        topic.seal_and_recycle(len(sent))
        assert topic.records(len(sent)) == sent


def test_the_time_of_the_append_is_kept_where_the_topic_says_so(
    broker: SmqBroker, cluster: Cluster
) -> None:
    topic = OneTopic(broker, cluster, "stamped", {"message.timestamp.type": "LogAppendTime"})
    two = [Record(0, 5, b"k", b"v"), Record(1, 6, b"k", b"v")]
    answers = [topic.produce(write_batch(two, compression=codec)) for codec in Codec]
    end = 2 * len(answers)
    topic.seal_and_recycle(end)
    batches = topic.read(end)
    assert all(batch.is_log_append_time for batch in batches)
    records = [record for batch in batches for record in batch.records()][:end]
    stamped = [answer.log_append_time_ms for answer in answers for _ in range(2)]
    assert [record.timestamp_ms for record in records] == stamped
    assert min(stamped) > 6


def test_offsets_by_time_are_found_in_sealed_segments_and_in_the_log(
    broker: SmqBroker, cluster: Cluster
) -> None:
    topic = OneTopic(broker, cluster, "timed")
    for offset in range(10):
        topic.append(write_batch([Record(0, 1000 + 10 * offset, None, b"v")]))
    topic.append(write_batch([Record(0, 500, b"late", b"v", ((b"\xff", None),))]))  # Raw.
    topic.append(write_batch([Record(0, -1, None, b"v")]))
    topic.seal_and_recycle(12)
    newest = topic.append(write_batch([Record(0, 5000, None, b"v"), Record(1, 6000, None, b"v")]))
    assert topic.offset_at(0) == 0
    assert topic.offset_at(1000) == 0
    assert topic.offset_at(1001) == 1
    assert topic.offset_at(1090) == 9
    assert topic.offset_at(1091) == newest
    assert topic.offset_at(5001) == newest + 1
    assert topic.offset_at(6001) == -1
    assert topic.offset_at(-3) == newest + 1  # The record with the largest timestamp.
    far = topic.append(write_batch([Record(0, YEAR_2263_MS, None, b"v")]))
    last = topic.append(write_batch([Record(0, INT64_MAX, None, b"v")]))
    topic.seal_and_recycle(last + 1)
    assert [topic.offset_at(each) for each in (6001, YEAR_2263_MS)] == [far, far]
    assert [topic.offset_at(each) for each in (YEAR_2263_MS + 1, INT64_MAX)] == [last, last]


def test_a_time_that_only_an_undecodable_batch_reaches_gives_that_batch(
    broker: SmqBroker, cluster: Cluster
) -> None:
    topic = OneTopic(broker, cluster, "undecodable", {"smq.seal.ms": "600000"})
    record = plain.PlainRecord(0, 700, None, None)
    topic.append(write_batch([Record(0, 5, None, b"v")]))
    garbage = topic.append(plain.batch([record], end_offset=1, inflated=GARBAGE))
    topic.append(write_batch([Record(0, 800, None, b"v")]))
    assert topic.offset_at(6) == garbage
    assert topic.offset_at(701) == garbage + 1
    delete_topic(cluster, topic.name)  # It would hold the log that the other tests want recycled.


def test_one_reader_goes_from_sealed_segments_through_the_log_into_the_ring(
    broker: SmqBroker, cluster: Cluster
) -> None:
    topic = OneTopic(broker, cluster, "all")
    numbered = (
        write_batch([Record(0, number, b"%d" % number, bytes(FILLER_BYTES // 2))])
        for number in range(300)
    )
    for _ in range(60):
        topic.append(next(numbered))
    topic.wait_sealed(10)
    topic.wait_recycled(4 * 1024 * 1024)

    def go_on() -> None:
        with Cluster(broker.bootstrap) as another:
            leader = OneTopic.__new__(OneTopic)
            leader.broker, leader.cluster, leader.name = broker, another, topic.name
            for batch in numbered:
                leader.append(batch)

    producer = Thread(target=go_on)
    producer.start()
    records = topic.records(300)
    producer.join()
    assert [record.key for record in records] == [b"%d" % number for number in range(300)]
    assert [record.offset for record in records] == list(range(300))
    assert [record.timestamp_ms for record in records] == list(range(300))


def test_the_manifest_names_exactly_the_files_and_duckdb_reads_them(
    broker: SmqBroker, cluster: Cluster
) -> None:
    topic = OneTopic(broker, cluster, "lake", partitions=2)
    for partition in range(2):
        for number in range(20):
            batch = write_batch([Record(0, number, b"%d" % number, b"v", ((b"h", None),))])
            topic.append(batch, partition)
    segments = topic.wait_sealed(20, 0) + topic.wait_sealed(20, 1)
    assert topic.files() == {segment.path for segment in segments}
    assert sum(segment.record_count for segment in segments) == 40
    paths = [str(broker.data_dir / "filer" / segment.path) for segment in segments]
    columns = "_offset, _key, _value, _headers[1].key, _ts_ms"
    rows = query(f"select {columns} from read_parquet({paths}) order by partition, _offset")
    once = [(number, b"%d" % number, b"v", "h", number) for number in range(20)]
    assert rows == 2 * once


# --- damage --------------------------------------------------------------------------------------


def cut_short(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-7])


def alter(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def delete(file: Path) -> None:
    file.unlink()


@pytest.mark.parametrize("damage", [cut_short, alter, delete])
def test_a_damaged_segment_is_named_and_not_served_and_others_go_on(
    broker: SmqBroker, cluster: Cluster, damage: Callable[[Path], None]
) -> None:
    other = OneTopic(broker, cluster, f"beside-{damage.__name__}")
    other.append(write_batch([Record(0, 7, None, b"other")]))
    topic = OneTopic(broker, cluster, damage.__name__)
    end = topic.append_filler(4)
    first, *_ = topic.seal_and_recycle(end)
    other.wait_sealed(1)
    damage(broker.data_dir / "filer" / first.path)
    for _ in range(2):
        answer = topic.fetch(0)
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert not answer.records
    assert topic.list_offset(0).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert first.path in said(broker)
    assert other.records(1) == [Record(0, 7, None, b"other")]
    behind = topic.offset_at(LATEST)
    assert topic.append_filler(1) == behind + 1
    assert len(topic.records(behind + 1, behind)) == 1


@pytest.mark.slow
def test_a_segment_that_is_altered_while_it_is_being_read_is_not_served(
    broker: SmqBroker, cluster: Cluster
) -> None:
    topic = OneTopic(broker, cluster, "altered-later", {"smq.seal.ms": "2000"})
    count, chance = 10_000, Random(7)
    for _ in range(14):  # Two row groups, at the least.
        records = [Record(delta, 1, None, chance.randbytes(20)) for delta in range(count)]
        end = topic.append(write_batch(records)) + count
    topic.seal_and_recycle(end)
    longest = max(topic.segments(), key=lambda segment: segment.record_count)
    assert longest.record_count >= 7 * count
    assert topic.fetch(longest.base_offset, bytes_max=1).error_code == ErrorCode.NONE
    with (broker.data_dir / "filer" / longest.path).open("r+b") as altered:
        altered.seek(longest.bytes * 9 // 10)
        altered.write(b"other")
    there = longest.base_offset + longest.record_count * 9 // 10
    assert topic.fetch(there).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert longest.path in said(broker)
