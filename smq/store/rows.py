"""Rows of the store as frozen records. Topics are `smq.model.catalog.Topic`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from smq.model.frozen import frozen


class CommittedOffset(NamedTuple):
    """A group's committed offset of a partition."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    """On the time line, as `expire_ms`. It says how old an offset is, not which came later."""
    expire_ms: int | None = None
    """Set by clients that request a retention (OffsetCommit 2-4)."""


@frozen
class StoredMember:
    """A member of a group at its last stable generation."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    assignment: bytes
    protocols: tuple[tuple[str, bytes], ...]
    place: int = 0
    """Its row's key within the group; members are sorted by it."""


@frozen
class StoredGroup:
    """A group at its last stable generation, or when its last member left."""

    group_id: str
    protocol_type: str | None
    generation: int
    protocol_name: str | None
    leader: str | None
    members: tuple[StoredMember, ...]


@frozen
class GroupChange:
    """Changes of a group since it was last saved. `group` has the current fields."""

    group_id: str
    protocol_type: str | None
    generation: int
    protocol_name: str | None
    leader: str | None
    is_empty: bool
    members: tuple[StoredMember, ...] = ()
    """New or changed members."""
    gone: tuple[int, ...] = ()
    """Places that became free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTransaction:
    """A transactional id: its producer, and its open transaction. -1: there is no such id, epoch or
    time.

    state         one of smq.coordinator.transactions.states
    last_epoch    the epoch before, if its producer may still name it
    version       of transactions, in which the last one was ended: 1, or 2 where the epoch rises
    previous_producer_id, next_producer_id   around the end of an id's epochs
    started_ms    of the transaction that is open or was the last, on the time line, as updated_ms
    is_synced     whether a power loss must not tear the transaction that was decided last; of an
                  open one, whether what is noted of it is durable
    is_torn       whether that was aborted because a log had lost some of its records
    partitions    numbers of those that need a marker
    groups        those whose offsets the transaction may commit
    written       by number, the generation of the log when the first records went there
    """

    transactional_id: str
    producer_id: int
    epoch: int
    previous_producer_id: int
    next_producer_id: int
    last_epoch: int
    timeout_ms: int
    state: str
    version: int
    started_ms: int
    updated_ms: int
    is_synced: bool = False
    is_torn: bool = False
    partitions: frozenset[int] = frozenset()
    groups: frozenset[str] = frozenset()
    written: Mapping[int, int] = field(default_factory=dict)
