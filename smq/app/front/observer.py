"""Collects the facts of /metrics from shared memory, the SQL store and the kernel.

It asks no other process, so metrics work while a shard hangs, and cost the data path nothing.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import psutil

from gateway.apis.table import API_BY_KEY
from shm.cluster import ClusterBlock
from shm.kernels.base import words
from shm.timings import ERROR_SLOTS, NodeTimings, RpcTimings, Timings
from smq.app.process.clock import monotonic_ms, wall_ms
from smq.app.process.lake import table_facts
from smq.app.process.status import (
    COUNTERS,
    ProcessStatus,
    Status,
    attach_logs,
    attach_timings,
    counters_of,
    read_status,
)
from smq.front.metrics.ends import Ends
from smq.front.metrics.facts import (
    BOUNDS_S,
    ApiErrors,
    ApiTimes,
    CertificateFacts,
    Facts,
    GroupOffset,
    LogFacts,
    NodeFacts,
    PartitionFacts,
    ProcessFacts,
    RpcFacts,
    TableFacts,
)
from smq.log.room import room_of
from smq.model.errors import ErrorCode, StoreError
from smq.model.rpcs import RPCS, STATUSES
from smq.security.listeners import GRPC_NAMES
from smq.store.overview import Committed, Overview, Sealed, open_overview

if TYPE_CHECKING:
    from shm.segment import LogMemory
    from smq.model.catalog import Topic

SEALED_MS = 15_000  # The maximum age of sealed sizes: SQLite scans all segments.
BUCKETS_SHOWN = [round(1e6 * each).bit_length() - 1 for each in BOUNDS_S]
DAY_MS = 24 * 3600 * 1000
SAMPLE_MS = 10_000  # The interval of samples of the partitions' ends.
_NAMES = {each.value: each.name for each in ErrorCode}


class Observer:
    """The observer of one broker. Must be used from one thread: SQLite requires it."""

    def __init__(self, data_dir: Path, failed_logins: Callable[[], int] = int) -> None:
        self._data_dir, self._failed_logins = data_dir, failed_logins
        self._version = version("smq-broker")
        self._memories: list[LogMemory] = []
        self._timings: Timings | None = None
        self._overview: Overview | None = None
        self._store_version = -1
        self._topics: list[Topic] = []
        self._committed: list[Committed] = []
        self._members: dict[str, int] = {}
        self._table = _Table([])
        self._sealed: dict[int, Sealed] = {}
        self._sealed_ms = self._sampled_ms = -SEALED_MS
        self._ends = Ends()
        self._missing: list[str] = []

    def look(self) -> Facts:
        """Read the facts now."""
        self._missing = []
        found = read_status(self._data_dir)
        if found is None:
            return Facts(version=self._version, is_ready=False, started_ms=0)
        status, block = found
        if not self._memories:  # The supervisor's memory lives as long as this process.
            self._memories = attach_logs(status)
            self._timings = attach_timings(status)
        self._read_store()
        rows = self._rows()
        partitions = list(self._partitions(rows, block))
        unknown_acks, passed_batches = self._agent_counts()
        return Facts(
            version=self._version,
            is_ready=status.ready,
            started_ms=status.started_ms,
            processes=[*_processes(status)],
            nodes=[*_nodes(block)],
            certificates=[*_certificates(status, block), *self._grpc_certificates()],
            logs=[*self._logs(status.wal_bytes_max)],
            partitions=partitions,
            offsets=[*self._offsets(rows)],
            members=self._members,
            times=[*self._times()],
            errors=[*self._errors()],
            rpcs=[] if self._timings is None else [*rpcs_of(self._timings.rpcs())],
            unknown_acks=unknown_acks,
            passed_batches=passed_batches,
            http_failed_logins=self._failed_logins(),
            slow_requests=sum(each.slow_count for each in self._nodes_timings()),
            tables=self._lake_tables(),
            disk_free_bytes=shutil.disk_usage(self._data_dir).free,
            missing=tuple(self._missing),
        )

    def _agent_counts(self) -> tuple[int, int]:
        """Its unknown acknowledgements, and the batches that its readers passed over."""
        if self._timings is None:
            return 0, 0
        found = self._timings.rpcs()
        return int(found.unknown_acks[0]), int(found.passed_batches[0])

    def counters(self) -> dict[str, int]:
        """The sums of all logs' counters since the broker's start."""
        if not self._memories:
            self.look()
        each = [counters_of(memory) for memory in self._memories]
        return {name: sum(counters[name] for counters in each) for name in COUNTERS}

    def lags(self) -> tuple[tuple[str, ...], np.ndarray]:
        """The groups, and the lag of each in records: int64 in the same order."""
        if not self._memories:
            self.look()
        self._missing = []
        self._read_store()
        rows = self._rows()
        columns = rows[:, words.P_NUMBER], rows[:, words.P_HIGH_WATERMARK]
        return self._table.groups, self._table.lags(*columns)

    def sample(self) -> None:
        """Sample the partitions' ends. Called periodically, whether or not metrics are scraped."""
        if not self._memories:
            self.look()
        else:
            self._sample(self._rows())

    def _lake_tables(self) -> list[TableFacts]:
        if self._overview is None:  # Reading failed; the failure is reported.
            return []
        try:
            manifest = self._overview.manifest
            return [*table_facts(self._data_dir, manifest, self._topics, wall_ms())]
        except StoreError as reason:
            self._missing.append(f"lake tables: {reason}")
            return []

    def _rows(self) -> np.ndarray:
        """The rows of all led partitions, in the order of their numbers: int64 [n, columns]."""
        tables = [
            memory.partitions[: int(memory.words[words.WORD_PARTITION_COUNT])]
            for memory in self._memories
        ]
        used = [table[table[:, words.P_FLAGS] & words.FLAG_IN_USE != 0] for table in tables]
        every = np.concatenate(used) if used else np.zeros((0, words.PARTITION_COLUMNS), np.int64)
        rows: np.ndarray = every[np.argsort(every[:, words.P_NUMBER])]
        return rows

    def _sample(self, rows: np.ndarray) -> None:
        now_ms = monotonic_ms()
        if now_ms - self._sampled_ms < SAMPLE_MS:
            return
        self._sampled_ms = now_ms
        numbers, ends = rows[:, words.P_NUMBER].copy(), rows[:, words.P_HIGH_WATERMARK].copy()
        self._ends.add(now_ms, numbers, ends)

    def _read_store(self) -> None:
        try:
            if self._overview is None:
                self._overview = open_overview(self._data_dir / "store.sqlite")
            overview, now_ms = self._overview, monotonic_ms()
            store_version = overview.version()
            if store_version != self._store_version:
                self._topics = overview.manifest.topics()
                self._committed, self._members = overview.committed(), overview.members()
                self._table = _Table(self._committed)
                self._store_version = store_version
            if now_ms - self._sealed_ms >= SEALED_MS:
                self._sealed, self._sealed_ms = overview.sealed(), now_ms
        except StoreError as reason:
            self._missing.append(str(reason))
            if self._overview is not None:
                self._overview.close()
            self._overview, self._store_version = None, -1

    def _partitions(self, rows: np.ndarray, block: ClusterBlock) -> Iterator[PartitionFacts]:
        nothing, node_ids = Sealed(0, 0), block.node_ids
        columns = (words.P_LOG_START, words.P_HIGH_WATERMARK, words.P_UNSEALED_BYTES)
        firsts, ends, unsealed = (rows[:, each].tolist() for each in columns)
        more = rows[:, [words.P_LAST_STABLE, words.P_SEALED_END, words.P_EPOCH]].tolist()
        places = _places(rows)
        for topic in self._topics:
            for partition, number in enumerate(topic.partition_numbers):
                if (at := places.get(number)) is None:
                    continue
                sealed = self._sealed.get(number, nothing)
                yield PartitionFacts(
                    topic.name,
                    partition,
                    topic.node(partition, node_ids),
                    firsts[at],
                    ends[at],
                    unsealed[at],
                    sealed.bytes,
                    sealed.segments,
                    sealed.untyped,
                    topic.logs[partition],
                    *more[at],
                )

    def _offsets(self, rows: np.ndarray) -> Iterator[GroupOffset]:
        self._sample(rows)
        now_ms = monotonic_ms()
        names = {
            number: (topic.name, partition)
            for topic in self._topics
            for partition, number in enumerate(topic.partition_numbers)
        }
        ends, places = rows[:, words.P_HIGH_WATERMARK].tolist(), _places(rows)
        for group, number, offset in self._committed:
            if number in names and number in places:
                lag = max(0, ends[places[number]] - offset)
                lag_s = self._ends.lag_s(number, offset, now_ms) if lag else 0.0
                yield GroupOffset(group, *names[number], offset, lag, lag_s)

    def _logs(self, wal_bytes_max: int) -> Iterator[LogFacts]:
        for memory in self._memories:
            word = memory.words
            tail, start = word[words.WORD_TAIL], word[words.WORD_RING_START]
            room = room_of(word)
            yield LogFacts(
                int(word[words.WORD_LOG]),
                counters_of(memory),
                int(word[words.WORD_RING_BYTES]),
                max(0, tail - start),
                room.limit_bytes or wal_bytes_max,
                room.bytes,
                max(0, tail - word[words.WORD_SYNCED]),
                tail,
                word[words.WORD_WRITTEN],
                word[words.WORD_SYNCED],
                start,
                _below(np.asarray(word[words.COUNTER_SYNC_TIMES :][: words.TIME_BUCKETS])),
                int(word[words.COUNTER_SYNC_NS]) / 1e9,
            )

    def _grpc_certificates(self) -> list[CertificateFacts]:
        ends = [] if self._timings is None else self._timings.rpcs().ends.tolist()
        return [*grpc_certificates(ends, wall_ms())]

    def _nodes_timings(self) -> list[NodeTimings]:
        return self._timings.nodes() if self._timings else []

    def _times(self) -> Iterator[ApiTimes]:
        """The latency histogram of each API that was called."""
        nodes = self._nodes_timings()
        if not nodes:
            return
        counts = np.sum([each.counts for each in nodes], axis=0)
        sums = np.sum([each.sums for each in nodes], axis=0)
        for key in np.flatnonzero(counts.any(axis=1)).tolist():
            *below, requests = _below(counts[key])
            yield ApiTimes(_api(key), tuple(below), requests, int(sums[key]) / 1e9)

    def _errors(self) -> Iterator[ApiErrors]:
        """The errors of all answers so far."""
        if self._timings is None:
            return
        errors = self._timings.errors()
        for key, slot in np.argwhere(errors).tolist():
            yield ApiErrors(_api(key), _error(slot), int(errors[key, slot]))


def rpcs_of(timings: RpcTimings) -> Iterator[RpcFacts]:
    """The methods that were called."""
    for number, (service, method) in enumerate(RPCS):
        totals = timings.totals[number].tolist()
        begun = int(timings.begun[number])
        if begun or any(totals):
            by_status = {name: n for name, n in zip(STATUSES, totals, strict=True) if n}
            yield RpcFacts(service, method, by_status, int(timings.sums[number]) / 1e9, begun)


def grpc_certificates(ends_ms: Sequence[int], at_ms: int) -> Iterator[CertificateFacts]:
    """How long those of the agent's ports are valid; 0: it has none."""
    for name, end_ms in zip(GRPC_NAMES.values(), ends_ms, strict=False):
        if end_ms:
            yield CertificateFacts(name, (end_ms - at_ms) / DAY_MS)


def _places(rows: np.ndarray) -> dict[int, int]:
    """The place of each partition's row, by its number."""
    return {number: at for at, number in enumerate(rows[:, words.P_NUMBER].tolist())}


def _below(counts: np.ndarray) -> tuple[int, ...]:
    """How many times were below each of BOUNDS_S, then how many there were, from their buckets."""
    below = np.cumsum(counts)
    return (*below[BUCKETS_SHOWN].tolist(), int(below[-1]))


def _api(key: int) -> str:
    return API_BY_KEY[key].name if key in API_BY_KEY else str(key)


def _error(slot: int) -> str:
    """Kafka's name of the error codes that a slot counts."""
    if slot == ERROR_SLOTS - 1:
        return "OTHER"
    code = slot - 1
    return _NAMES.get(code, str(code))


class _Table:
    """Committed offsets as columns, so that one sum yields the lags of all groups."""

    def __init__(self, committed: list[Committed]) -> None:
        self.groups = tuple(dict.fromkeys(each.group_id for each in committed))
        index = {group: at for at, group in enumerate(self.groups)}
        self._of = np.array([index[each.group_id] for each in committed], np.int64)
        self._numbers = np.array([each.number for each in committed], np.int64)
        self._offsets = np.array([each.offset for each in committed], np.int64)

    def lags(self, numbers: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """The lag of each group, from partitions' numbers, ascending, and their ends."""
        if not len(numbers):
            return np.zeros(len(self.groups), np.int64)
        places = np.minimum(np.searchsorted(numbers, self._numbers), len(numbers) - 1)
        is_known = numbers[places] == self._numbers
        behind = ends[places[is_known]] - self._offsets[is_known]
        lags = np.zeros(len(self.groups), np.int64)
        np.add.at(lags, self._of[is_known], np.maximum(behind, 0))
        return lags


def _nodes(block: ClusterBlock) -> Iterator[NodeFacts]:
    for node in block.nodes():
        connections, sessions = block.connections(node.id), block.sessions(node.id)
        logins = block.logins(node.id)
        yield NodeFacts(node.id, connections, sessions, node.generation, logins)


def _certificates(status: Status, block: ClusterBlock) -> Iterator[CertificateFacts]:
    """What the nodes use, which may be older than the files are."""
    used = [block.certificates(node.id) for node in block.nodes()]
    for name, ends in zip(status.listeners, zip(*used, strict=True), strict=False):
        if known := [end for end in ends if end]:
            yield CertificateFacts(name, (min(known) - wall_ms()) / DAY_MS)


def _processes(status: Status) -> Iterator[ProcessFacts]:
    for name, each in status.processes.items():
        yield _process(name, each)
    yield _process("supervisor", ProcessStatus(pid=status.supervisor_pid, ready=True))


def _process(name: str, status: ProcessStatus) -> ProcessFacts:
    if not status.pid:
        return ProcessFacts(name, is_ready=False, restarts=status.restarts)
    try:
        process = psutil.Process(status.pid)
        with process.oneshot():
            times = process.cpu_times()
            return ProcessFacts(
                name,
                status.ready,
                status.restarts,
                times.user + times.system,
                process.memory_info().rss,
                process.num_fds(),
                process.num_threads(),
            )
    except (psutil.Error, OSError):  # The process has just ended.
        return ProcessFacts(name, is_ready=False, restarts=status.restarts)
