"""The facts about a broker that metrics are rendered from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from shm.cluster import LoginCounts

# Upper bounds of the latency histograms: powers of two of microseconds.
BOUNDS_S = tuple(2**each / 1e6 for each in (6, 7, 8, 9, 10, 11, 12, 13, 15, 17, 19, 21, 23))


class ProcessFacts(NamedTuple):
    """A process of the broker; while it is down all fields but restarts are zero."""

    name: str
    is_ready: bool
    restarts: int
    cpu_s: float = 0.0
    resident_bytes: int = 0
    descriptors: int = 0
    threads: int = 0


class NodeFacts(NamedTuple):
    """A shard as a Kafka broker."""

    node_id: int
    connections: int
    sessions: int
    generation: int
    logins: LoginCounts


class CertificateFacts(NamedTuple):
    """How long the certificate of a listener is valid, the first that ends of all that it shows;
    negative: it has ended."""

    listener: str
    days_left: float


class LogFacts(NamedTuple):
    """A log: its counters by name since the broker's start, and its fill level in bytes.

    Four are positions: the end, what the WAL has, what the disk has, and the start of what the ring
    holds. `syncs_below`: how many syncs were faster than each of BOUNDS_S, then the number of all
    syncs, which took `sync_s` in total.
    """

    log: int
    counters: Mapping[str, int]
    ring_bytes: int
    ring_used_bytes: int
    wal_bytes_max: int
    wal_room_bytes: int
    unsynced_bytes: int
    tail: int = 0
    written: int = 0
    synced: int = 0
    ring_start: int = 0
    syncs_below: tuple[int, ...] = (0,) * (len(BOUNDS_S) + 1)
    sync_s: float = 0.0


class PartitionFacts(NamedTuple):
    """A partition that a shard currently leads."""

    topic: str
    partition: int
    leader: int
    first_offset: int
    end_offset: int
    unsealed_bytes: int
    sealed_bytes: int
    segments: int
    untyped: int = 0
    """Sealed records whose value does not fit the topic's schema."""
    log: int = 0
    stable_offset: int = 0
    sealed_end_offset: int = 0
    leader_epoch: int = 0


class ApiTimes(NamedTuple):
    """Latencies of an API; `below`: how many requests were faster than each of BOUNDS_S."""

    api: str
    below: tuple[int, ...]
    requests: int
    seconds: float


class ApiErrors(NamedTuple):
    """How often answers of an API, or rows of them, had an error, by its Kafka name."""

    api: str
    error: str
    total: int


class RpcFacts(NamedTuple):
    """Calls of a gRPC method: those that have ended, by their status; how long; and the open."""

    service: str
    method: str
    totals: Mapping[str, int]
    seconds: float
    open: int


class GroupOffset(NamedTuple):
    """A group's committed offset. `lag_s` is None if unknown."""

    group: str
    topic: str
    partition: int
    offset: int
    lag: int
    lag_s: float | None


class TableFacts(NamedTuple):
    """A topic's lake table: its lag behind sealed segments. `synced_ms` 0: never published."""

    topic: str
    format: str
    location: str
    files: int = 0
    records_behind: int = 0
    behind_s: float = 0.0
    raw_records: int = 0
    synced_ms: int = 0
    error: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """A snapshot of a broker. `missing` describes in words what could not be read."""

    version: str
    is_ready: bool
    started_ms: int
    processes: Sequence[ProcessFacts] = ()
    nodes: Sequence[NodeFacts] = ()
    certificates: Sequence[CertificateFacts] = ()
    logs: Sequence[LogFacts] = ()
    partitions: Sequence[PartitionFacts] = ()
    offsets: Sequence[GroupOffset] = ()
    members: Mapping[str, int] = field(default_factory=dict)
    times: Sequence[ApiTimes] = ()
    slow_requests: int = 0
    unknown_acks: int = 0
    passed_batches: int = 0
    http_failed_logins: int = 0
    errors: Sequence[ApiErrors] = ()
    rpcs: Sequence[RpcFacts] = ()
    tables: Sequence[TableFacts] = ()
    disk_free_bytes: int = 0
    missing: Sequence[str] = ()
