"""The disk fills up in the midst of a flood: producers are slowed, then refused; reads go on; when
there is room again the broker takes records again, by itself, and nothing is missing.

The disk is a small one in memory, mounted for the test: that needs root, elsewhere it is skipped.
"""

import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from smq.client.kafka.cluster import Cluster
from smq.model.errors import ErrorCode
from smq.testing.smq_broker import SmqBroker
from smq.wire.records import Record, write_batch
from tests.app.fake_broker import eventually
from tests.broker.one_topic import FILLER_BYTES, SETTINGS, MiB, OneTopic, said

DISK_BYTES = 64 * MiB
OTHERS_BYTES = 24 * MiB  # What somebody else has there.
FLOOD_MAX = 2 * DISK_BYTES // FILLER_BYTES
SLOWED_MS = 1000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "smq-test", str(place)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as reason:
        pytest.skip(f"no file system can be mounted here: {reason}")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def value_of(number: int) -> bytes:
    """What does not shrink: a sealed byte takes a byte of the disk."""
    return random.Random(number).randbytes(FILLER_BYTES)


def flood(topic: OneTopic) -> int:
    """Produce until a record is refused; how many were taken."""
    for number in range(FLOOD_MAX):
        answer = topic.produce(write_batch([Record(0, number, None, value_of(number))]))
        if answer.error_code != ErrorCode.NONE:
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            return number
        assert answer.base_offset == number
    raise AssertionError("more was taken than the disk holds")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_flood_that_fills_the_disk_is_slowed_then_refused_and_taken_again_when_there_is_room(
    disk: Path,
) -> None:
    others = disk / "others"
    with others.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, OTHERS_BYTES)
    settings = {**SETTINGS, "wal.bytes.max": "32MiB", "wal.keep.bytes": "32MiB"}
    with SmqBroker(disk, settings) as broker, Cluster(broker.bootstrap) as cluster:
        topic = OneTopic(broker, cluster, "flood", {"smq.seal.bytes": str(MiB)})
        taken = flood(topic)
        assert topic.throttled_ms > SLOWED_MS
        eventually(
            lambda: "producers are refused" in said(broker), "it is said that producers are refused"
        )
        for _ in range(3):
            again = topic.produce(write_batch([Record(0, 0, None, value_of(0))]))
            assert again.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert [record.timestamp_ms for record in topic.records(taken)] == list(range(taken))
        others.unlink()
        end = topic.append(write_batch([Record(0, taken, None, value_of(taken))])) + 1
        assert end == taken + 1
        topic.wait_sealed(end)
        records = topic.records(end)
        assert [record.timestamp_ms for record in records] == list(range(end))
        assert [record.value for record in records] == [value_of(number) for number in range(end)]
        assert {each.restarts for each in broker.status().processes.values()} == {0}
