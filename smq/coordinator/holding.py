"""Groups that one process of ours holds: it shares their partitions, and says who the members are.

There is nothing to wait for: no member joins again, and no leader assigns. A group is held or has
members that join, never both: their protocol types differ. A member that joins all the same, with
our protocol type, goes when the members are named the next time.
"""

from smq.coordinator.group_events import HeldMember, Hold
from smq.coordinator.group_limits import ASSIGNMENTS_BYTES_MAX, METADATA_BYTES_MAX, GroupLimits
from smq.coordinator.group_states import GroupState
from smq.coordinator.membership import Membership
from smq.coordinator.rebalance import Rebalance
from smq.coordinator.roster import Member, metadata_bytes
from smq.model.errors import BrokerError, ErrorCode


class Holding:
    """How a group takes the members that it is told."""

    def __init__(self, limits: GroupLimits, members: Membership, rebalance: Rebalance) -> None:
        self._limits, self._members, self._rebalance = limits, members, rebalance

    def hold(self, hold: Hold) -> None:
        """Take members. Raises BrokerError, and changes nothing, when it is refused."""
        roster, generation = self._members.roster, self._rebalance.generation
        if roster and generation.protocol_type != hold.protocol_type:
            raise BrokerError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        gone = self._gone(hold)
        self._check_room(hold, gone)
        if not roster and hold.members:
            generation.protocol_type = hold.protocol_type
        for each in gone:
            self._rebalance.drop(each)
        has_new = [self._take(each, hold) for each in hold.members]
        for member in roster:
            self._members.heard_of(member)
        self._rebalance.hold(
            is_changed=bool(hold.members or gone), is_next=bool(gone or any(has_new))
        )

    def _gone(self, hold: Hold) -> list[str]:
        """The members that go. Raises BrokerError if the changes are of another generation."""
        roster = self._members.roster
        if hold.generation < 0:
            named = {each.member_id for each in hold.members}
            return [each.member_id for each in roster if each.member_id not in named]
        self._rebalance.generation.check(hold.generation)
        if self._rebalance.state is not GroupState.STABLE:
            raise BrokerError(ErrorCode.ILLEGAL_GENERATION)
        return [each for each in hold.gone if each in roster]

    def _check_room(self, hold: Hold, gone: list[str]) -> None:
        leaving = {*gone, *(each.member_id for each in hold.members)}
        stay = [each for each in self._members.roster if each.member_id not in leaving]
        said = sum(
            metadata_bytes(each.client_id, None, ((hold.protocol_name, each.said),))
            for each in hold.members
        )
        assigned = sum(len(each.assignment) for each in stay)
        assigned += sum(len(each.assignment) for each in hold.members)
        is_larger = len(stay) + len(hold.members) > max(
            self._limits.size_max, len(self._members.roster)
        )
        said += sum(map(self._members.roster.bytes_of, stay))
        if is_larger or said > METADATA_BYTES_MAX or assigned > ASSIGNMENTS_BYTES_MAX:
            raise BrokerError(ErrorCode.GROUP_MAX_SIZE_REACHED)

    def _take(self, told: HeldMember, hold: Hold) -> bool:
        """Take a member, or what has changed of one; whether it is new."""
        roster = self._members.roster
        protocols = ((hold.protocol_name, told.said),)
        member = roster.members.get(told.member_id)
        is_new = member is None
        if member is None:
            self._members.pending.discard(told.member_id)
            timeout_ms = hold.session_timeout_ms
            member = Member(
                told.member_id,
                None,
                told.client_id,
                told.client_host,
                timeout_ms,
                timeout_ms,
                b"",
                protocols,
            )
            roster.add(member)
        else:
            self._members.let_go(member, ErrorCode.REBALANCE_IN_PROGRESS)
            roster.update(member, protocols, hold.session_timeout_ms, hold.session_timeout_ms)
        member.is_new = False
        roster.assign(member, told.assignment)
        return is_new
