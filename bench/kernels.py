"""The produce kernel by itself: what a request takes beside checking and copying its bytes.

`python -m bench.kernels` prints one line for each size of batch: nanoseconds a request, and the
ratio to CRC-32C and memcpy of the same bytes into a ring of the same size, which no broker that
checks and keeps them can avoid. The best of some rounds counts: the rest is other programs' noise.
"""

import sys
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from shm.kernels.base import words
from shm.kernels.base.crc32c import crc32c
from shm.kernels.base.entries import LINK_COLUMNS
from shm.kernels.log.directory import hash_key
from shm.kernels.log.plan import new_plan, row_at
from shm.kernels.log.producers import PRODUCER_COLUMNS
from shm.kernels.log.spans import gather
from shm.kernels.request.produce import produce
from shm.segment import LogMemory
from smq.wire.codec import Writer
from smq.wire.generated.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
    write_produce_request,
)
from smq.wire.headers import RequestHeader, write_request_header
from smq.wire.records import Record, write_batch

MiB = 1 << 20
VERSION, NOW_MS, ROUNDS = 9, 1_700_000_000_000, 30
RING_BYTES, ROUND_BYTES = 64 * MiB, 100_000
UNLIMITED = 1 << 62


class Case(NamedTuple):
    """So many requests of one batch each arrive in one recv."""

    name: str
    requests: int
    records: int
    value_bytes: int
    producer: bool = False


CASES = (
    Case("1 record of 100 B", 500, 1, 100),
    Case("… idempotent", 500, 1, 100, producer=True),
    Case("1 record of 100 B, alone", 1, 1, 100),
    Case("16 KiB of 1 KiB records", 32, 15, 1024),
    Case("1 MB of 1 KiB records", 1, 900, 1024),
    Case("1 MB of 100 B records", 1, 9000, 100),
)


class Bench:
    """A log of 64 MiB with one topic `t` of one partition; nothing is written to any file."""

    def __init__(self) -> None:
        self.log = LogMemory.in_process(0, RING_BYTES, 16 * MiB, 4)
        self.log.memory[-RING_BYTES:] = 1  # A first touch of a page costs microseconds.
        row = self.log.partitions[0]
        row[words.P_LAST_ENTRY], row[words.P_BATCH_BYTES_MAX] = -1, 2 * MiB
        row[words.P_TIMESTAMP_BEFORE_MAX] = row[words.P_TIMESTAMP_AFTER_MAX] = UNLIMITED
        row[words.P_FLAGS] = words.DURABILITY_OS << words.DURABILITY_SHIFT
        self.links = np.full((LINK_COLUMNS, self.log.layout.index_capacity), -1, np.int64)
        self.producers = np.zeros((64, PRODUCER_COLUMNS), np.int64)
        self.plan, self.out = new_plan(512, 1024, 4096), np.zeros(1 << 18, np.uint8)
        self.plan[words.HEAD_NOW_MS] = self.plan[words.HEAD_WALL_MS] = NOW_MS
        self.plan[words.HEAD_REQUEST_BYTES_MAX] = 100 * MiB
        name = np.frombuffer(b"t", np.uint8)
        key_hash = int(hash_key(np.zeros(8, np.int64), name, 0, 1, False))  # noqa: FBT003
        buckets = [1 if i == key_hash & 1 else 0 for i in range(2)]
        self.directory = np.array(
            [2, 8, 13, 14, 0, 0, *buckets, key_hash, 0, 1, 0, 1, 0, ord("t")], np.int64
        )

    def produce(self, data: np.ndarray) -> None:
        """Append one recv's worth, and mark all of it as written."""
        self.plan[words.HEAD_START], self.plan[words.HEAD_END] = 0, len(data)
        args = self.log.memory, self.links, self.producers
        stop = produce(data, *args, self.directory, self.plan, self.out)
        assert stop == words.STOP_NEED_MORE, stop
        assert self.plan[row_at(self.plan, 0) + words.ROW_ERROR] == 0
        self.log.words[words.WORD_WRITTEN] = self.log.words[words.WORD_TAIL]
        self.log.words[words.WORD_INDEX_KEEP] = self.log.words[words.WORD_INDEX_TAIL]


def request_of(case: Case, sequence: int) -> bytes:
    """One framed request."""
    records = [Record(i, NOW_MS, b"k", b"v" * case.value_bytes, ()) for i in range(case.records)]
    producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
    batch = write_batch(records, **(producer if case.producer else {}))
    partition = PartitionProduceData(index=0, records=batch)
    topic = TopicProduceData(name="t", partition_data=[partition])
    writer = Writer()
    write_request_header(RequestHeader(0, VERSION, 1, "bench"), writer)
    write_produce_request(ProduceRequest(acks=-1, topic_data=[topic]), VERSION, writer)
    body = b"".join(piece for piece in writer.pieces() if isinstance(piece, bytes))
    return len(body).to_bytes(4) + body


class Bare:
    """Checks and copies the same bytes into a ring of the same size, and does nothing else."""

    def __init__(self) -> None:
        self._ring, self._at = np.ones(RING_BYTES, np.uint8), 0

    def take(self, data: np.ndarray) -> None:
        """One recv's worth."""
        crc32c(data, 0, len(data))
        if self._at + len(data) > RING_BYTES:
            self._at = 0
        end = self._at + len(data)
        gather(data, np.array([[0, len(data)]], np.int64), 1, self._ring[self._at : end])
        self._at = end


def best_ns(act: Callable[[np.ndarray], None], rounds: list[list[np.ndarray]]) -> float:
    """The shortest round, for each recv."""
    times = []
    for buffers in rounds:
        start = time.perf_counter_ns()
        for data in buffers:
            act(data)
        times.append((time.perf_counter_ns() - start) / len(buffers))
    return min(times)


def measure(case: Case) -> str:
    """A line of the table."""
    size = case.requests * len(request_of(case, 0))
    repeats = max(1, ROUND_BYTES // size)
    buffers = iter(received(case, (ROUNDS + 1) * repeats))
    rounds = [[next(buffers) for _ in range(repeats)] for _ in range(ROUNDS + 1)]
    bench = Bench()
    ours = best_ns(bench.produce, rounds)
    bare = best_ns(Bare().take, rounds)
    each = ours / case.requests
    return f"{case.name:28} {each:10.0f} ns {size / ours:8.2f} GB/s {ours / bare:8.2f} x"


def received(case: Case, count: int) -> Iterator[np.ndarray]:
    """What one recv after another brought: the same, but for an idempotent producer."""
    first = 0
    data = np.zeros(0, np.uint8)
    for i in range(count):
        if i == 0 or case.producer:
            requests = [request_of(case, first + j) for j in range(case.requests)]
            data = np.frombuffer(b"".join(requests), np.uint8).copy()
            first += case.requests
        yield data


def main() -> None:
    """Print the table."""
    sys.stdout.write(f"{'':28} {'a request':>13} {'':>13} {'crc + copy':>10}\n")
    for case in CASES:
        sys.stdout.write(measure(case) + "\n")


if __name__ == "__main__":
    main()
