"""Who is in a group: members, the static ones by instance, and what they have in common.

No states and no time here; `smq.coordinator.group` has those.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from smq.coordinator.group_events import Protocols, Ticket
from smq.model.errors import BrokerError, ErrorCode
from smq.store.rows import StoredMember

NEVER_MS = 2**63 - 1


@dataclass(slots=True)
class Member:
    """A member, and what it waits for.

    It waits for at most one of JoinGroup and SyncGroup. While it waits it need not send heartbeats,
    but for the first time it joins (`is_new`).
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    assignment: bytes
    protocols: Protocols
    is_new: bool = False
    join_ticket: Ticket | None = None
    sync_ticket: Ticket | None = None
    deadline_ms: int = NEVER_MS

    def metadata(self, protocol_name: str | None) -> bytes:
        """What the member said with a protocol."""
        return dict(self.protocols).get(protocol_name or "", b"")

    def waits(self) -> bool:
        """Whether the member has a request with us that is not answered yet."""
        return self.join_ticket is not None or self.sync_ticket is not None

    def stored(self) -> StoredMember:
        """What outlives the process."""
        return StoredMember(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.session_timeout_ms,
            self.rebalance_timeout_ms,
            self.assignment,
            self.protocols,
        )

    @classmethod
    def restore(cls, stored: StoredMember) -> "Member":
        """The member that was stored."""
        return cls(
            stored.member_id,
            stored.instance_id,
            stored.client_id,
            stored.client_host,
            stored.session_timeout_ms,
            stored.rebalance_timeout_ms,
            stored.assignment,
            stored.protocols,
        )


class Roster:
    """Members in the order they came. One of them leads, while there are any.

    All members have a protocol in common: whoever has none with the others must not be added.
    """

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self.leader: str | None = None
        self._member_of_instance: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self.members)

    def __contains__(self, member_id: object) -> bool:
        return member_id in self.members

    def __iter__(self) -> Iterator[Member]:
        """Over the members there are now: they may be dropped on the way."""
        return iter(list(self.members.values()))

    def find(self, member_id: str, instance_id: str | None) -> Member:
        """The member that says it is this one. Raises BrokerError: unknown, or fenced."""
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

    def add(self, member: Member) -> None:
        """Let a member in. The first one leads."""
        assert member.member_id not in self.members
        self.members[member.member_id] = member
        if member.instance_id is not None:
            assert member.instance_id not in self._member_of_instance
            self._member_of_instance[member.instance_id] = member.member_id
        self.leader = self.leader or member.member_id

    def drop(self, member_id: str) -> Member | None:
        """Remove a member; the next one leads if it did. None: there was no such member."""
        member = self.members.pop(member_id, None)
        if member is not None and member.instance_id is not None:
            del self._member_of_instance[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return member

    def rename(self, member: Member, member_id: str) -> None:
        """Give a static member a new id. It keeps its place in the order, and the lead."""
        assert member.instance_id is not None
        if self.leader == member.member_id:
            self.leader = member_id
        member.member_id = member_id
        self._member_of_instance[member.instance_id] = member_id
        self.members = {each.member_id: each for each in self.members.values()}

    def elect_leader(self) -> bool:
        """Have a leader among those who wait for their JoinGroup; False: nobody does."""
        joined = [each.member_id for each in self if each.join_ticket is not None]
        if joined and self.leader not in joined:
            self.leader = joined[0]
        return bool(joined)

    def joined_count(self) -> int:
        """How many wait for the answer to their JoinGroup."""
        return sum(each.join_ticket is not None for each in self.members.values())

    def rebalance_timeout_ms(self) -> int:
        """How long the slowest member may take to rejoin."""
        return max((each.rebalance_timeout_ms for each in self.members.values()), default=0)

    def common_protocols(self) -> set[str]:
        """The protocols that every member knows."""
        known = [{name for name, _ in each.protocols} for each in self.members.values()]
        return set.intersection(*known) if known else set()

    def vote(self) -> str:
        """The protocol that most members prefer among those all know."""
        common = self.common_protocols()
        assert common, "somebody was added that has no protocol in common with the others"
        votes = Counter(
            next(name for name, _ in each.protocols if name in common)
            for each in self.members.values()
        )
        return votes.most_common(1)[0][0]

    def invariants(self) -> None:
        """What holds between any two calls."""
        assert (self.leader in self.members) == bool(self.members)
        assert all(member_id == each.member_id for member_id, each in self.members.items())
        assert not self.members or self.common_protocols()
        assert self._member_of_instance == {
            each.instance_id: each.member_id
            for each in self.members.values()
            if each.instance_id is not None
        }
