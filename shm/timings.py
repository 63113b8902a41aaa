"""Request times and errors: memory in which each process that answers writes its own part, and
which all processes may read.

    0         64                                  of each node, NODE_WORDS:
    +---------+------+------+---+-------------+   +---------+-------+-------+-----------+--------+
    | magic,  | 1st  | 2nd  | … | errors of   |   | counts  | sums, | how   | the last  | errors |
    | nodes,  | node | node |   | the         |   | of each | ns,   | many  | SLOW slow | of     |
    | 1st id  |      |      |   | coordinator |   | API by  | of    | were  | requests, | each   |
    |         |      |      |   |             |   | bucket  | each  | slow  | a ring    | API    |
    +---------+------+------+---+-------------+   +---------+-------+-------+-----------+--------+

Bucket b of a histogram counts requests of less than 2 ** b microseconds, the last one all others.
Slot s of an API's errors counts error code s - 1, the last one all others. Behind the coordinator's
errors are the agent's calls: of each RPC how many ended with each status, how long these took, and
how many are open; then its unknown acknowledgements, the batches that its readers passed over, and,
of each of its ports, when its first certificate ends. Words are int64, little endian, independent
of each other. A row of the ring is published by its number, which is 0 while the row is written: a
reader copies, then checks the number again.
"""

import mmap
import os
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from shm.kernels.base.words import TIME_BUCKETS
from shm.segment import seal_against_writers

MAGIC = 0x0006_54_51_4D_53  # "SMQT" and the version of this map, little endian.
HEADER_WORDS = 8
BUCKETS = TIME_BUCKETS
APIS = 128  # Kafka's keys end below 100.
ERROR_SLOTS = 192  # Kafka's codes end below 140.
SLOW = 1000
CLIENT_WORDS = 8  # 64 bytes of UTF-8.
SLOW_ROW_WORDS = 8 + CLIENT_WORDS
_NUMBER, _API, _VERSION, _AT_MS, _HANDLED, _WAITED, _SENT, _BYTES = range(8)
_SUMS_AT = APIS * BUCKETS
_SLOW_COUNT_AT = _SUMS_AT + APIS
_SLOW_AT = _SLOW_COUNT_AT + 8
_ERRORS_AT = _SLOW_AT + SLOW * SLOW_ROW_WORDS
_ERRORS_WORDS = APIS * ERROR_SLOTS
NODE_WORDS = _ERRORS_AT + _ERRORS_WORDS
RPCS = 64
RPC_STATUSES = 17  # Of gRPC.
_RPC_WORDS = RPC_STATUSES + 2
RPC_PORTS = 2
_RPCS_WORDS = RPCS * _RPC_WORDS + 2 + RPC_PORTS


class SlowRequest(NamedTuple):
    """A request that took long: microseconds in its handler, waiting, and until it was sent."""

    api_key: int
    version: int
    at_ms: int
    handled_us: int
    waited_us: int
    sent_us: int
    bytes: int
    client: str


class Timings:
    """The memory. A shard is the only writer of its node's part, the coordinator of its errors, the
    agent of its RPCs."""

    def __init__(self, fd: int, *, writable: bool) -> None:
        self.fd = fd
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        mapping = mmap.mmap(fd, os.fstat(fd).st_size, prot=protection)
        self._words = np.frombuffer(mapping, np.int64)

    @classmethod
    def create(cls, node_ids: range) -> "Timings":
        """New memory for these nodes."""
        fd = os.memfd_create("smq-timings", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(
            fd, 8 * (HEADER_WORDS + len(node_ids) * NODE_WORDS + _ERRORS_WORDS + _RPCS_WORDS)
        )
        self = cls(fd, writable=True)
        seal_against_writers(fd)
        self._words[:3] = MAGIC, len(node_ids), node_ids.start
        return self

    @classmethod
    def attach(cls, fd: int) -> "Timings":
        """Another process's, read-only. Raises ValueError: it is something else."""
        if os.fstat(fd).st_size < 8 * HEADER_WORDS:
            raise ValueError("this descriptor has no timings")
        self = cls(fd, writable=False)
        if self._words[0] != MAGIC:
            raise ValueError("this descriptor has no timings of this version")
        return self

    @property
    def node_ids(self) -> range:
        """The ids of all nodes, in order."""
        count, first = self._words[1:3].tolist()
        return range(first, first + count)

    def node(self, node_id: int) -> "NodeTimings":
        """The part of a node."""
        at = HEADER_WORDS + self.node_ids.index(node_id) * NODE_WORDS
        return NodeTimings(self._words[at : at + NODE_WORDS])

    def nodes(self) -> list["NodeTimings"]:
        """The parts of all nodes, by id."""
        return [self.node(node_id) for node_id in self.node_ids]

    def coordinator_errors(self) -> "Errors":
        """What the coordinator answered."""
        return Errors(self._words[-_ERRORS_WORDS - _RPCS_WORDS : -_RPCS_WORDS])

    def rpcs(self) -> "RpcTimings":
        """The calls that the agent answered."""
        return RpcTimings(self._words[-_RPCS_WORDS:])

    def errors(self) -> np.ndarray:
        """What all processes answered: int64 [APIS, ERROR_SLOTS]."""
        tables = [node.errors.table for node in self.nodes()]
        total: np.ndarray = np.sum([*tables, self.coordinator_errors().table], axis=0)
        return total


class Errors:
    """How many error codes the answers of one process had.

    table  int64 [APIS, ERROR_SLOTS]
    """

    def __init__(self, words: np.ndarray) -> None:
        self.table = words.reshape(APIS, ERROR_SLOTS)

    @classmethod
    def private(cls) -> "Errors":
        """Of this process alone, for tests."""
        return cls(np.zeros(_ERRORS_WORDS, np.int64))

    def add(self, api_key: int, codes: Mapping[int, int]) -> None:
        """Count codes of an answer: how many of each."""
        for code, count in codes.items():
            slot = code + 1 if -1 <= code < ERROR_SLOTS - 2 else ERROR_SLOTS - 1
            self.table[api_key, slot] += count


class RpcTimings:
    """The calls of gRPC that a process answered, by the number of the RPC.

    totals  int64 [RPCS, RPC_STATUSES]: calls that ended, by their status
    sums    int64 [RPCS], ns: how long these took
    begun   int64 [RPCS]: how many are open
    unknown_acks  int64 [1]: acknowledgements of records that their instance does not have
    passed_batches  int64 [1]: how often a reader passed over a batch that it cannot read
    ends    int64 [RPC_PORTS], ms, wall time: when the first certificate of a port ends; 0: it has
            none
    """

    def __init__(self, words: np.ndarray) -> None:
        table, rest = words[: RPCS * _RPC_WORDS].reshape(RPCS, _RPC_WORDS), words[-2 - RPC_PORTS :]
        self.unknown_acks, self.passed_batches, self.ends = rest[:1], rest[1:2], rest[2:]
        self.totals = table[:, :RPC_STATUSES]
        self.sums, self.begun = table[:, RPC_STATUSES], table[:, RPC_STATUSES + 1]

    @classmethod
    def private(cls) -> "RpcTimings":
        """Of this process alone, for tests."""
        return cls(np.zeros(_RPCS_WORDS, np.int64))

    def restart(self) -> None:
        """The process begins: no call of the last one is open."""
        self.begun[:] = 0

    def begin(self, rpc: int) -> None:
        """A call begins."""
        self.begun[rpc] += 1

    def count_unknown_ack(self) -> None:
        """Somebody has acknowledged what he does not have."""
        self.unknown_acks += 1

    def count_passed_batch(self) -> None:
        """A reader has passed over a batch."""
        self.passed_batches += 1

    def end(self, rpc: int, status: int, took_ns: int) -> None:
        """A call has ended."""
        self.begun[rpc] -= 1
        self.totals[rpc, status] += 1
        self.sums[rpc] += took_ns


class NodeTimings:
    """The part that one shard writes and others read.

    counts  int64 [APIS, BUCKETS]
    sums    int64 [APIS], ns
    errors  of its answers
    """

    def __init__(self, words: np.ndarray) -> None:
        self._words = words
        self.counts = words[:_SUMS_AT].reshape(APIS, BUCKETS)
        self.sums = words[_SUMS_AT:_SLOW_COUNT_AT]
        self._rows = words[_SLOW_AT:_ERRORS_AT].reshape(SLOW, SLOW_ROW_WORDS)
        self.errors = Errors(words[_ERRORS_AT:])

    @classmethod
    def private(cls) -> "NodeTimings":
        """Of this process alone, for tests."""
        return cls(np.zeros(NODE_WORDS, np.int64))

    def count(self, api_key: int, took_ns: int) -> None:
        """Count a request's time."""
        if 0 <= api_key < APIS:
            bucket = min((took_ns // 1000).bit_length(), BUCKETS - 1)
            self.counts[api_key, bucket] += 1
            self.sums[api_key] += took_ns

    def add_slow(self, slow: SlowRequest) -> None:
        """Keep a slow request."""
        number = int(self._words[_SLOW_COUNT_AT]) + 1
        row = self._rows[(number - 1) % SLOW]
        row[_NUMBER] = 0
        row[_API : _BYTES + 1] = slow[:-1]
        name = slow.client.encode()[: 8 * CLIENT_WORDS].ljust(8 * CLIENT_WORDS, b"\0")
        row[_BYTES + 1 :] = np.frombuffer(name, np.int64)
        row[_NUMBER] = self._words[_SLOW_COUNT_AT] = number

    @property
    def slow_count(self) -> int:
        """How many requests were ever slow."""
        return int(self._words[_SLOW_COUNT_AT])

    def slow(self) -> Iterator[SlowRequest]:
        """The last SLOW slow requests, newest first."""
        last = self.slow_count
        for number in range(last, max(0, last - SLOW), -1):
            row = self._rows[(number - 1) % SLOW]
            copy = row.copy()
            if copy[_NUMBER] == number == row[_NUMBER]:
                client = copy[_BYTES + 1 :].tobytes().rstrip(b"\0").decode(errors="replace")
                yield SlowRequest._make([*copy[_API : _BYTES + 1].tolist(), client])
