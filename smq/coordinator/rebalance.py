"""A group's rebalances: its moves between the states of smq.coordinator.group_states.

start()        PREPARING: every member must join again, until the join deadline
_complete()    COMPLETING: a new generation; its leader assigns, until the sync deadline
assign()       STABLE: every member gets its assignment

hold()         STABLE or EMPTY at once: see smq.coordinator.holding
"""

from smq.coordinator.deadlines import NEVER_MS
from smq.coordinator.generation import Generation
from smq.coordinator.group_events import Save, Sync, SyncAnswer
from smq.coordinator.group_limits import GroupLimits, can_be_assigned
from smq.coordinator.group_states import TRANSITIONS, Cause, GroupState
from smq.coordinator.initial_rebalance import InitialRebalance
from smq.coordinator.membership import Membership
from smq.model.errors import ErrorCode

S = GroupState


class Rebalance:
    """The state of a group, its generation, and the rebalance that is under way.

    The end of a rebalance, and its start, cost one step for each member.
    """

    def __init__(self, group_id: str, limits: GroupLimits, members: Membership) -> None:
        self._group_id, self._limits, self._members = group_id, limits, members
        self.state = S.EMPTY
        self.generation = Generation()
        self._not_synced: set[str] = set()  # Members of a new generation, until they sync.
        self._initial: InitialRebalance | None = None
        self._join_deadline_ms = NEVER_MS
        self._sync_deadline_ms = NEVER_MS

    @property
    def wake_ms(self) -> int:
        """The time when `expire` has something to do."""
        return min(self._join_deadline_ms, self._sync_deadline_ms)

    def become(self, cause: Cause) -> None:
        """Move to the state that follows from a cause."""
        self.state = TRANSITIONS[self.state][cause]

    def save(self) -> None:
        """Have the group's changes saved."""
        assert self.state in {S.EMPTY, S.STABLE}
        change = self.generation.change(self._group_id, self._members.roster)
        self._members.effects.append(Save(change))

    # Members that come and go

    def note_added(self) -> None:
        """A member was added: an empty group's first rebalance waits longer for others."""
        if self._initial is not None:
            self._initial.member_added = True

    def note_renamed(self, old_id: str, new_id: str) -> None:
        """A static member has a new id."""
        if old_id in self._not_synced:
            self._not_synced ^= {old_id, new_id}

    def note_synced(self, member_id: str) -> None:
        """A member has sent its SyncGroup."""
        self._not_synced.discard(member_id)
        if not self._not_synced:
            self._sync_deadline_ms = NEVER_MS

    def drop(self, member_id: str) -> None:
        """Forget a member, or a pending id."""
        self._not_synced.discard(member_id)
        self._members.drop(member_id)

    # A rebalance, from its start to the assignment

    def start(self) -> None:
        """Begin a rebalance. If members are joining already, check whether all have joined."""
        if self.state is S.PREPARING:
            self.complete_if_all_joined()
        else:
            self._prepare()

    def _prepare(self) -> None:
        members = self._members
        if self.state is S.COMPLETING:
            for member in members.roster:
                members.roster.assign(member, b"")
                members.answer_sync(member, SyncAnswer(error=ErrorCode.REBALANCE_IN_PROGRESS))
        self._not_synced.clear()
        self._sync_deadline_ms = NEVER_MS
        initial = self.state is S.EMPTY
        self.become("rebalance")
        if initial:
            delay_ms = self._limits.initial_rebalance_delay_ms
            timeout_ms = members.roster.rebalance_timeout_ms()
            self._initial = InitialRebalance.begin(delay_ms, timeout_ms)
            self._join_deadline_ms = members.now_ms + delay_ms
        elif members.all_joined():
            self._complete()
        else:
            self._await_joins()

    def _await_joins(self) -> None:
        timeout_ms = self._members.roster.rebalance_timeout_ms()
        self._join_deadline_ms = self._members.now_ms + timeout_ms

    def complete_if_all_joined(self) -> None:
        """End the wait for joins if no other member can join."""
        is_waiting = self.state is S.PREPARING and self._initial is None
        if is_waiting and self._members.all_joined():
            self._complete()

    def _complete(self) -> None:
        """Begin a generation with the members that joined, and static ones that may still
        return."""
        members, roster = self._members, self._members.roster
        for member in roster:
            if member.join_ticket is None and member.instance_id is None:
                self.drop(member.member_id)
        if roster and not roster.elect_leader():
            self._await_joins()  # Until one joins, or session timeouts have removed them all.
            return
        self._join_deadline_ms, self._initial = NEVER_MS, None
        self.generation.begin_next(roster)
        if not roster:
            self.become("none_left")
            self.save()
            return
        self.become("all_joined")
        for member in roster:
            ticket = roster.take_join_ticket(member)
            if ticket is not None:
                members.answer(ticket, self.generation.joined(member, roster))
            member.is_new = False
            members.heard_of(member)
            self._not_synced.add(member.member_id)
        self._sync_deadline_ms = members.now_ms + roster.rebalance_timeout_ms()

    def assign(self, sync: Sync) -> None:
        """Take the leader's assignments. If the group cannot keep them, all get an error."""
        members = self._members
        if not can_be_assigned(sync, members.roster):  # As Kafka does.
            for each in members.roster:
                members.answer_sync(each, SyncAnswer(error=ErrorCode.UNKNOWN_SERVER_ERROR))
            self._prepare()
            return
        self.become("leader_synced")
        for each in members.roster:
            members.roster.assign(each, sync.assignments.get(each.member_id, b""))
            members.answer_sync(each, self.generation.assigned(each))
        self.save()

    def hold(self, *, is_changed: bool, is_next: bool) -> None:
        """Members and their assignments are as a process of ours has named them."""
        is_next = is_next or self.state in {S.PREPARING, S.COMPLETING}
        self._not_synced.clear()
        self._join_deadline_ms = self._sync_deadline_ms = NEVER_MS
        self._initial = None
        if is_next:
            self.generation.begin_next(self._members.roster)
        self.become("held" if self._members.roster else "released")
        if is_changed or is_next:
            self.save()

    # Time

    def expire(self) -> None:
        """End the waits whose deadline has passed."""
        if self._join_deadline_ms <= self._members.now_ms:
            self._stop_awaiting_joins()
        if self._sync_deadline_ms <= self._members.now_ms:
            for member_id in sorted(self._not_synced):
                self.drop(member_id)
            self._prepare()

    def _stop_awaiting_joins(self) -> None:
        delay_ms = self._limits.initial_rebalance_delay_ms
        extended = self._initial.extended(delay_ms) if self._initial is not None else None
        if extended is None:
            self._complete()
        else:
            self._initial = extended
            self._join_deadline_ms = self._members.now_ms + extended.delay_ms

    def invariants(self) -> None:
        """Check what must hold between any two events."""
        roster = self._members.roster
        if self.state is not S.PREPARING:  # While it waits for joins, all may leave.
            assert bool(roster) == (self.state in {S.COMPLETING, S.STABLE})
        if self.state in {S.COMPLETING, S.STABLE}:
            assert self.generation.protocol_name in roster.common_protocols()
        assert self._not_synced <= roster.members.keys()
        assert (self._join_deadline_ms < NEVER_MS) == (self.state is S.PREPARING)
        assert (self._sync_deadline_ms < NEVER_MS) == bool(self._not_synced)
        assert self._initial is None or self.state is S.PREPARING
        for member in roster:
            assert member.join_ticket is None or self.state is S.PREPARING
            assert member.sync_ticket is None or self.state is S.COMPLETING
