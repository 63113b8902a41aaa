"""Turns the crank of one group: requests with a ticket each, time, and what came of them."""

from dataclasses import replace
from itertools import count
from typing import Any

from smq.coordinator.group import Group
from smq.coordinator.group_events import (
    Answer,
    Commit,
    Event,
    Heartbeat,
    Join,
    JoinAnswer,
    Leave,
    LeaveAnswer,
    Save,
    Sync,
    SyncAnswer,
    TimePasses,
)
from smq.coordinator.group_limits import GroupLimits
from smq.coordinator.group_states import GroupState
from smq.model.errors import BrokerError, ErrorCode
from smq.store.rows import GroupChange, StoredGroup

LIMITS = GroupLimits(initial_rebalance_delay_ms=3000, size_max=100)
SESSION_MS, REBALANCE_MS = 10_000, 60_000
RANGE = (("range", b"r"),)


def applied(change: GroupChange, stored: StoredGroup | None) -> StoredGroup:
    """What the store has after a change, as smq.store.store has it."""
    places = {each.place: each for each in (stored.members if stored is not None else ())}
    for place in change.gone:
        del places[place]
    for each in change.members:
        assert places.get(each.place) != each, "a row is written that has not changed"
        places[each.place] = each
    assert change.is_empty == (not places)
    return StoredGroup(
        change.group_id,
        change.protocol_type,
        change.generation,
        change.protocol_name,
        change.leader,
        tuple(places[place] for place in sorted(places)),
    )


class Driver:
    """A group, a clock, and every answer by its ticket. Invariants hold after each step."""

    def __init__(self, limits: GroupLimits = LIMITS) -> None:
        self.limits = limits
        self.group = Group("g", limits)
        self.now_ms = 1_000_000
        self.asked: set[int] = set()
        self.answers: dict[int, JoinAnswer | SyncAnswer | LeaveAnswer] = {}
        self.changes: list[GroupChange] = []
        self.saved: list[StoredGroup] = []
        self._tickets = count(1)

    def ticket(self) -> int:
        ticket = next(self._tickets)
        self.asked.add(ticket)
        return ticket

    def handle(self, event: Event) -> None:
        try:
            effects = self.group.handle(event, self.now_ms)
        except BrokerError:
            self.asked.discard(getattr(event, "ticket", 0))  # The refusal is the answer.
            raise
        finally:
            self.group.invariants()
        for effect in effects:
            if isinstance(effect, Save):
                self.changes.append(effect.change)
                self.saved.append(applied(effect.change, self.saved[-1] if self.saved else None))
            else:
                assert isinstance(effect, Answer)
                ticket = effect.ticket
                assert isinstance(ticket, int)
                assert ticket in self.asked
                assert ticket not in self.answers, "a ticket was answered twice"
                self.answers[ticket] = effect.answer

    def join(self, member_id: str = "", new_id: str = "", **fields: Any) -> int:
        join = Join(
            ticket=self.ticket(),
            member_id=member_id,
            new_member_id=new_id,
            instance_id=None,
            client_id="client",
            client_host="/10.0.0.1",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=RANGE,
            must_know_member_id=False,
            may_skip_assignment=False,
        )
        event = replace(join, **fields)
        assert isinstance(event.ticket, int)
        self.handle(event)
        return event.ticket

    def sync(
        self, member_id: str, assignments: dict[str, bytes] | None = None, **fields: Any
    ) -> int:
        ticket = self.ticket()
        event = Sync(
            ticket=ticket,
            member_id=member_id,
            instance_id=None,
            generation=self.group.generation,
            assignments=assignments or {},
        )
        self.handle(replace(event, **fields))
        return ticket

    def leave(self, *members: tuple[str, str | None]) -> tuple[ErrorCode, ...]:
        ticket = self.ticket()
        self.handle(Leave(ticket, members))
        answer = self.answers[ticket]
        assert isinstance(answer, LeaveAnswer)
        return answer.errors

    def heartbeat(
        self, member_id: str, instance_id: str | None = None, generation: int | None = None
    ) -> ErrorCode:
        return self._refusal(Heartbeat(member_id, instance_id, self._generation(generation)))

    def commit(
        self, member_id: str, instance_id: str | None = None, generation: int | None = None
    ) -> ErrorCode:
        return self._refusal(Commit(member_id, instance_id, self._generation(generation)))

    def _generation(self, generation: int | None) -> int:
        return self.group.generation if generation is None else generation

    def _refusal(self, event: Event) -> ErrorCode:
        try:
            self.handle(event)
        except BrokerError as refusal:
            return refusal.code
        return ErrorCode.NONE

    def wait(self, wait_ms: int) -> None:
        """Let time pass, looking at every deadline on the way."""
        end_ms = self.now_ms + wait_ms
        for _ in range(10_000):
            self.now_ms = max(self.now_ms, min(self.group.wake_ms, end_ms))
            self.handle(TimePasses())
            if self.group.wake_ms > end_ms:
                self.now_ms = end_ms
                return
        raise AssertionError("the group never comes to rest")

    def joined(self, ticket: int) -> JoinAnswer:
        answer = self.answers[ticket]
        assert isinstance(answer, JoinAnswer)
        return answer

    def synced(self, ticket: int) -> SyncAnswer:
        answer = self.answers[ticket]
        assert isinstance(answer, SyncAnswer)
        return answer

    def stable(self, *names: str, instances: dict[str, str] | None = None) -> None:
        """Bring the group from empty to stable with these members; the first one leads."""
        instances = instances or {}
        for name in names:
            self.join(new_id=name, instance_id=instances.get(name))
        self.wait(self.limits.initial_rebalance_delay_ms * (len(names) + 1))
        for name in reversed(names):
            self.sync(name, {each: f"for {each}".encode() for each in names})
        assert self.group.state is GroupState.STABLE
