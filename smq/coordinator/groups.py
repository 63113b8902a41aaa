"""All groups and their deadlines.

A group is created by its first member, or by the first offset commit of a client that is not a
member. It is removed once it is empty and has no committed offsets (`smq.coordinator.offsets`).
"""

import heapq
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from smq.coordinator.deadlines import NEVER_MS
from smq.coordinator.group import Group
from smq.coordinator.group_events import Answer, Commit, Event, Hold, Join, Save, TimePasses
from smq.coordinator.group_limits import GroupLimits
from smq.coordinator.group_states import GroupState
from smq.model.errors import BrokerError, ErrorCode
from smq.model.now import Now
from smq.store.store import Store

# The bound of one tick, unless a single group has more members: some milliseconds, so that new
# requests do not wait longer.
MEMBERS_A_TICK = 1000
# A tick this late means that the process, or the machine, was stopped. Heartbeats sent meanwhile
# are still in sockets, ours and the shards': they are read before any member is taken for gone.
STALL_MS = 1000
LISTEN_MS = 500


class GroupRules(NamedTuple):
    """The broker's settings that concern groups."""

    limits: GroupLimits
    session_timeout_min_ms: int
    session_timeout_max_ms: int


class Groups:
    """Every group by its id. `take_answers` gives the answers; changes are saved in the store.

    deleting   the groups that are being deleted, in the order of the requests; other requests for
               them are refused
    """

    def __init__(self, store: Store, rules: GroupRules, now: Now) -> None:
        self._store = store
        self._rules = rules
        self._groups: dict[str, Group] = {}
        self._wakes: list[tuple[int, str]] = []  # A heap; may hold a group several times.
        self._scheduled: dict[str, int] = {}
        self._answers: deque[Answer] = deque()
        self.deleting: dict[str, None] = {}
        self._listens_until_ms: int | None = None  # After a stall.
        for stored in store.groups():
            group = Group.restore(stored, rules.limits, now.monotonic_ms)
            self._groups[group.group_id] = group
            self._schedule(group)
        for group_id in store.groups_with_offsets():
            self._groups.setdefault(group_id, Group(group_id, rules.limits))
        for group_id in store.deleting_groups():
            self._groups.setdefault(group_id, Group(group_id, rules.limits))
            self.deleting[group_id] = None

    def take_rules(self, rules: GroupRules) -> None:
        """Use other settings from now on. Deadlines that are set already do not change."""
        limits = self._rules.limits
        limits.initial_rebalance_delay_ms = rules.limits.initial_rebalance_delay_ms
        limits.size_max = rules.limits.size_max
        self._rules = rules._replace(limits=limits)

    def __iter__(self) -> Iterator[Group]:
        return iter(self._groups.values())

    def find(self, group_id: str) -> Group:
        """The group. Raises BrokerError, also while it is being deleted."""
        self.check_whole(group_id)
        group = self._groups.get(group_id)
        if group is None:
            raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def get(self, group_id: str) -> Group | None:
        """The group, even if it is being deleted."""
        return self._groups.get(group_id)

    def check_whole(self, group_id: str) -> None:
        """Raise BrokerError while the group is being deleted: some of its offsets are gone."""
        if group_id in self.deleting:
            raise BrokerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def handle(self, group_id: str, event: Event, now: Now) -> None:
        """Have a group handle an event; `take_answers` gives its answers. Raises BrokerError."""
        if not isinstance(event, Commit) and not group_id:  # Old clients commit for group "".
            raise BrokerError(ErrorCode.INVALID_GROUP_ID)
        if isinstance(event, Join):
            self._check_session(event.session_timeout_ms)
        self.check_whole(group_id)
        group = self._groups.get(group_id) or self._new_group(group_id, event)
        self._groups[group_id] = group
        try:
            self._handle(group, event, now)
        finally:
            self._schedule(group)

    def _check_session(self, timeout_ms: int) -> None:
        least, most = self._rules.session_timeout_min_ms, self._rules.session_timeout_max_ms
        if not least <= timeout_ms <= most:
            raise BrokerError(ErrorCode.INVALID_SESSION_TIMEOUT)

    def _new_group(self, group_id: str, event: Event) -> Group:
        from_outside = isinstance(event, Commit) and event.generation < 0
        is_held = isinstance(event, Hold) and bool(event.members)
        if from_outside or is_held or (isinstance(event, Join) and not event.member_id):
            return Group(group_id, self._rules.limits)
        if isinstance(event, Commit):
            raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND)
        raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID)

    def _handle(self, group: Group, event: Event, now: Now) -> None:
        for effect in group.handle(event, now.monotonic_ms):
            if isinstance(effect, Save):
                self._store.save_group(effect.change, now.monotonic_ms)
            else:
                self._answers.append(effect)

    def _schedule(self, group: Group) -> None:
        """Schedule the group at its wake time. (If that moves later, a tick comes for nothing.)"""
        if group.wake_ms < self._scheduled.get(group.group_id, NEVER_MS):
            self._scheduled[group.group_id] = group.wake_ms
            heapq.heappush(self._wakes, (group.wake_ms, group.group_id))

    @property
    def has_answers(self) -> bool:
        """Whether `take_answers` has some."""
        return bool(self._answers)

    def take_answers(self, count_max: int | None = None) -> list[Answer]:
        """The answers since the last call, in order, at most `count_max`."""
        count = len(self._answers)
        count = count if count_max is None else min(count, count_max)
        return [self._answers.popleft() for _ in range(count)]

    def begin_deletion(self, group_id: str) -> None:
        """Refuse all other requests for the group from now on, until `forget`.

        Raises BrokerError if it does not exist or has members.
        """
        if self.find(group_id).state is not GroupState.EMPTY:
            raise BrokerError(ErrorCode.NON_EMPTY_GROUP)
        self.deleting[group_id] = None

    def forget(self, group_id: str) -> None:
        """Forget an empty group and its offsets."""
        self._groups.pop(group_id).remove()
        self._store.delete_group(group_id)
        self.deleting.pop(group_id, None)
        self._scheduled.pop(group_id, None)

    # Time

    def next_wake_ms(self) -> int:
        """The earliest time when `tick` has something to do (monotonic)."""
        return max(self._next_due_ms(), self._listens_until_ms or 0)

    def _next_due_ms(self) -> int:
        return self._wakes[0][0] if self._wakes else NEVER_MS

    def tick(self, now: Now) -> None:
        """Handle the groups that are due. If some are left, `next_wake_ms` is in the past."""
        if not self._listens_first(now.monotonic_ms):
            self._handle_due(now)

    def _listens_first(self, now_ms: int) -> bool:
        """Whether to read members' requests before any deadline counts: see STALL_MS."""
        if self._listens_until_ms is None and self._next_due_ms() + STALL_MS <= now_ms:
            self._listens_until_ms = now_ms + LISTEN_MS
        return now_ms < (self._listens_until_ms or 0)

    def _handle_due(self, now: Now) -> None:
        for group in self._take_due(now):
            self._handle(group, TimePasses(), now)
            self._schedule(group)
        if self._next_due_ms() > now.monotonic_ms:
            self._listens_until_ms = None

    def _take_due(self, now: Now) -> list[Group]:
        due: list[Group] = []
        members = 0
        while self._wakes and self._wakes[0][0] <= now.monotonic_ms and members < MEMBERS_A_TICK:
            wake_ms, group_id = heapq.heappop(self._wakes)
            if self._scheduled.get(group_id) == wake_ms:
                del self._scheduled[group_id]
                due.append(self._groups[group_id])
                members += 1 + len(due[-1].roster)
        return due

    def invariants(self) -> None:
        """Check the invariants that hold between any two calls."""
        assert self._scheduled.keys() <= self._groups.keys()
        assert self.deleting.keys() <= self._groups.keys()
        assert {(ms, group_id) for group_id, ms in self._scheduled.items()} <= set(self._wakes)
        for group_id, group in self._groups.items():
            assert group_id == group.group_id
            assert group.state is not GroupState.DEAD
            assert group.wake_ms >= self._scheduled.get(group_id, NEVER_MS)
