"""JoinGroup, rule by rule: joining as a new member, again, or as a static member that returns."""

from dataclasses import replace

from smq.coordinator.group_events import Join, JoinAnswer
from smq.coordinator.group_limits import PROTOCOLS_MAX, GroupLimits, fits
from smq.coordinator.group_states import GroupState
from smq.coordinator.membership import Membership
from smq.coordinator.rebalance import Rebalance
from smq.coordinator.roster import Member
from smq.model.errors import BrokerError, ErrorCode

# A new member cannot send heartbeats while its JoinGroup waits, and we do not see its connection
# close. After this long without an answer it counts as gone (Kafka's constant).
NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60_000

S = GroupState


class Joining:
    """How a group takes members."""

    def __init__(self, limits: GroupLimits, members: Membership, rebalance: Rebalance) -> None:
        self._limits, self._members, self._rebalance = limits, members, rebalance

    def join(self, join: Join) -> None:
        """Handle a JoinGroup. Raises BrokerError when it is refused."""
        members = self._members
        if not self._accepts(join.member_id):
            self._rebalance.drop(join.member_id)
            members.answer(join.ticket, JoinAnswer(error=ErrorCode.GROUP_MAX_SIZE_REACHED))
            self._rebalance.complete_if_all_joined()
        elif not fits(join, members.roster):
            raise BrokerError(ErrorCode.GROUP_MAX_SIZE_REACHED)
        elif not self._supports(join):
            raise BrokerError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif not join.member_id:
            self._join_unknown(join)
        elif join.member_id in members.pending:
            if join.instance_id is not None:  # Only dynamic members get their id first.
                raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID)
            self._add(join.member_id, join)
        else:
            self._join_again(members.roster.find(join.member_id, join.instance_id), join)

    def _accepts(self, member_id: str) -> bool:
        roster = self._members.roster
        member = roster.members.get(member_id)
        if self._rebalance.state is S.PREPARING:
            # Count the waiting members: if the limit was lowered, the last to rejoin are refused.
            rejoined = member is not None and member.join_ticket is not None
            return rejoined or roster.joined_count < self._limits.size_max
        return member is not None or len(roster) < self._limits.size_max

    def _supports(self, join: Join) -> bool:
        """Whether the request names each protocol once, and has one in common with all members."""
        roster = self._members.roster
        if len(join.protocols) > PROTOCOLS_MAX:
            return False
        if len({name for name, _ in join.protocols}) < len(join.protocols):
            return False
        if not roster:
            return bool(join.protocol_type and join.protocols)
        return join.protocol_type == self._rebalance.generation.protocol_type and any(
            roster.all_know(name) for name, _ in join.protocols
        )

    def _join_unknown(self, join: Join) -> None:
        members = self._members
        static = members.roster.of_instance(join.instance_id)
        if static is not None:
            self._replace_static(static, join)
        elif join.instance_id is None and join.must_know_member_id:
            members.pending.give(join.new_member_id, members.now_ms + join.session_timeout_ms)
            members.answer(
                join.ticket,
                JoinAnswer(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=join.new_member_id),
            )
        else:
            self._add(join.new_member_id, join)

    def _add(self, member_id: str, join: Join) -> None:
        members = self._members
        members.pending.discard(member_id)
        self._rebalance.note_added()
        if not members.roster:
            self._rebalance.generation.protocol_type = join.protocol_type
        member = Member(
            member_id,
            join.instance_id,
            join.client_id,
            join.client_host,
            join.session_timeout_ms,
            join.rebalance_timeout_ms,
            b"",
            join.protocols,
            is_new=True,
            join_ticket=join.ticket,
        )
        members.roster.add(member)
        members.sessions.set(member_id, members.now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalance.start()

    def _join_again(self, member: Member, join: Join) -> None:
        roster, state = self._members.roster, self._rebalance.state
        unchanged = member.protocols == join.protocols
        leads = member.member_id == roster.leader
        if unchanged and (state is S.COMPLETING or (state is S.STABLE and not leads)):
            # It may have missed the answer. (A leader that joins again wants a rebalance.)
            self._members.heard_of(member)
            self._members.answer(join.ticket, self._rebalance.generation.joined(member, roster))
        else:
            self._update(member, join)
            self._rebalance.start()

    def _update(self, member: Member, join: Join) -> None:
        roster = self._members.roster
        self._members.let_go(member, ErrorCode.REBALANCE_IN_PROGRESS)
        roster.update(member, join.protocols, join.session_timeout_ms, join.rebalance_timeout_ms)
        roster.awaits_join(member, join.ticket)

    def _replace_static(self, member: Member, join: Join) -> None:
        """A static member returns: it continues under a new id, and the old id is fenced."""
        members, roster, rebalance = self._members, self._members.roster, self._rebalance
        members.let_go(member, ErrorCode.FENCED_INSTANCE_ID)
        old_id, old_leader = member.member_id, roster.leader
        members.sessions.clear(old_id)
        roster.rename(member, join.new_member_id)
        rebalance.note_renamed(old_id, member.member_id)
        members.heard_of(member)
        self._update(member, join)
        # While completing, the leader knows the old id only and would assign nothing to the
        # new one.
        generation = rebalance.generation
        if rebalance.state is S.STABLE and roster.vote() == generation.protocol_name:
            roster.take_join_ticket(member)
            answer = generation.joined(member, roster)
            if join.may_skip_assignment:
                answer = replace(answer, skip_assignment=old_id == old_leader)
            else:  # Told that its old id leads, it does not assign again.
                answer = replace(answer, leader=old_leader or "", members=())
            members.answer(join.ticket, answer)
            rebalance.save()
        else:
            rebalance.start()
