"""The pages' port to the broker. `smq.app.front.desk` implements it with the SDK.

Each call blocks, for a few seconds at most. Each raises BrokerError with a sentence, or ValueError
for invalid input of the operator.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from smq.security.acls import AclBinding, Operation, ResourceType
from smq.store.config_changes import ConfigChange

PREVIEW_BYTES = 2048  # Of a key and of a value in a list.
HEADERS_MAX = 100  # Of a record: those shown, and those that a search looks at.
PARTITIONS_AT_ONCE = 64  # That one list reads; beyond, the operator selects a partition.
NEWEST, EARLIEST = "newest", "earliest"


class ShownRecord(NamedTuple):
    """A record with its key, value and headers, perhaps truncated."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    key_bytes: int
    value_bytes: int
    are_headers_cut: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A filter for a topic's records.

    partition   None: all
    start       NEWEST (newest first), EARLIEST, an offset, or @ and a time: milliseconds since
                1970, or ISO 8601 (UTC unless it names another zone)
    until       where to end, an offset or time as above (exclusive); "": the end
    key, text   only records whose key contains this, or whose key or value does
    header      only records with this header: `name`, or `name=part of the value`
    cursor      where an earlier answer stopped, by partition
    """

    topic: str
    partition: int | None = None
    start: str = NEWEST
    until: str = ""
    key: str = ""
    header: str = ""
    text: str = ""
    limit: int = 50
    cursor: Mapping[int, int] = field(default_factory=dict)

    @property
    def is_search(self) -> bool:
        return bool(self.key or self.header or self.text)


class PassedOver(NamedTuple):
    """A batch whose records a search has not looked at: offsets in [base, end)."""

    partition: int
    base: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRecords:
    """Records, and how far the search got.

    cursor    where to continue, by partition; empty at the end
    looked    the number of records examined, and their bytes
    beyond    batches that were passed over, since they inflate too far
    """

    records: Sequence[ShownRecord]
    cursor: Mapping[int, int]
    looked: int
    looked_bytes: int
    beyond: Sequence[PassedOver] = ()


class ShownSetting(NamedTuple):
    """A setting and its origin: `is_set` here, or a default."""

    name: str
    value: str
    is_set: bool
    is_read_only: bool


class BrokerSetting(NamedTuple):
    """A setting of the broker; `source` describes the value's origin in words."""

    name: str
    value: str
    source: str
    is_read_only: bool
    is_secret: bool


class ShownReference(NamedTuple):
    """A sealed segment with offsets in [base, end) that refers to a payload."""

    topic: str
    partition: int
    base: int
    end: int


class ShownMember(NamedTuple):
    """A member of a group and its partitions."""

    member_id: str
    instance_id: str
    client_id: str
    host: str
    partitions: tuple[tuple[str, int], ...]


class ShownGroup(NamedTuple):
    """A group as its coordinator describes it."""

    group: str
    state: str
    protocol: str
    members: tuple[ShownMember, ...]


class GroupRow(NamedTuple):
    """A group in a list."""

    group: str
    state: str


class Move(NamedTuple):
    """A partition's committed offset before (None: there is none) and after a reset."""

    topic: str
    partition: int
    before: int | None
    after: int
    end: int


class ShownUser(NamedTuple):
    """A user with passwords: of which mechanisms, in words."""

    name: str
    mechanisms: tuple[str, ...]


class Ruling(NamedTuple):
    """Whether a principal may do something, why, and by which rule ("": by none)."""

    principal: str
    allowed: bool
    reason: str
    rule: str


class Denial(NamedTuple):
    """A refusal as the audit log tells it."""

    time: str
    principal: str
    host: str
    listener: str
    api: str
    operation: str
    resource_type: str
    resource: str
    times: str


class NewRecord(NamedTuple):
    """A record to produce. `partition` None: chosen by the key."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


class Desk(Protocol):
    """The broker."""

    def read(self, wanted: Wanted) -> FoundRecords:
        """Search for records within the bounds."""
        ...

    def record(self, topic: str, partition: int, offset: int) -> ShownRecord | None:
        """One whole record."""
        ...

    def produce(self, record: NewRecord) -> tuple[int, int]:
        """Append a record; returns its partition and offset."""
        ...

    def settings(self, topic: str) -> list[ShownSetting]:
        """The settings of a topic."""
        ...

    def broker_settings(self) -> list[BrokerSetting]:
        """The settings of the broker."""
        ...

    def set_broker(self, name: str, value: str | None) -> None:
        """Set a setting for all brokers; None restores the value from their start."""
        ...

    def changes(self, count: int) -> list[ConfigChange]:
        """The newest configuration changes of all resources."""
        ...

    def references(self, payload: str) -> list[ShownReference]:
        """The sealed segments that refer to a payload, by payload id."""
        ...

    def create(self, topic: str, partitions: int | None, configs: Mapping[str, str]) -> int:
        """Create a topic; returns its number of partitions."""
        ...

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        ...

    def set(self, topic: str, name: str, value: str | None) -> None:
        """Set a topic config; None restores the default."""
        ...

    def add_partitions(self, topic: str, added: int) -> int:
        """Add partitions to a topic; returns the new number."""
        ...

    def groups(self) -> list[GroupRow]:
        """All groups."""
        ...

    def group(self, group: str) -> ShownGroup:
        """A group and its members."""
        ...

    def moves(self, group: str, topic: str, place: str) -> list[Move]:
        """The offsets that resetting the group to a place (as in Wanted.start) would change."""
        ...

    def reset(self, group: str, moves: Sequence[Move]) -> None:
        """Commit the moves. Refuses if the group has members."""
        ...

    def delete_group(self, group: str) -> None:
        """Delete a group and its offsets."""
        ...

    def users(self) -> list[ShownUser]:
        """The users that have passwords."""
        ...

    def delete_user(self, user: str) -> None:
        """Delete a user's passwords."""
        ...

    def rules(self, kind: ResourceType, name: str) -> list[AclBinding]:
        """The access rules that apply to a resource; of the kind ANY all."""
        ...

    def rulings(
        self, operation: Operation, kind: ResourceType, name: str, host: str
    ) -> list[Ruling]:
        """Who may do something with a resource from an address, and why."""
        ...

    def denials(self, count: int) -> list[Denial]:
        """The newest refusals of the audit log, whoever was refused."""
        ...
