"""Clients that ask for much and read nothing: they pin no log, and no producer pays for them."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shm.kernels.base.words import P_LOG_END
from smq.log.log import Log
from smq.model.errors import ErrorCode
from smq.shard.space import watch_space
from tests.app.shard_client import Client, ServerBench, benches, fetch, fetched, settle
from tests.shard.shard_bench import NOW_MS, SEGMENT_BYTES, batch, produce_request, responses, topic

Make = Callable[..., ServerBench]
SEGMENTS_MAX = 128
WAL_BYTES_MAX = SEGMENTS_MAX * SEGMENT_BYTES
VALUE = bytes(SEGMENT_BYTES * 2 // 5)
UNREAD_BYTES = WAL_BYTES_MAX // 4  # More than the buffers between client and server take.
RECEIVE_BYTES = 64 * 1024
FETCHES = 200


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    with benches(tmp_path, ServerBench) as make:
        yield make


def put(bench: ServerBench, writer: Client, total_bytes: int) -> None:
    """Produce so much; all of it is taken."""
    for number in range(total_bytes // len(VALUE)):
        writer.received = b""
        writer.send(produce_request({"one": {0: batch(VALUE)}}, correlation=number))
        writer.wait(1)
        [(_, response)] = responses(writer.received)
        assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    bench.shard.invariants()


def seal(log: Log) -> None:
    end = int(log.partitions.table[log.partitions.slots[1], P_LOG_END])
    log.sealing.advance(1, end, 0)


def loans(log: Log) -> int:
    return sum(segment.loans for segment in log.wal.segments)


@pytest.mark.slow
def test_a_client_that_reads_nothing_keeps_no_producer_from_producing(make: Make) -> None:
    bench = make(topic("one"), wal_bytes_max=WAL_BYTES_MAX)
    writer, log = bench.client(), bench.shard.logs[0]
    put(bench, writer, WAL_BYTES_MAX * 5 // 8)
    reader = bench.client(receive_bytes=RECEIVE_BYTES)
    reader.send(b"".join(fetch("one", correlation=number) for number in range(FETCHES)))
    settle(bench)
    assert 0 < loans(log) <= len(log.wal.segments)  # Of the one answer that is being sent.
    for _ in range(4):
        seal(log)
        watch_space(bench.shard, NOW_MS)
        assert not bench.shard.throttle.is_on  # Nor is one slowed.
        put(bench, writer, WAL_BYTES_MAX // 2)
    bench.server.clients.by_fd[max(bench.server.clients.by_fd)].invariants()
    reader.wait_closed()  # What it asked for is gone.
    assert loans(log) == 0


def test_while_there_is_space_a_slow_reader_gets_all_it_asked_for(make: Make) -> None:
    bench = make(topic("one"), wal_bytes_max=WAL_BYTES_MAX)
    writer, log = bench.client(), bench.shard.logs[0]
    put(bench, writer, UNREAD_BYTES)
    reader = bench.client(receive_bytes=RECEIVE_BYTES)
    reader.send(fetch("one"))
    settle(bench)
    seal(log)
    log.checkpoint()
    assert loans(log) > 0
    [frame] = reader.wait(1)
    assert len(fetched(frame).records) >= UNREAD_BYTES
    log.tend()
    assert (loans(log), len(log.wal.segments)) == (0, 1)
