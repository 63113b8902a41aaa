"""A group of a thousand: what one member asks costs the same as in a group of ten.

Work is counted in lines of Python that run (smq.testing.steps), never timed.
"""

from collections.abc import Callable

import pytest

from smq.coordinator.group import Group
from smq.coordinator.group_events import Heartbeat, Join, Leave, Sync, TimePasses
from smq.coordinator.group_limits import (
    METADATA_BYTES_MAX,
    PROTOCOLS_MAX,
    GroupLimits,
)
from smq.coordinator.group_states import GroupState
from smq.coordinator.pending_ids import ID_OVERHEAD_BYTES, PENDING_BYTES_MAX
from smq.model.errors import BrokerError, ErrorCode
from smq.testing.steps import lines_run
from tests.coordinator.group_driver import SESSION_MS, Driver

LIMITS = GroupLimits(initial_rebalance_delay_ms=3000, size_max=1_000_000)
PROTOCOLS = (("range", b"r" * 100), ("sticky", b"s" * 100))
NOW_MS = 1_000_000


def join(name: str, ticket: object = 0, **fields: object) -> Join:
    event = {
        "ticket": ticket,
        "member_id": "",
        "new_member_id": name,
        "instance_id": None,
        "client_id": "client",
        "client_host": "/host",
        "session_timeout_ms": SESSION_MS,
        "rebalance_timeout_ms": 60_000,
        "protocol_type": "consumer",
        "protocols": PROTOCOLS,
        "must_know_member_id": False,
        "may_skip_assignment": False,
    }
    return Join(**(event | fields))  # type: ignore[arg-type]


class Crowd:
    """A group of so many members, m0 to m…, which is stable."""

    def __init__(self, count: int) -> None:
        self.group = Group("g", LIMITS)
        self.names = [f"m{i}" for i in range(count)]
        self.lines: dict[str, int] = {}
        self.count("join", lambda: [self.group.handle(join(n), NOW_MS) for n in self.names])
        while self.group.state is GroupState.PREPARING:
            wake_ms = self.group.wake_ms
            self.count("complete", lambda at=wake_ms: self.group.handle(TimePasses(), at))  # type: ignore[misc]
        self.now_ms = wake_ms
        self.sync()
        self.group.invariants()

    def count(self, what: str, action: Callable[[], object]) -> None:
        self.lines[what] = lines_run(action)

    def sync(self) -> None:
        group, work = self.group, {name: name.encode() for name in self.names}
        generation = group.generation
        others = [
            Sync(ticket=n, member_id=n, instance_id=None, generation=generation)
            for n in self.names[1:]
        ]
        leader = Sync(
            ticket="m0", member_id="m0", instance_id=None, generation=generation, assignments=work
        )
        self.count("wait", lambda: [group.handle(each, self.now_ms) for each in others])
        self.count("assign", lambda: group.handle(leader, self.now_ms))
        assert group.state is GroupState.STABLE

    def rejoin(self, *, leader_first: bool) -> None:
        """Everybody joins again, for the leader wants a rebalance."""
        names = self.names if leader_first else [*self.names[1:], self.names[0]]
        events = [join("", n, member_id=n) for n in names]
        self.count("rejoin", lambda: [self.group.handle(each, self.now_ms) for each in events])


def per_member(what: str, crowd: Crowd) -> float:
    return crowd.lines[what] / len(crowd.names)


@pytest.fixture(scope="module")
def crowds() -> tuple[Crowd, Crowd]:
    few, many = Crowd(50), Crowd(1000)
    for crowd in (few, many):
        crowd.rejoin(leader_first=True)
        assert crowd.group.state is GroupState.COMPLETING
        crowd.sync()
        beats = [Heartbeat(n, None, 2) for n in crowd.names]
        crowd.count("beat", lambda c=crowd, b=beats: [c.group.handle(e, c.now_ms) for e in b])  # type: ignore[misc]
        leave = Leave("leave", tuple((name, None) for name in crowd.names[: len(crowd.names) // 2]))
        crowd.count("leave", lambda c=crowd, e=leave: c.group.handle(e, c.now_ms))  # type: ignore[misc]
        crowd.group.invariants()
        late = TimePasses()
        at_ms = crowd.now_ms + 10 * SESSION_MS
        crowd.count("expire", lambda c=crowd, e=late, t=at_ms: c.group.handle(e, t))  # type: ignore[misc]
        assert not crowd.group.roster
    return few, many


@pytest.mark.parametrize(
    "what", ["join", "complete", "wait", "assign", "rejoin", "beat", "leave", "expire"]
)
def test_a_member_of_a_thousand_costs_what_one_of_fifty_does(
    crowds: tuple[Crowd, Crowd], what: str
) -> None:
    few, many = crowds
    assert per_member(what, few) > 0
    assert per_member(what, many) < 1.5 * per_member(what, few) + 5


def test_a_look_at_the_time_costs_what_has_come_due() -> None:
    group = Group("g", LIMITS)
    group.handle(join("m"), NOW_MS)
    for i in range(10_000):
        ask = join(f"p{i}", must_know_member_id=True, session_timeout_ms=SESSION_MS + i)
        group.handle(ask, NOW_MS)
    group.invariants()
    looks = [
        lines_run(lambda at=NOW_MS + SESSION_MS + i: group.handle(TimePasses(), at))  # type: ignore[misc]
        for i in range(1, 20)
    ]
    assert max(looks) < 200
    group.invariants()
    assert len(group._members.pending) == 10_000 - 20


def test_heartbeats_leave_no_work_behind_but_one_entry_a_session(crowds: object) -> None:
    assert crowds is not None
    crowd = Crowd(100)
    before, now_ms = crowd.group._members.sessions.steps, crowd.now_ms
    for _ in range(100):  # Ten session timeouts.
        now_ms += SESSION_MS // 10
        for name in crowd.names:
            crowd.group.handle(Heartbeat(name, None, 1), now_ms)
        crowd.group.handle(TimePasses(), now_ms)
    assert len(crowd.group.roster) == 100
    assert crowd.group._members.sessions.steps - before <= 3 * 100 * 11
    crowd.group.invariants()


def test_an_unchanged_member_is_not_written_after_a_rebalance() -> None:
    driver = Driver(LIMITS)
    names = [f"m{i}" for i in range(4)]
    driver.stable(*names)
    assert len(driver.changes[-1].members) == 4
    work = {name: f"for {name}".encode() for name in names} | {"m1": b"other"}
    for name in names:
        driver.join(name)
    for name in reversed(names):
        driver.sync(name, work)
    assert [each.member_id for each in driver.changes[-1].members] == ["m1"]
    driver.leave(("m2", None))
    rest = [name for name in names if name != "m2"]
    for name in rest:
        driver.join(name, protocols=(("range", b"new" if name == "m3" else b"r"),))
    for name in reversed(rest):
        driver.sync(name, work)
    change = driver.changes[-1]
    assert ([each.member_id for each in change.members], len(change.gone)) == (["m3"], 1)


# Bounds


def refusal(driver: Driver, member_id: str = "", new_id: str = "", **fields: object) -> ErrorCode:
    try:
        driver.join(member_id, new_id, **fields)
    except BrokerError as reason:
        return reason.code
    return ErrorCode.NONE


def test_metadata_of_a_group_is_bounded() -> None:
    driver = Driver(LIMITS)
    half = (("range", b"x" * (METADATA_BYTES_MAX // 2)),)
    assert refusal(driver, new_id="a", protocols=half) is ErrorCode.NONE
    assert refusal(driver, new_id="b", protocols=half) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert refusal(driver, new_id="c") is ErrorCode.NONE
    assert list(driver.group.roster.members) == ["a", "c"]
    whole = (("range", b"x" * METADATA_BYTES_MAX),)
    assert refusal(driver, "a", protocols=whole) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert driver.group.roster.members["a"].protocols == half, "it stays as it was"
    assert refusal(driver, "a") is ErrorCode.NONE
    assert refusal(driver, new_id="b", protocols=half) is ErrorCode.NONE
    assert driver.group.roster.bytes_held <= METADATA_BYTES_MAX


def test_names_count_as_metadata_does() -> None:
    driver = Driver(LIMITS)
    clients = METADATA_BYTES_MAX // (2 * 32_000)
    refusals = [refusal(driver, new_id=f"a{i}", client_id="c" * 32_000) for i in range(clients + 1)]
    assert refusals[-1] is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert refusals[0] is ErrorCode.NONE


def test_a_member_with_very_many_protocols_is_refused() -> None:
    driver = Driver(LIMITS)
    known = tuple((f"p{i}", b"") for i in range(PROTOCOLS_MAX + 1))
    code = refusal(driver, new_id="a", protocols=known)
    assert code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert refusal(driver, new_id="a", protocols=known[:-1]) is ErrorCode.NONE


def test_assignments_that_cannot_be_kept_are_refused_to_all_and_the_group_goes_on() -> None:
    driver = Driver(LIMITS)
    driver.stable("a", "b")
    driver.join("a")
    driver.join("b")
    waits = driver.sync("b")
    large = b"x" * (512 * 1024 + 1)
    leads = driver.sync("a", {"a": large, "b": large})
    assert driver.synced(waits).error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert driver.synced(leads).error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert driver.group.state is GroupState.PREPARING
    assert len(driver.saved) == 1
    driver.join("a")
    driver.join("b")
    driver.sync("a", {"a": large, "stranger": large})
    assert len(driver.saved) == 2


def test_ids_given_out_and_never_used_are_bounded_and_the_oldest_is_dropped() -> None:
    driver = Driver(LIMITS)
    for i in range(100):
        name = f"{i:02d}" + "x" * 32_000
        driver.join(new_id=name, must_know_member_id=True)
    kept = PENDING_BYTES_MAX // (32_002 + ID_OVERHEAD_BYTES)
    assert len(driver.group._members.pending) == kept
    assert refusal(driver, "00" + "x" * 32_000) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refusal(driver, "99" + "x" * 32_000) is ErrorCode.NONE
