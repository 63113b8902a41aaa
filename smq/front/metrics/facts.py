"""The facts about a broker that its metrics are made from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class ProcessFacts(NamedTuple):
    """A process of the broker; all zero but restarts while it is down."""

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


class LogFacts(NamedTuple):
    """A log: its counters since the broker's start by name, and how full it is, in bytes."""

    log: int
    counters: Mapping[str, int]
    ring_bytes: int
    ring_used_bytes: int
    wal_bytes_max: int
    wal_room_bytes: int
    unsynced_bytes: int


class PartitionFacts(NamedTuple):
    """A partition that a shard leads now."""

    topic: str
    partition: int
    leader: int
    first_offset: int
    end_offset: int
    unsealed_bytes: int
    sealed_bytes: int
    segments: int


class GroupOffset(NamedTuple):
    """A group's committed offset. `lag_s` is None where nobody knows when that was the end."""

    group: str
    topic: str
    partition: int
    offset: int
    lag: int
    lag_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """One moment of a broker. `missing` says in words what could not be read."""

    version: str
    is_ready: bool
    started_ms: int
    processes: Sequence[ProcessFacts] = ()
    nodes: Sequence[NodeFacts] = ()
    logs: Sequence[LogFacts] = ()
    partitions: Sequence[PartitionFacts] = ()
    offsets: Sequence[GroupOffset] = ()
    members: Mapping[str, int] = field(default_factory=dict)
    disk_free_bytes: int = 0
    missing: Sequence[str] = ()
