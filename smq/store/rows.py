"""Rows of the store as frozen records. Topics are `smq.model.catalog.Topic`."""

from dataclasses import dataclass
from typing import NamedTuple


class CommittedOffset(NamedTuple):
    """A group's committed offset of a partition."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int | None = None
    """Set by clients that request a retention (OffsetCommit 2-4)."""


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """A group at its last stable generation, or when its last member left."""

    group_id: str
    protocol_type: str | None
    generation: int
    protocol_name: str | None
    leader: str | None
    members: tuple[StoredMember, ...]


@dataclass(frozen=True, slots=True)
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
