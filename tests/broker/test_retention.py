"""Retention moves the log start and deletes the files; deleting a topic deletes all."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from smq.app.process.clock import wall_ms
from smq.client.kafka.admin import delete_topic
from smq.client.kafka.cluster import Cluster
from smq.model.errors import ErrorCode
from smq.testing.smq_broker import SUPERVISOR, SmqBroker
from smq.wire.records import Record, write_batch
from tests.app.fake_broker import eventually
from tests.broker.one_topic import EARLIEST, LATEST, SETTINGS, OneTopic, wal_bytes, wal_starts

pytestmark = pytest.mark.timeout(120)

HOUR_MS = 3_600_000
NEVER = {"smq.seal.ms": str(10**9), "smq.seal.bytes": str(10**12)}  # But when space is wanted.
QUICK = {"log.retention.check.interval.ms": "100", "filer.sweep.ms": "300"}
NOISE_BYTES = 300_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SmqBroker]:
    with SmqBroker(tmp_path, SETTINGS | QUICK) as broker:
        yield broker


def noise(number: int) -> bytes:
    """A batch that no compression makes smaller."""
    value = Random(number).randbytes(NOISE_BYTES)
    return write_batch([Record(0, wall_ms(), b"%d" % number, value)])


def wait_start(topic: OneTopic, offset: int) -> None:
    eventually(lambda: topic.offset_at(EARLIEST) >= offset, f"the log starts at {offset}")
    assert topic.offset_at(EARLIEST) == offset
    eventually(
        lambda: topic.files() == topic.named_files(),
        "the files are those of the manifest",
    )


def below_is_gone(topic: OneTopic, start: int) -> None:
    for offset in {0, start - 1}:
        assert topic.fetch(offset).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert topic.fetch(start).error_code == ErrorCode.NONE


def test_segments_whose_newest_record_is_too_old_are_deleted(
    broker: SmqBroker, cluster: Cluster
) -> None:
    topic = OneTopic(broker, cluster, "aged", {"retention.ms": str(HOUR_MS)})
    now_ms = wall_ms()
    for age_ms in (9 * HOUR_MS, 3 * HOUR_MS):
        topic.append(write_batch([Record(0, now_ms - age_ms, b"old", None)]))
    wait_start(topic, 2)
    ages_ms = (0, 5 * HOUR_MS)  # A segment goes when all of it is old.
    records = [Record(delta, now_ms - age_ms, b"new", None) for delta, age_ms in enumerate(ages_ms)]
    topic.append(write_batch(records))
    topic.wait_sealed(4)
    kept = [record._replace(offset=2 + record.offset) for record in records]
    assert topic.records(4, 2) == kept
    below_is_gone(topic, 2)
    assert topic.offset_at(0) == 2
    cluster.forget()
    broker.kill(SUPERVISOR)
    broker.restart()
    wait_start(topic, 2)
    below_is_gone(topic, 2)
    assert topic.records(4, 2) == kept


@pytest.mark.slow
def test_the_oldest_segments_go_while_the_others_keep_enough_bytes(
    broker: SmqBroker, cluster: Cluster
) -> None:
    bytes_max = 4 * NOISE_BYTES
    configs = {"retention.bytes": str(bytes_max), "smq.seal.bytes": "1"}
    topic = OneTopic(broker, cluster, "sized", configs)
    count = 7
    for number in range(count):
        topic.append(noise(number))
        topic.wait_sealed(number + 1)  # A segment each.
    start = count - 4
    wait_start(topic, start)
    below_is_gone(topic, start)
    kept = topic.records(count, start)
    assert [record.key for record in kept] == [b"%d" % number for number in range(start, count)]
    eventually(lambda: len(topic.segments()) == count - start, "the manifest names these only")
    sizes = [segment.bytes for segment in topic.segments()]
    assert sum(sizes) >= bytes_max > sum(sizes[1:])


def test_records_that_were_never_sealed_are_deleted_by_age(
    broker: SmqBroker, cluster: Cluster
) -> None:
    topic = OneTopic(broker, cluster, "unsealed", {**NEVER, "retention.ms": "1000"})
    for _ in range(3):
        topic.append(write_batch([Record(0, wall_ms(), b"soon gone", None)]))
    assert topic.offset_at(EARLIEST) == 0
    wait_start(topic, 3)
    assert topic.offset_at(LATEST) == 3
    assert topic.append(write_batch([Record(0, wall_ms() + HOUR_MS, b"stays", None)])) == 3
    assert [record.key for record in topic.records(4, 3)] == [b"stays"]
    broker.kill("shard-1")
    broker.restart()
    cluster.forget()
    wait_start(topic, 3)  # If the checkpoint had not been written yet, they are dropped again.
    below_is_gone(topic, 3)


def test_a_deleted_topic_leaves_neither_files_nor_segments_of_the_log(
    broker: SmqBroker, cluster: Cluster
) -> None:
    topic = OneTopic(broker, cluster, "deleted")
    end = topic.append_filler(3)
    topic.wait_sealed(end)
    unsealed = OneTopic(broker, cluster, "unsealed", NEVER)
    unsealed.append_filler(8)
    active = wal_starts(broker)[-2]  # Behind it there is the next one, made ahead.
    for each in (topic, unsealed):
        delete_topic(cluster, each.name)
    eventually(lambda: not topic.files() and not topic.segments(), "the files are swept")
    eventually(lambda: wal_starts(broker)[0] >= active, "the log is freed")
    again = OneTopic(broker, cluster, "deleted")
    assert again.number not in {topic.number, unsealed.number}
    assert again.offset_at(LATEST) == 0
    assert again.append(noise(0)) == 0
    again.wait_sealed(1)
    assert again.records(1)[0].key == b"0"


@pytest.mark.slow
def test_while_the_filer_is_down_retention_drops_what_could_not_be_sealed(tmp_path: Path) -> None:
    filer = tmp_path / "filer"
    aside = tmp_path / "aside"
    filer.mkdir()
    settings = {**SETTINGS, **QUICK, "wal.bytes.max": "8MiB", "filer.root": str(filer)}
    with SmqBroker(tmp_path, settings) as broker, Cluster(broker.bootstrap) as cluster:
        filer.rename(aside)
        filer.write_bytes(b"no directory")
        topic = OneTopic(broker, cluster, "brief", {"retention.ms": "1000"})
        for number in range(60):  # More than twice what the log may hold.
            topic.append(noise(number))
            assert wal_bytes(broker) <= 8 * 1024 * 1024
        start = topic.offset_at(EARLIEST)
        assert start > 0
        below_is_gone(topic, start)
        keys = [record.key for record in topic.records(60, start)]
        assert keys == [b"%d" % number for number in range(start, 60)]
        cluster.forget()
        broker.kill(SUPERVISOR)
        filer.unlink()
        aside.rename(filer)
        broker.restart()
        assert topic.offset_at(EARLIEST) >= start  # It may have moved on meanwhile.
        below_is_gone(topic, topic.offset_at(EARLIEST))
