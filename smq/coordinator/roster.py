"""The members of a group, static ones by instance id, and what they have in common.

States and time are in `smq.coordinator.group`. The cost of each request's queries does not depend
on the number of members: the roster updates its counts as members come, change and go. So all
changes of members go through it.

Each member has a place, the key of its row in the store. The roster also tracks which rows differ
from what was saved last: saving a group writes these.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from smq.coordinator.group_events import Protocols, Ticket
from smq.model.errors import BrokerError, ErrorCode
from smq.store.rows import StoredMember

# Clients choose the rebalance timeout; one of 0 must not cause a busy loop.
REBALANCE_TIMEOUT_MS_MIN = 100
# Per member, beside the client's data: the objects, and the row in the store.
MEMBER_OVERHEAD_BYTES = 100
PROTOCOL_OVERHEAD_BYTES = 50


@dataclass(slots=True)
class Member:
    """A member, and what it waits for.

    It waits for at most one of JoinGroup and SyncGroup. While it waits it need not send heartbeats,
    except when it joins for the first time (`is_new`).
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    assignment: bytes
    protocols: Protocols
    place: int = -1
    """Assigned by the roster."""
    is_new: bool = False
    join_ticket: Ticket | None = None
    sync_ticket: Ticket | None = None
    saved: StoredMember | None = None
    """Its row in the store."""

    def metadata(self, protocol_name: str | None) -> bytes:
        """The member's metadata for a protocol."""
        return dict(self.protocols).get(protocol_name or "", b"")

    def waits(self) -> bool:
        """Whether the member has an unanswered request."""
        return self.join_ticket is not None or self.sync_ticket is not None

    def stored(self) -> StoredMember:
        """The member as stored."""
        return StoredMember(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.session_timeout_ms,
            self.rebalance_timeout_ms,
            self.assignment,
            self.protocols,
            self.place,
        )

    @classmethod
    def restore(cls, stored: StoredMember) -> "Member":
        """The member from its stored form."""
        return cls(
            stored.member_id,
            stored.instance_id,
            stored.client_id,
            stored.client_host,
            stored.session_timeout_ms,
            stored.rebalance_timeout_ms,
            stored.assignment,
            stored.protocols,
            stored.place,
            saved=stored,
        )


class RosterChanges(NamedTuple):
    """Changes of a roster since it was last saved; see smq.store.rows.GroupChange."""

    members: tuple[StoredMember, ...]
    gone: tuple[int, ...]


def metadata_bytes(client_id: str, instance_id: str | None, protocols: Protocols) -> int:
    """A member's approximate share of its group's bound: the client's data and its entry."""
    said = sum(PROTOCOL_OVERHEAD_BYTES + len(name) + len(metadata) for name, metadata in protocols)
    # The member id contains the client id, unless it contains the instance id.
    return MEMBER_OVERHEAD_BYTES + 2 * len(client_id) + 2 * len(instance_id or "") + said


class Roster:
    """Members in the order they came. One of them leads, while there are any.

    All members have a protocol in common: callers must not add one that has none with the others.

    bytes_held    the members' share of the bound (`metadata_bytes`)
    joined_count  the number of members that wait for the answer to JoinGroup
    """

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self.leader: str | None = None
        self.bytes_held = self.joined_count = 0
        # Linked: finding a dict's first key scans the entries deleted from its front.
        self._by_place: OrderedDict[int, Member] = OrderedDict()
        self._next_place = 0
        self._member_of_instance: dict[str, str] = {}
        self._supporters: Counter[str] = Counter()  # Members that support a protocol, by its name.
        self._touched: dict[int, Member] = {}  # Members whose rows may differ from the store.
        self._gone: list[int] = []

    def __len__(self) -> int:
        return len(self.members)

    def __contains__(self, member_id: object) -> bool:
        return member_id in self.members

    def __iter__(self) -> Iterator[Member]:
        """Iterate over the current members, which may be dropped meanwhile."""
        return iter(list(self._by_place.values()))

    def find(self, member_id: str, instance_id: str | None) -> Member:
        """The member with this id and instance id. Raises BrokerError: unknown, or fenced."""
        member = self.members.get(member_id)
        if instance_id is not None:
            known_as = self._member_of_instance.get(instance_id)
            if known_as is not None and known_as != member_id:
                raise BrokerError(ErrorCode.FENCED_INSTANCE_ID)
            member = member if known_as is not None else None
        if member is None:
            raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def of_instance(self, instance_id: str | None) -> Member | None:
        """The static member with this instance id."""
        member_id = self._member_of_instance.get(instance_id) if instance_id is not None else None
        return self.members[member_id] if member_id is not None else None

    # Coming, changing, going

    def add(self, member: Member) -> None:
        """Add a member. The first one leads."""
        assert member.member_id not in self.members
        assert member.saved is None or member.place >= self._next_place, "restored in order"
        if member.saved is None:
            member.place = self._next_place
            self._touched[member.place] = member
        self._next_place = member.place + 1
        self.members[member.member_id] = self._by_place[member.place] = member
        if member.instance_id is not None:
            assert member.instance_id not in self._member_of_instance
            self._member_of_instance[member.instance_id] = member.member_id
        self.joined_count += member.join_ticket is not None
        self._count(member, +1)
        self.leader = self.leader or member.member_id

    def drop(self, member_id: str) -> Member | None:
        """Remove a member; if it led, the next one leads. None: no such member."""
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        del self._by_place[member.place]
        if member.instance_id is not None:
            del self._member_of_instance[member.instance_id]
        self.joined_count -= member.join_ticket is not None
        self._count(member, -1)
        self._touched.pop(member.place, None)
        if member.saved is not None:
            self._gone.append(member.place)
        if self.leader == member_id:
            first = next(iter(self._by_place.values()), None)
            self.leader = first.member_id if first is not None else None
        return member

    def rename(self, member: Member, member_id: str) -> None:
        """Give a static member a new id. It keeps its place and the lead."""
        assert member.instance_id is not None
        assert member_id not in self.members
        if self.leader == member.member_id:
            self.leader = member_id
        del self.members[member.member_id]
        member.member_id = member_id
        self.members[member_id] = member
        self._member_of_instance[member.instance_id] = member_id
        self._touched[member.place] = member

    def update(
        self,
        member: Member,
        protocols: Protocols,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
    ) -> None:
        """Update a member's protocols and timeouts."""
        self._count(member, -1)
        member.protocols = protocols
        self._count(member, +1)
        member.session_timeout_ms = session_timeout_ms
        member.rebalance_timeout_ms = rebalance_timeout_ms
        self._touched[member.place] = member

    def assign(self, member: Member, assignment: bytes) -> None:
        """Set a member's assignment."""
        if member.assignment != assignment:
            member.assignment = assignment
            self._touched[member.place] = member

    def awaits_join(self, member: Member, ticket: Ticket) -> None:
        """The member waits for the answer to a JoinGroup."""
        assert member.join_ticket is None, "a ticket would be lost"
        member.join_ticket = ticket
        self.joined_count += 1

    def take_join_ticket(self, member: Member) -> Ticket | None:
        """Take the ticket of the member's JoinGroup: it waits no longer."""
        ticket, member.join_ticket = member.join_ticket, None
        self.joined_count -= ticket is not None and self.members.get(member.member_id) is member
        assert self.joined_count >= 0
        return ticket

    def _count(self, member: Member, sign: int) -> None:
        self.bytes_held += sign * self.bytes_of(member)
        for name in {name for name, _ in member.protocols}:
            self._supporters[name] += sign
            if not self._supporters[name]:
                del self._supporters[name]

    # What they have in common

    @staticmethod
    def bytes_of(member: Member) -> int:
        """A member's share of the bound."""
        return metadata_bytes(member.client_id, member.instance_id, member.protocols)

    def elect_leader(self) -> bool:
        """Make sure that the leader waits for JoinGroup; False if no member does."""
        leader = self.members.get(self.leader or "")
        if leader is None or leader.join_ticket is None:
            joined = (each.member_id for each in self if each.join_ticket is not None)
            self.leader = next(joined, self.leader)
        return self.joined_count > 0

    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of all members."""
        slowest = max((each.rebalance_timeout_ms for each in self.members.values()), default=0)
        return max(slowest, REBALANCE_TIMEOUT_MS_MIN)

    def all_know(self, protocol_name: str | None) -> bool:
        """Whether every member supports this protocol. True for any without members."""
        return self._supporters.get(protocol_name or "", 0) == len(self.members)

    def common_protocols(self) -> set[str]:
        """The protocols that every member supports."""
        return {name for name, count in self._supporters.items() if count == len(self.members)}

    def vote(self) -> str:
        """The protocol that most members prefer, of those that all support."""
        common = self.common_protocols()
        assert common, "a member was added that has no protocol in common with the others"
        votes = Counter(
            next(name for name, _ in each.protocols if name in common)
            for each in self._by_place.values()
        )
        return votes.most_common(1)[0][0]

    # What differs from what was saved

    def take_changes(self) -> RosterChanges:
        """Take the changes to write to the store; they count as saved from now on."""
        now = [(member, member.stored()) for member in self._touched.values()]
        changed = tuple(stored for member, stored in now if stored != member.saved)
        for member, stored in now:
            member.saved = stored
        gone = tuple(self._gone)
        self._touched, self._gone = {}, []
        return RosterChanges(changed, gone)

    def invariants(self) -> None:
        """Assert what holds between any two calls."""
        members = list(self._by_place.values())
        assert (self.leader in self.members) == bool(self.members)
        assert self.members == {each.member_id: each for each in members}
        assert len(self.members) == len(members)
        assert all(each.place == place for place, each in self._by_place.items())
        assert list(self._by_place) == sorted(self._by_place)
        assert not members or self.common_protocols()
        assert self.joined_count == sum(each.join_ticket is not None for each in members)
        assert self.bytes_held == sum(map(self.bytes_of, members))
        assert self._supporters == Counter(
            name for each in members for name in {name for name, _ in each.protocols}
        )
        assert all(
            each.stored() == each.saved for each in members if each.place not in self._touched
        )
        assert not {*self._gone} & self._by_place.keys()
        assert self._member_of_instance == {
            each.instance_id: each.member_id for each in members if each.instance_id is not None
        }
