"""One classic consumer group: who is in it, and who has been told what. Kafka's, rule by rule.

The states are in `smq.coordinator.group_states`, the events and effects in `group_events`, the
members in `roster`. A group decides only: `handle` takes an event and the monotonic time, and
returns effects or raises BrokerError.

After a restart of the coordinator a group is what it was when it was last saved, at a stable
generation or empty. A member that had gone on since is told ILLEGAL_GENERATION, and joins again.
"""

from dataclasses import replace

from smq.coordinator.deadlines import NEVER_MS, Deadlines
from smq.coordinator.group_events import (
    Answer,
    Commit,
    Effect,
    Event,
    Heartbeat,
    Join,
    JoinAnswer,
    Leave,
    LeaveAnswer,
    Save,
    Sync,
    SyncAnswer,
    Ticket,
    TimePasses,
)
from smq.coordinator.group_limits import PROTOCOLS_MAX, GroupLimits, can_be_assigned, fits
from smq.coordinator.group_states import TRANSITIONS, Cause, GroupState
from smq.coordinator.initial_rebalance import InitialRebalance
from smq.coordinator.pending_ids import PendingIds
from smq.coordinator.roster import Member, Roster
from smq.model.errors import BrokerError, ErrorCode
from smq.store.rows import GroupChange, StoredGroup

# A new member cannot send heartbeats while its JoinGroup waits, nor do we see its connection close:
# if it has not been answered for so long, it is thought gone (Kafka's constant).
NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60_000

S = GroupState


class Group:
    """A group. Its deadlines are monotonic; the earliest is not before `wake_ms`.

    A request of one member costs the same however many there are; the end of a rebalance, and what
    begins one, cost one step for each member.
    """

    def __init__(self, group_id: str, limits: GroupLimits) -> None:
        self.group_id = group_id
        self.state = S.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.roster = Roster()
        self._limits = limits
        self._pending = PendingIds()
        self._sessions = Deadlines()  # Of members, by their ids.
        self._not_synced: set[str] = set()
        self._initial: InitialRebalance | None = None
        self._join_deadline_ms = NEVER_MS
        self._sync_deadline_ms = NEVER_MS
        self._now_ms = 0
        self._effects: list[Effect] = []

    @classmethod
    def restore(cls, stored: StoredGroup, limits: GroupLimits, now_ms: int) -> "Group":
        """A group as it was saved. Its members have a whole session timeout to be heard of."""
        self = cls(stored.group_id, limits)
        self._now_ms = now_ms
        self.state = S.STABLE if stored.members else S.EMPTY
        self.generation = stored.generation
        self.protocol_type, self.protocol_name = stored.protocol_type, stored.protocol_name
        for each in stored.members:
            member = Member.restore(each)
            self.roster.add(member)
            self._heard_of(member)
        self.roster.leader = stored.leader
        return self

    @property
    def wake_ms(self) -> int:
        """When to let time pass, at the latest."""
        return min(
            self._join_deadline_ms,
            self._sync_deadline_ms,
            self._sessions.next_ms(),
            self._pending.deadlines.next_ms(),
        )

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """What comes of `event`. Raises BrokerError when it is refused."""
        assert self.state is not S.DEAD
        self._now_ms, self._effects = now_ms, []
        match event:
            case Join():
                self._join(event)
            case Sync():
                self._sync(event)
            case Heartbeat():
                self._heartbeat(event)
            case Leave():
                self._leave(event)
            case Commit():
                self._commit(event)
            case TimePasses():
                self._pass_time()
        return self._effects

    def remove(self) -> None:
        """The group is no more. Only an empty one can be removed."""
        self._become("removed")

    def is_idle(self) -> bool:
        """Whether there is nobody in the group or about to join it."""
        return self.state is S.EMPTY and not self._pending

    def stored(self) -> StoredGroup:
        """What outlives the process. Only an empty or stable group is stored."""
        assert self.state in {S.EMPTY, S.STABLE}
        return StoredGroup(
            self.group_id,
            self.protocol_type,
            self.generation,
            self.protocol_name,
            self.roster.leader,
            tuple(member.stored() for member in self.roster),
        )

    def invariants(self) -> None:
        """What holds between any two events."""
        self.roster.invariants()
        self._sessions.invariants()
        self._pending.invariants()
        if self.state is not S.PREPARING:  # While it waits for joins, all may leave.
            assert bool(self.roster) == (self.state in {S.COMPLETING, S.STABLE})
        if self.state in {S.COMPLETING, S.STABLE}:
            assert self.protocol_name in self.roster.common_protocols()
        assert self._not_synced <= self.roster.members.keys()
        assert not any(member_id in self._pending for member_id in self.roster.members)
        assert (self._join_deadline_ms < NEVER_MS) == (self.state is S.PREPARING)
        assert (self._sync_deadline_ms < NEVER_MS) == bool(self._not_synced)
        assert self._initial is None or self.state is S.PREPARING
        assert len(self._sessions) == sum(each.member_id in self._sessions for each in self.roster)
        for member in self.roster:
            assert member.join_ticket is None or self.state is S.PREPARING
            assert member.sync_ticket is None or self.state is S.COMPLETING
            assert member.waits() or member.member_id in self._sessions

    # Joining

    def _join(self, join: Join) -> None:
        if not self._accepts(join.member_id):
            self._drop(join.member_id)
            self._answer(join.ticket, JoinAnswer(error=ErrorCode.GROUP_MAX_SIZE_REACHED))
            self._complete_if_all_joined()
        elif not fits(join, self.roster):
            raise BrokerError(ErrorCode.GROUP_MAX_SIZE_REACHED)
        elif not self._supports(join):
            raise BrokerError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif not join.member_id:
            self._join_unknown(join)
        elif join.member_id in self._pending:
            if join.instance_id is not None:  # Only dynamic members are told their id first.
                raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID)
            self._add(join.member_id, join)
        else:
            self._join_again(self.roster.find(join.member_id, join.instance_id), join)

    def _accepts(self, member_id: str) -> bool:
        member = self.roster.members.get(member_id)
        if self.state is S.PREPARING:
            # Those who wait are counted, so that the last to rejoin go if the limit was lowered.
            rejoined = member is not None and member.join_ticket is not None
            return rejoined or self.roster.joined_count < self._limits.size_max
        return member is not None or len(self.roster) < self._limits.size_max

    def _supports(self, join: Join) -> bool:
        """Whether the one who joins has a protocol in common with all who are there."""
        if len(join.protocols) > PROTOCOLS_MAX:
            return False
        if not self.roster:
            return bool(join.protocol_type and join.protocols)
        return join.protocol_type == self.protocol_type and any(
            self.roster.all_know(name) for name, _ in join.protocols
        )

    def _join_unknown(self, join: Join) -> None:
        static = self.roster.of_instance(join.instance_id)
        if static is not None:
            self._replace_static(static, join)
        elif join.instance_id is None and join.must_know_member_id:
            self._pending.give(join.new_member_id, self._now_ms + join.session_timeout_ms)
            self._answer(
                join.ticket,
                JoinAnswer(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=join.new_member_id),
            )
        else:
            self._add(join.new_member_id, join)

    def _add(self, member_id: str, join: Join) -> None:
        self._pending.discard(member_id)
        if self._initial is not None:
            self._initial.member_added = True
        if not self.roster:
            self.protocol_type = join.protocol_type
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
        self.roster.add(member)
        self._sessions.set(member_id, self._now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalance()

    def _join_again(self, member: Member, join: Join) -> None:
        unchanged = member.protocols == join.protocols
        leads = member.member_id == self.roster.leader
        if unchanged and (self.state is S.COMPLETING or (self.state is S.STABLE and not leads)):
            # It may have missed the answer. (A leader that joins again wants a rebalance.)
            self._answer(join.ticket, self._joined(member))
        else:
            self._update(member, join)
            self._rebalance()

    def _update(self, member: Member, join: Join) -> None:
        self._let_go(member, ErrorCode.REBALANCE_IN_PROGRESS)
        self.roster.update(
            member, join.protocols, join.session_timeout_ms, join.rebalance_timeout_ms
        )
        self.roster.awaits_join(member, join.ticket)

    def _replace_static(self, member: Member, join: Join) -> None:
        """A static member came back: it goes on under a new id, and the old id is fenced."""
        self._let_go(member, ErrorCode.FENCED_INSTANCE_ID)
        old_id, old_leader = member.member_id, self.roster.leader
        self._sessions.clear(old_id)
        self.roster.rename(member, join.new_member_id)
        if old_id in self._not_synced:
            self._not_synced ^= {old_id, member.member_id}
        self._heard_of(member)
        self._update(member, join)
        # While completing, the leader has been told of the old id and would assign nothing to the
        # new one.
        if self.state is S.STABLE and self.roster.vote() == self.protocol_name:
            self.roster.take_join_ticket(member)
            answer = self._joined(member)
            if join.may_skip_assignment:
                answer = replace(answer, skip_assignment=old_id == old_leader)
            else:  # Told that its old self leads, it does not assign anew.
                answer = replace(answer, leader=old_leader or "", members=())
            self._answer(join.ticket, answer)
            self._save()
        else:
            self._rebalance()

    # Rebalancing

    def _rebalance(self) -> None:
        if self.state is S.PREPARING:
            self._complete_if_all_joined()
        else:
            self._prepare()

    def _prepare(self) -> None:
        if self.state is S.COMPLETING:
            for member in self.roster:
                self.roster.assign(member, b"")
                self._answer_sync(member, SyncAnswer(error=ErrorCode.REBALANCE_IN_PROGRESS))
        self._not_synced.clear()
        self._sync_deadline_ms = NEVER_MS
        initial = self.state is S.EMPTY
        self._become("rebalance")
        if initial:
            delay_ms = self._limits.initial_rebalance_delay_ms
            self._initial = InitialRebalance.begin(delay_ms, self.roster.rebalance_timeout_ms())
            self._join_deadline_ms = self._now_ms + delay_ms
        elif self._all_joined():
            self._complete_join()
        else:
            self._await_joins()

    def _await_joins(self) -> None:
        self._join_deadline_ms = self._now_ms + self.roster.rebalance_timeout_ms()

    def _all_joined(self) -> bool:
        return self.roster.joined_count == len(self.roster) and not self._pending

    def _complete_if_all_joined(self) -> None:
        if self.state is S.PREPARING and self._initial is None and self._all_joined():
            self._complete_join()

    def _complete_join(self) -> None:
        """Go on with those who joined; static members are given the benefit of the doubt."""
        for member in self.roster:
            if member.join_ticket is None and member.instance_id is None:
                self._drop(member.member_id)
        if self.roster and not self.roster.elect_leader():
            self._await_joins()  # Until one joins, or session timeouts have removed them all.
            return
        self._join_deadline_ms, self._initial = NEVER_MS, None
        self.generation += 1
        if not self.roster:
            self.protocol_name = None
            self._become("none_left")
            self._save()
            return
        self.protocol_name = self.roster.vote()
        self._become("all_joined")
        for member in self.roster:
            ticket = self.roster.take_join_ticket(member)
            if ticket is not None:
                self._answer(ticket, self._joined(member))
            member.is_new = False
            self._heard_of(member)
            self._not_synced.add(member.member_id)
        self._sync_deadline_ms = self._now_ms + self.roster.rebalance_timeout_ms()

    def _joined(self, member: Member) -> JoinAnswer:
        """What a member is told of the generation. The leader is told who else is in it."""
        told = self.roster if member.member_id == self.roster.leader else ()
        return JoinAnswer(
            member_id=member.member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.roster.leader or "",
            members=tuple(
                (each.member_id, each.instance_id, each.metadata(self.protocol_name))
                for each in told
            ),
        )

    # Syncing, heartbeats, commits, leaving

    def _sync(self, sync: Sync) -> None:
        member = self.roster.find(sync.member_id, sync.instance_id)
        self._check_generation(sync.generation)
        if sync.protocol_type not in {None, self.protocol_type} or (
            sync.protocol_name not in {None, self.protocol_name}
        ):
            raise BrokerError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if self.state is S.PREPARING:
            raise BrokerError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._not_synced.discard(member.member_id)
        if not self._not_synced:
            self._sync_deadline_ms = NEVER_MS
        if self.state is S.STABLE:
            self._answer(sync.ticket, self._assigned(member))
            return
        self._let_go(member, ErrorCode.REBALANCE_IN_PROGRESS)
        member.sync_ticket = sync.ticket
        if member.member_id == self.roster.leader:
            self._assign(sync)

    def _assign(self, sync: Sync) -> None:
        """The leader's word. What cannot be kept is refused to all, as Kafka does."""
        if not can_be_assigned(sync, self.roster):
            for each in self.roster:
                self._answer_sync(each, SyncAnswer(error=ErrorCode.UNKNOWN_SERVER_ERROR))
            self._prepare()
            return
        self._become("leader_synced")
        for each in self.roster:
            self.roster.assign(each, sync.assignments.get(each.member_id, b""))
            self._answer_sync(each, self._assigned(each))
        self._save()

    def _assigned(self, member: Member) -> SyncAnswer:
        return SyncAnswer(
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            assignment=member.assignment,
        )

    def _heartbeat(self, heartbeat: Heartbeat) -> None:
        member = self.roster.find(heartbeat.member_id, heartbeat.instance_id)
        self._check_generation(heartbeat.generation)
        self._heard_of(member)
        if self.state is S.PREPARING:
            raise BrokerError(ErrorCode.REBALANCE_IN_PROGRESS)

    def _commit(self, commit: Commit) -> None:
        """Who may commit: a member of this generation, or anybody while there are no members."""
        if commit.generation < 0 and self.state is S.EMPTY:
            return
        if commit.generation < 0 and not commit.member_id and commit.instance_id is None:
            raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID)
        member = self.roster.find(commit.member_id, commit.instance_id)
        self._check_generation(commit.generation)
        if self.state is S.COMPLETING:
            raise BrokerError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._heard_of(member)

    def _check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise BrokerError(ErrorCode.ILLEGAL_GENERATION)

    def _leave(self, leave: Leave) -> None:
        errors = tuple(self._leave_one(*each) for each in leave.members)
        self._answer(leave.ticket, LeaveAnswer(errors))
        if ErrorCode.NONE in errors and self.state is not S.EMPTY:
            self._rebalance()

    def _leave_one(self, member_id: str, instance_id: str | None) -> ErrorCode:
        if not member_id:  # An administrator removes a static member.
            static = self.roster.of_instance(instance_id)
            member_id = static.member_id if static is not None else ""
        if member_id not in self._pending:
            try:
                self.roster.find(member_id, instance_id)
            except BrokerError as refusal:
                return refusal.code
        self._drop(member_id)
        return ErrorCode.NONE

    # Time

    def _pass_time(self) -> None:
        if self._pending.expire(self._now_ms):
            self._complete_if_all_joined()
        due = [self.roster.members[each] for each in self._sessions.take_due(self._now_ms)]
        for member in sorted(due, key=lambda member: member.place):
            if member.member_id in self.roster:
                self._miss(member)
        if self._join_deadline_ms <= self._now_ms:
            self._stop_awaiting_joins()
        if self._sync_deadline_ms <= self._now_ms:
            for member_id in sorted(self._not_synced):
                self._drop(member_id)
            self._prepare()

    def _miss(self, member: Member) -> None:
        """A member's session timeout is over."""
        if member.is_new or not member.waits():
            self._drop(member.member_id)
            self._rebalance()

    def _stop_awaiting_joins(self) -> None:
        delay_ms = self._limits.initial_rebalance_delay_ms
        extended = self._initial.extended(delay_ms) if self._initial is not None else None
        if extended is None:
            self._complete_join()
        else:
            self._initial = extended
            self._join_deadline_ms = self._now_ms + extended.delay_ms

    def _heard_of(self, member: Member) -> None:
        self._sessions.set(member.member_id, self._now_ms + member.session_timeout_ms)

    # What all of the above are made of

    def _become(self, cause: Cause) -> None:
        self.state = TRANSITIONS[self.state][cause]

    def _answer(self, ticket: Ticket, answer: JoinAnswer | SyncAnswer | LeaveAnswer) -> None:
        self._effects.append(Answer(ticket, answer))

    def _answer_sync(self, member: Member, answer: SyncAnswer) -> None:
        if member.sync_ticket is not None:
            self._answer(member.sync_ticket, answer)
            member.sync_ticket = None
            self._heard_of(member)

    def _save(self) -> None:
        assert self.state in {S.EMPTY, S.STABLE}
        now = self.protocol_type, self.generation, self.protocol_name, self.roster.leader
        changes = self.roster.take_changes()
        self._effects.append(Save(GroupChange(self.group_id, *now, not self.roster, *changes)))

    def _drop(self, member_id: str) -> None:
        """Forget a member, or a member id that was given out."""
        self._pending.discard(member_id)
        self._not_synced.discard(member_id)
        self._sessions.clear(member_id)
        member = self.roster.drop(member_id)
        if member is not None:
            self._let_go(member, ErrorCode.UNKNOWN_MEMBER_ID)

    def _let_go(self, member: Member, error: ErrorCode) -> None:
        """Answer what a member waits for with an error: a ticket is never left without answer."""
        ticket = self.roster.take_join_ticket(member)
        if ticket is not None:
            known = "" if error is ErrorCode.UNKNOWN_MEMBER_ID else member.member_id
            self._answer(ticket, JoinAnswer(error=error, member_id=known))
        if member.sync_ticket is not None:
            self._answer(member.sync_ticket, SyncAnswer(error=error))
            member.sync_ticket = None
