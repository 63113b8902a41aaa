"""The events and effects of `smq.coordinator.group`.

A ticket stands for a request whose answer may have to wait; the group returns it with the answer,
exactly once. Only the caller knows what it means.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from smq.model.errors import ErrorCode
from smq.store.rows import GroupChange

Ticket: TypeAlias = object
Protocols: TypeAlias = tuple[tuple[str, bytes], ...]
"""Name and metadata, in the order the member prefers them. We never look into the metadata."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """JoinGroup. `new_member_id` is the id to give where the request brings none."""

    ticket: Ticket
    member_id: str
    new_member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    must_know_member_id: bool
    """Version 4 and later: a new dynamic member is told its id first, and joins with it."""
    may_skip_assignment: bool
    """Version 9 and later: a returning static leader is told to keep the assignment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """SyncGroup. Protocol type and name are None before version 5."""

    ticket: Ticket
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Heartbeat. Refused, or fine without an answer of its own."""

    member_id: str
    instance_id: str | None
    generation: int


@dataclass(frozen=True, slots=True)
class Leave:
    """LeaveGroup of these (member id, instance id); an empty member id goes by instance alone."""

    ticket: Ticket
    members: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class Commit:
    """OffsetCommit: may this member commit? Refused, or fine without an answer of its own.

    `is_transactional`: TxnOffsetCommit, where a client that names no member may always commit, and
    a member also between joining and its assignment.
    """

    member_id: str
    instance_id: str | None
    generation: int
    is_transactional: bool = False


class HeldMember(NamedTuple):
    """A member that a process of ours names, with what it says of itself and what it has."""

    member_id: str
    client_id: str
    client_host: str
    said: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """A process of ours names members that have come or changed, and those that have `gone`.

    `generation`: the one that this changes. Negative: there are no members but these.
    """

    protocol_type: str
    protocol_name: str
    session_timeout_ms: int
    generation: int = -1
    members: tuple[HeldMember, ...] = ()
    gone: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TimePasses:
    """A deadline may have passed."""


Event: TypeAlias = Join | Sync | Heartbeat | Leave | Commit | Hold | TimePasses


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAnswer:
    """To a Join. `members` is (member id, instance id, metadata), for the leader only."""

    error: ErrorCode = ErrorCode.NONE
    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncAnswer:
    """To a Sync."""

    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class LeaveAnswer:
    """To a Leave: an error for each member, in the order asked."""

    errors: tuple[ErrorCode, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """Effect: the answer to a ticket's request is known."""

    ticket: Ticket
    answer: JoinAnswer | SyncAnswer | LeaveAnswer


@dataclass(frozen=True, slots=True)
class Save:
    """Effect: save the group's changes before any answer of this turn goes out."""

    change: GroupChange


Effect: TypeAlias = Answer | Save
