"""The members of a group, their session timeouts, and the answers to them.

The group's states are in smq.coordinator.rebalance.
"""

from smq.coordinator.deadlines import Deadlines
from smq.coordinator.group_events import (
    Answer,
    Effect,
    JoinAnswer,
    LeaveAnswer,
    SyncAnswer,
    Ticket,
)
from smq.coordinator.pending_ids import PendingIds
from smq.coordinator.roster import Member, Roster
from smq.model.errors import ErrorCode


class Membership:
    """Members, their session timeouts, and the member ids that no member has joined with yet.

    now_ms    the time of the event being handled
    effects   the effects of that event
    sessions  deadlines by member id
    """

    def __init__(self) -> None:
        self.roster = Roster()
        self.pending = PendingIds()
        self.sessions = Deadlines()
        self.now_ms = 0
        self.effects: list[Effect] = []

    @property
    def wake_ms(self) -> int:
        """The earliest time when a session or a pending id expires."""
        return min(self.sessions.next_ms(), self.pending.deadlines.next_ms())

    def all_joined(self) -> bool:
        """Whether every member waits for its JoinGroup, and no id is out that may still join."""
        return self.roster.joined_count == len(self.roster) and not self.pending

    def heard_of(self, member: Member) -> None:
        """Restart a member's session timeout."""
        self.sessions.set(member.member_id, self.now_ms + member.session_timeout_ms)

    def take_due(self) -> list[Member]:
        """The members whose session timeout is over, in the order they joined the group."""
        due = [self.roster.members[each] for each in self.sessions.take_due(self.now_ms)]
        return sorted(due, key=lambda member: member.place)

    def answer(self, ticket: Ticket, answer: JoinAnswer | SyncAnswer | LeaveAnswer) -> None:
        """Answer a request."""
        self.effects.append(Answer(ticket, answer))

    def answer_sync(self, member: Member, answer: SyncAnswer) -> None:
        """Answer a member's SyncGroup, if it waits for one."""
        if member.sync_ticket is not None:
            self.answer(member.sync_ticket, answer)
            member.sync_ticket = None
            self.heard_of(member)

    def let_go(self, member: Member, error: ErrorCode) -> None:
        """Answer a member's waiting request with an error: every ticket gets an answer."""
        ticket = self.roster.take_join_ticket(member)
        if ticket is not None:
            known = "" if error is ErrorCode.UNKNOWN_MEMBER_ID else member.member_id
            self.answer(ticket, JoinAnswer(error=error, member_id=known))
        if member.sync_ticket is not None:
            self.answer(member.sync_ticket, SyncAnswer(error=error))
            member.sync_ticket = None

    def drop(self, member_id: str) -> None:
        """Forget a member, or a pending id."""
        self.pending.discard(member_id)
        self.sessions.clear(member_id)
        member = self.roster.drop(member_id)
        if member is not None:
            self.let_go(member, ErrorCode.UNKNOWN_MEMBER_ID)

    def invariants(self) -> None:
        """Check what must hold between any two events."""
        self.roster.invariants()
        self.sessions.invariants()
        self.pending.invariants()
        assert not any(member_id in self.pending for member_id in self.roster.members)
        assert len(self.sessions) == sum(each.member_id in self.sessions for each in self.roster)
        for member in self.roster:
            assert member.waits() or member.member_id in self.sessions
