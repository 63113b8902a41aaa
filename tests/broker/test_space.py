"""Nothing pins the log for ever: it stays within wal.bytes.max whatever cannot be sealed.

With 8 MiB a log has eight segments here, spare files included.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree

import numpy as np
import pytest

from shm.kernels.base.crc32c import crc32c
from shm.kernels.base.words import BATCH_ATTRIBUTES_AT, BATCH_CRC_AT, BATCH_HEADER_BYTES
from smq.client.kafka.cluster import Cluster
from smq.model.errors import ErrorCode
from smq.testing.smq_broker import SmqBroker
from smq.wire.records import Record, write_batch
from tests.app.fake_broker import eventually
from tests.broker.one_topic import (
    FILLER_BYTES,
    SETTINGS,
    MiB,
    OneTopic,
    said,
    wal_bytes,
    wal_starts,
)

pytestmark = pytest.mark.timeout(120)

WAL_BYTES_MAX = 8 * MiB
NEVER = {"smq.seal.ms": str(10**9), "smq.seal.bytes": str(10**12)}  # But when space is wanted.
LONG = 40  # Fillers: 16 MB, twice what the log may hold.


@contextmanager
def small_broker(directory: Path, **settings: str) -> Iterator[tuple[SmqBroker, Cluster]]:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    values = {**SETTINGS, "wal.bytes.max": str(WAL_BYTES_MAX), **given}
    with SmqBroker(directory, values) as broker, Cluster(broker.bootstrap) as cluster:
        yield broker, cluster


def test_a_record_in_an_idle_partition_is_sealed_when_the_log_wants_space(tmp_path: Path) -> None:
    with small_broker(tmp_path) as (broker, cluster):
        idle = OneTopic(broker, cluster, "idle", NEVER)
        record = Record(0, 7, b"only", None, ((b"h", b"1"),))
        idle.append(write_batch([record]))
        busy = OneTopic(broker, cluster, "busy", NEVER)
        for _ in range(LONG):
            busy.append_filler(1)
            assert wal_bytes(broker) <= WAL_BYTES_MAX
        idle.wait_sealed(1)
        busy.wait_recycled(MiB)
        assert idle.records(1) == [record]
        assert len(busy.records(LONG)) == LONG


def test_a_producer_that_is_faster_than_the_sealer_is_slowed_and_not_refused(
    tmp_path: Path,
) -> None:
    with small_broker(tmp_path, wal_bytes_max="16MiB") as (broker, cluster):
        topic = OneTopic(broker, cluster, "busy", NEVER)
        filler = write_batch([Record(0, 1, None, bytes(FILLER_BYTES))])
        count = 0
        while count < LONG or not topic.throttled_ms:
            assert topic.produce(filler).error_code == ErrorCode.NONE
            assert wal_bytes(broker) <= 16 * MiB
            count += 1
        assert len(topic.records(count)) == count


def garbage(number: int) -> bytes:
    """A batch whose header and CRC are good, and whose records are none."""
    batch = bytearray(write_batch([Record(0, number, None, bytes(FILLER_BYTES))]))
    batch[BATCH_HEADER_BYTES:] = b"\xff" * (len(batch) - BATCH_HEADER_BYTES)
    crc = int(crc32c(np.frombuffer(batch, np.uint8), BATCH_ATTRIBUTES_AT, len(batch)))
    batch[BATCH_CRC_AT:BATCH_ATTRIBUTES_AT] = crc.to_bytes(4)
    return bytes(batch)


@pytest.mark.slow
def test_undecodable_batches_are_sealed_unchanged(tmp_path: Path) -> None:
    with small_broker(tmp_path) as (broker, cluster):
        topic = OneTopic(broker, cluster, "garbage", NEVER)
        for number in range(LONG):
            topic.append(garbage(number))
            assert wal_bytes(broker) <= WAL_BYTES_MAX
        topic.wait_recycled(MiB)
        read = topic.read(LONG)
        assert [bytes(batch.data[BATCH_CRC_AT:]) for batch in read] == [
            garbage(number)[BATCH_CRC_AT:] for number in range(LONG)
        ]


def fill_until_refused(topic: OneTopic) -> int:
    """Produce until there is no space; how many batches were taken."""
    taken = 0
    while True:
        answer = topic.produce(write_batch([Record(0, taken, b"%d" % taken, bytes(FILLER_BYTES))]))
        if answer.error_code != ErrorCode.NONE:
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            return taken
        assert answer.base_offset == taken
        taken += 1
        assert taken * FILLER_BYTES <= WAL_BYTES_MAX, "the log takes more than it may hold"


def put_a_file_in_its_place(filer: Path, aside: Path) -> None:
    filer.rename(aside)
    filer.write_bytes(b"no directory")


@pytest.mark.slow
def test_sealed_records_are_read_from_the_wal_until_its_space_is_needed(tmp_path: Path) -> None:
    """Its files are put aside meanwhile: only the WAL has it."""
    with small_broker(tmp_path, wal_keep_bytes="8MiB") as (broker, cluster):
        topic = OneTopic(broker, cluster, "topic", {"smq.seal.bytes": str(MiB)})
        end = topic.append_filler(10)
        topic.wait_sealed(8)
        sealed = broker.data_dir / "filer" / "topics"
        sealed.rename(tmp_path / "aside")
        assert len(topic.records(end)) == end
        assert wal_starts(broker)[0] == 0
        shutil.copytree(tmp_path / "aside", sealed, dirs_exist_ok=True)  # More may be sealed.
        for _ in range(LONG):
            end = topic.append_filler(1)
            assert wal_bytes(broker) <= WAL_BYTES_MAX
        assert len(topic.records(end)) == end
        topic.wait_recycled(MiB)


@pytest.mark.slow
@pytest.mark.parametrize("was_up", [False, True], ids=["down from the start", "goes down"])
def test_while_the_filer_is_down_the_log_stays_within_bounds(tmp_path: Path, was_up: bool) -> None:
    filer, aside = tmp_path / "filer", tmp_path / "aside"
    filer.mkdir()
    with small_broker(tmp_path, filer_root=str(filer)) as (broker, cluster):
        before = OneTopic(broker, cluster, "before")
        if was_up:
            before.append(write_batch([Record(0, 1, None, b"v")]))
            before.wait_sealed(1)
        put_a_file_in_its_place(filer, aside)
        topic = OneTopic(broker, cluster, "topic")
        taken = fill_until_refused(topic)
        assert topic.throttled_ms > 1000  # Nobody is refused who was not slowed before.
        for _ in range(3):  # It stays so, and the log does not grow.
            again = topic.produce(write_batch([Record(0, 0, None, bytes(FILLER_BYTES))]))
            assert again.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert wal_bytes(broker) <= WAL_BYTES_MAX
        eventually(lambda: str(filer) in said(broker), "the filer is named")
        eventually(
            lambda: "producers are refused" in said(broker), "it is said that producers are refused"
        )
        assert [record.timestamp_ms for record in topic.records(taken)] == list(range(taken))
        filer.unlink()
        aside.rename(filer)
        end = topic.append(write_batch([Record(0, 5, None, b"taken again")])) + 1
        assert end == taken + 1
        topic.wait_sealed(end)
        assert [record.timestamp_ms for record in topic.records(end)] == [*range(taken), 5]
        if was_up:
            assert before.records(1) == [Record(0, 1, None, b"v")]


def test_a_filer_that_was_emptied_takes_what_comes_next(tmp_path: Path) -> None:
    with small_broker(tmp_path) as (broker, cluster):
        topic = OneTopic(broker, cluster, "topic")
        topic.append(write_batch([Record(0, 1, None, b"lost")]))
        topic.wait_sealed(1)
        rmtree(broker.data_dir / "filer")
        topic.append(write_batch([Record(0, 2, None, b"new")]))
        topic.wait_sealed(2)
        assert topic.files() == {topic.segments()[1].path}
        assert topic.records(2, 1) == [Record(1, 2, None, b"new")]
