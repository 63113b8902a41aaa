"""One classic consumer group, by Kafka's rules. It takes events and returns effects.

    Group         sync, heartbeat, commit, leave, time
    Joining       JoinGroup                                   smq.coordinator.joining
    Holding       members that a process of ours names        smq.coordinator.holding
    Rebalance     state, generation, join and sync deadlines  smq.coordinator.rebalance
    Membership    members, sessions, pending ids, answers     smq.coordinator.membership

`smq.coordinator.group_events` has the events and effects, `group_states` the states. A group only
decides: `handle` takes an event and the monotonic time, and returns effects or raises BrokerError.

After a restart of the coordinator a group is as last saved: empty, or at a stable generation. A
member of a later generation gets ILLEGAL_GENERATION and joins again.
"""

from smq.coordinator.group_events import (
    Commit,
    Effect,
    Event,
    Heartbeat,
    Hold,
    Join,
    Leave,
    LeaveAnswer,
    Sync,
    TimePasses,
)
from smq.coordinator.group_limits import GroupLimits
from smq.coordinator.group_states import GroupState
from smq.coordinator.holding import Holding
from smq.coordinator.joining import Joining
from smq.coordinator.membership import Membership
from smq.coordinator.rebalance import Rebalance
from smq.coordinator.roster import Member
from smq.model.errors import BrokerError, ErrorCode
from smq.store.rows import StoredGroup

S = GroupState


class Group:
    """A group. Its deadlines are monotonic; the earliest is not before `wake_ms`.

    A request of one member costs the same however many members there are; the start and the end of
    a rebalance cost one step for each member.
    """

    def __init__(self, group_id: str, limits: GroupLimits) -> None:
        self.group_id = group_id
        self._members = Membership()
        self._rebalance = Rebalance(group_id, limits, self._members)
        self._joining = Joining(limits, self._members, self._rebalance)
        self._holding = Holding(limits, self._members, self._rebalance)
        self._generation = self._rebalance.generation
        self.roster = self._members.roster

    @classmethod
    def restore(cls, stored: StoredGroup, limits: GroupLimits, now_ms: int) -> "Group":
        """Restore a saved group. Each member gets a whole session timeout to send a heartbeat."""
        self = cls(stored.group_id, limits)
        self._members.now_ms = now_ms
        self._rebalance.state = S.STABLE if stored.members else S.EMPTY
        self._generation.restore(stored)
        for each in stored.members:
            member = Member.restore(each)
            self.roster.add(member)
            self._members.heard_of(member)
        self.roster.leader = stored.leader
        return self

    @property
    def state(self) -> GroupState:
        """The group's state."""
        return self._rebalance.state

    @property
    def generation(self) -> int:
        """The number of the generation."""
        return self._generation.number

    @property
    def protocol_type(self) -> str | None:
        """The kind of group, as its members call it ("consumer"). None: no member has joined
        yet."""
        return self._generation.protocol_type

    @property
    def protocol_name(self) -> str | None:
        """The protocol of the generation. None: it has no members."""
        return self._generation.protocol_name

    @property
    def wake_ms(self) -> int:
        """The latest time for the next TimePasses."""
        return min(self._rebalance.wake_ms, self._members.wake_ms)

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """The effects of `event`. Raises BrokerError when it is refused."""
        assert self._rebalance.state is not S.DEAD
        effects: list[Effect] = []
        self._members.now_ms, self._members.effects = now_ms, effects
        match event:
            case Join():
                self._joining.join(event)
            case Sync():
                self._sync(event)
            case Heartbeat():
                self._heartbeat(event)
            case Leave():
                self._leave(event)
            case Commit():
                self._commit(event)
            case Hold():
                self._holding.hold(event)
            case TimePasses():
                self._pass_time()
        return effects

    def remove(self) -> None:
        """End the group. Only an empty one can be removed."""
        self._rebalance.become("removed")

    def is_idle(self) -> bool:
        """Whether the group has no members and none is about to join."""
        return self.state is S.EMPTY and not self._members.pending

    def stored(self) -> StoredGroup:
        """The part that outlives the process. Only an empty or stable group is stored."""
        assert self.state in {S.EMPTY, S.STABLE}
        return self._generation.stored(self.group_id, self.roster)

    def invariants(self) -> None:
        """Check the invariants that hold between any two events."""
        self._members.invariants()
        self._rebalance.invariants()

    def _sync(self, sync: Sync) -> None:
        members, rebalance = self._members, self._rebalance
        member = self.roster.find(sync.member_id, sync.instance_id)
        self._generation.check(sync.generation)
        self._generation.check_protocol(sync.protocol_type, sync.protocol_name)
        if rebalance.state is S.PREPARING:
            raise BrokerError(ErrorCode.REBALANCE_IN_PROGRESS)
        rebalance.note_synced(member.member_id)
        if rebalance.state is S.STABLE:
            members.heard_of(member)
            members.answer(sync.ticket, self._generation.assigned(member))
            return
        members.let_go(member, ErrorCode.REBALANCE_IN_PROGRESS)
        member.sync_ticket = sync.ticket
        if member.member_id == self.roster.leader:
            rebalance.assign(sync)

    def _heartbeat(self, heartbeat: Heartbeat) -> None:
        member = self.roster.find(heartbeat.member_id, heartbeat.instance_id)
        self._generation.check(heartbeat.generation)
        self._members.heard_of(member)
        if self._rebalance.state is S.PREPARING:
            raise BrokerError(ErrorCode.REBALANCE_IN_PROGRESS)

    def _commit(self, commit: Commit) -> None:
        """A member of this generation may commit; while there are no members, any client may."""
        if commit.generation < 0 and self.state is S.EMPTY:
            return
        if commit.generation < 0 and not commit.member_id and commit.instance_id is None:
            if commit.is_transactional:
                return
            raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID)
        member = self.roster.find(commit.member_id, commit.instance_id)
        self._generation.check(commit.generation)
        if self.state is S.COMPLETING and not commit.is_transactional:
            raise BrokerError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._members.heard_of(member)

    def _leave(self, leave: Leave) -> None:
        errors = tuple(self._leave_one(*each) for each in leave.members)
        self._members.answer(leave.ticket, LeaveAnswer(errors))
        if ErrorCode.NONE in errors and self.state is not S.EMPTY:
            self._rebalance.start()

    def _leave_one(self, member_id: str, instance_id: str | None) -> ErrorCode:
        if not member_id:  # An administrator removes a static member.
            static = self.roster.of_instance(instance_id)
            member_id = static.member_id if static is not None else ""
        if member_id not in self._members.pending:
            try:
                self.roster.find(member_id, instance_id)
            except BrokerError as refusal:
                return refusal.code
        self._rebalance.drop(member_id)
        return ErrorCode.NONE

    def _pass_time(self) -> None:
        """Drop all whose time is over before anything follows from it.

        The end of a rebalance answers members and restarts their sessions: who is gone must be
        decided before.
        """
        members, rebalance = self._members, self._rebalance
        has_expired = members.pending.expire(members.now_ms)
        gone = [each for each in members.take_due() if each.is_new or not each.waits()]
        for member in gone:
            rebalance.drop(member.member_id)
        if gone:
            rebalance.start()
        elif has_expired:
            rebalance.complete_if_all_joined()
        rebalance.expire()
