"""A group's generation: its number, its protocol, and the answers that carry it to members."""

from smq.coordinator.group_events import JoinAnswer, SyncAnswer
from smq.coordinator.roster import Member, Roster
from smq.model.errors import BrokerError, ErrorCode
from smq.store.rows import GroupChange, StoredGroup


class Generation:
    """The generation that a group is in. `protocol_name` is None while there are no members."""

    def __init__(self) -> None:
        self.number = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None

    def restore(self, stored: StoredGroup) -> None:
        """Continue with the generation that was saved."""
        self.number = stored.generation
        self.protocol_type, self.protocol_name = stored.protocol_type, stored.protocol_name

    def begin_next(self, roster: Roster) -> None:
        """Begin the next generation with the members that have joined."""
        self.number += 1
        self.protocol_name = roster.vote() if roster else None

    def check(self, number: int) -> None:
        """Raise BrokerError when a member is in another generation."""
        if number != self.number:
            raise BrokerError(ErrorCode.ILLEGAL_GENERATION)

    def check_protocol(self, protocol_type: str | None, protocol_name: str | None) -> None:
        """Raise BrokerError if a member has another protocol. None: it names none."""
        if protocol_type not in {None, self.protocol_type} or (
            protocol_name not in {None, self.protocol_name}
        ):
            raise BrokerError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    def joined(self, member: Member, roster: Roster) -> JoinAnswer:
        """The answer to a member's JoinGroup. Only the leader gets the list of members."""
        told = roster if member.member_id == roster.leader else ()
        return JoinAnswer(
            member_id=member.member_id,
            generation=self.number,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=roster.leader or "",
            members=tuple(
                (each.member_id, each.instance_id, each.metadata(self.protocol_name))
                for each in told
            ),
        )

    def assigned(self, member: Member) -> SyncAnswer:
        """The answer to a member's SyncGroup."""
        return SyncAnswer(
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            assignment=member.assignment,
        )

    def change(self, group_id: str, roster: Roster) -> GroupChange:
        """The group's changes since it was last saved. The roster takes them as saved."""
        now = self.protocol_type, self.number, self.protocol_name, roster.leader
        return GroupChange(group_id, *now, not roster, *roster.take_changes())

    def stored(self, group_id: str, roster: Roster) -> StoredGroup:
        """The part of the group that outlives the process."""
        return StoredGroup(
            group_id,
            self.protocol_type,
            self.number,
            self.protocol_name,
            roster.leader,
            tuple(member.stored() for member in roster),
        )
