"""A shard's server on slow or broken disks: which clients wait, and what they are told."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from smq.app.process.clock import monotonic_ms
from smq.log.files.background import BackgroundThread, JobLane
from smq.log.files.disk import OsDisk
from smq.log.sync import InlineSyncer
from smq.model.errors import ErrorCode
from smq.testing.disk import FailingDisk, SlowDisk
from smq.wire.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from smq.wire.records import read_batches
from tests.app.fake_peers import turn_until
from tests.app.shard_client import (
    Client,
    ServerBench,
    benches,
    decoded,
    fetch,
    fetched,
    request,
    settle,
    versions,
)
from tests.log.logs import replace_background, replace_disk
from tests.shard.shard_bench import RING_BYTES, batch, produce_request, topic

Make = Callable[..., ServerBench]
DISK = {"smq.durability": "disk"}


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    with benches(tmp_path, ServerBench) as make:
        yield make


FETCH_MS_MAX = 1000  # While others wait for the disk for ever. It takes a few.


def slow_disk(bench: ServerBench) -> SlowDisk:
    """Have the log read from a disk that waits, of which the page cache has nothing."""
    log, disk = bench.shard.logs[0], SlowDisk()
    replace_background(log, BackgroundThread(lambda: None))
    log.wal._disk = disk
    return disk


def filled(bench: ServerBench) -> list[bytes]:
    """Values of topic `old`, one a batch; the ring has moved on to those of `new`."""
    writer = bench.client()
    values = [bytes([65 + i]) * 30_000 for i in range(5)]
    others = [b"n" * 30_000] * (RING_BYTES // 30_000 + 1)
    for name, some in (("old", values), ("new", others)):
        for value in some:
            writer.send(produce_request({name: {0: batch(value)}}))
    writer.wait(len(values) + len(others))
    return values


def test_a_client_that_reads_from_a_slow_disk_does_not_delay_others(make: Make) -> None:
    bench = make(topic("old"), topic("new", range(2, 3)))
    values, disk = filled(bench), slow_disk(bench)
    readers = [bench.client() for _ in range(3)]
    neighbour, gone = bench.client(), bench.client()
    by_time = request(
        "ListOffsets",
        7,
        ListOffsetsRequest(
            topics=[ListOffsetsTopic(name="old", partitions=[ListOffsetsPartition(timestamp=5)])]
        ),
    )
    with disk.waiting():
        for reader in readers:
            reader.send(fetch("old"))
        gone.send(fetch("old"))
        readers[2].send(by_time)
        slowest_ms = 0
        for i in range(5):
            asked_ms = monotonic_ms()
            neighbour.send(produce_request({"new": {0: batch(b"fresh")}}) + fetch("new", 8))
            neighbour.wait(2 * i + 2)
            slowest_ms = max(slowest_ms, monotonic_ms() - asked_ms)
        assert slowest_ms < FETCH_MS_MAX
        gone.socket.close()
        settle(bench, *readers)
        assert not any(fetched_so_far(reader) for reader in readers)
    for reader in readers:
        records = fetched(reader.wait(1)[0]).records
        assert [r.value for b in read_batches(records) for r in b.records()] == values
    [found] = decoded("ListOffsets", 7, readers[2].wait(2)[1]).topics[0].partitions
    assert (found.error_code, found.offset) == (0, 0)
    bench.shard.logs[0].background.wait()
    assert all(each.pins == each.loans == 0 for each in bench.shard.logs[0].wal.segments)


def fetched_so_far(client: Client) -> bool:
    """Whether records have come."""
    return len(client.received) > 10_000


def test_a_damaged_wal_segment_closes_its_reader_and_is_reported(make: Make) -> None:
    bench = make(topic("old"), topic("new", range(2, 3)))
    filled(bench)
    log, reader, neighbour = bench.shard.logs[0], bench.client(), bench.client()
    slow_disk(bench)
    segment = log.wal.segments[0]
    segment.path.write_bytes(bytes(segment.end - segment.start))
    reader.send(fetch("old"))
    reader.wait_closed()
    neighbour.send(versions())
    assert len(neighbour.wait(1)) == 1
    assert str(segment.path) in log.notices[0]


def broken_disk(bench: ServerBench) -> tuple[FailingDisk, BackgroundThread]:
    """Have the log write to a disk that can fail, and repair itself elsewhere."""
    log, background = bench.shard.logs[0], BackgroundThread(lambda: None)
    disk = FailingDisk(OsDisk())
    replace_background(log, background)
    replace_disk(log, disk)
    log.syncs.syncer = InlineSyncer(log.memory, disk)
    return disk, background


FAILURES = [("write", "one"), ("sync", "safe")]


@pytest.mark.parametrize(("method", "name"), FAILURES)
def test_an_ack_waits_for_the_repair_and_who_comes_meanwhile_is_refused(
    make: Make, method: str, name: str
) -> None:
    bench = make(topic("one"), topic("safe", range(2, 3), DISK))
    client, other = bench.client(), bench.client()
    client.send(produce_request({name: {0: batch(b"before")}}))
    client.wait(1)
    disk, background = broken_disk(bench)
    gate = threading.Event()
    background.submit(JobLane.FILES, lambda: gate.wait(20), lambda _: None)
    disk.fail(method, 1)
    client.send(produce_request({name: {0: batch(b"in doubt")}}))
    turn_until(bench.loop, lambda: bench.shard.logs[0].failed is not None)
    other.send(produce_request({name: {0: batch(b"refused")}}) + fetch(name))
    refused, read = other.wait(2)
    [answer] = decoded("Produce", 9, refused).responses[0].partition_responses
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert fetched(read).high_watermark == 1
    client.pull()
    assert len(client.frames()) == 1
    gate.set()
    [_, late] = client.wait(2)
    [answer] = decoded("Produce", 9, late).responses[0].partition_responses
    assert (answer.error_code, answer.base_offset) == (0, 1)
    other.send(fetch(name))
    assert fetched(other.wait(3)[2]).high_watermark == 2


@pytest.mark.parametrize(("method", "name"), FAILURES)
def test_a_producer_is_closed_when_its_disk_stays_broken_and_readers_are_served(
    make: Make, method: str, name: str
) -> None:
    bench = make(topic("one"), topic("safe", range(2, 3), DISK))
    client, other = bench.client(), bench.client()
    client.send(produce_request({name: {0: batch(b"before")}}))
    client.wait(1)
    disk, _ = broken_disk(bench)
    disk.fail(method)
    client.send(produce_request({name: {0: batch(b"never")}}))
    client.wait_closed()
    assert len(client.frames()) == 1
    other.send(fetch(name))
    assert fetched(other.wait(1)[0]).high_watermark == 1
    assert bench.server._replies.acks._open_when_synced == []
    disk.heal()
    bench.shard.logs[0].tend()
    turn_until(bench.loop, lambda: bench.shard.logs[0].failed is None)
    other.send(produce_request({name: {0: batch(b"after")}}))
    [_, frame] = other.wait(2)
    [answer] = decoded("Produce", 9, frame).responses[0].partition_responses
    assert answer.error_code == ErrorCode.NONE
