"""All groups: each in its own time, kept in the store, and forgotten."""

import struct
from typing import Any

import pytest

from smq.coordinator.group_events import (
    Answer,
    Commit,
    Heartbeat,
    Join,
    JoinAnswer,
    Leave,
    Sync,
)
from smq.coordinator.group_states import GroupState
from smq.coordinator.groups import (
    CHECK_INTERVAL_MS,
    DELETED_A_TICK,
    LISTEN_MS,
    MEMBERS_A_TICK,
    STALL_MS,
)
from smq.coordinator.topics import NewTopic
from smq.model.errors import BrokerError, ErrorCode
from smq.model.now import Now
from smq.store.rows import CommittedOffset
from tests.coordinator.coordinator_driver import CoordinatorDriver

DAY_MS = 86_400_000
YEAR_MS = 365 * DAY_MS
SESSION_MS = 10_000


def join(driver: CoordinatorDriver, group_id: str = "g", **fields: Any) -> None:
    event: dict[str, Any] = {
        "ticket": "join",
        "member_id": "",
        "new_member_id": "a",
        "instance_id": None,
        "client_id": "client",
        "client_host": "/host",
        "session_timeout_ms": SESSION_MS,
        "rebalance_timeout_ms": 60_000,
        "protocol_type": "consumer",
        "protocols": (("range", b""),),
        "must_know_member_id": False,
        "may_skip_assignment": False,
    }
    driver.coordinator.groups.handle(group_id, Join(**event | fields), driver.now)


def stable(driver: CoordinatorDriver, group_id: str = "g", **fields: Any) -> None:
    """A group of one member, a."""
    join(driver, group_id, **fields)
    driver.wait(3000)
    sync = Sync(ticket="sync", member_id="a", instance_id=None, generation=1)
    driver.coordinator.groups.handle(group_id, sync, driver.now)
    driver.coordinator.groups.take_answers()


def heartbeat(driver: CoordinatorDriver, group_id: str = "g") -> None:
    driver.coordinator.groups.handle(group_id, Heartbeat("a", None, 1), driver.now)


def leave(driver: CoordinatorDriver) -> None:
    event = Leave("leave", (("a", None),))
    driver.coordinator.groups.handle("g", event, driver.now)


def commit(driver: CoordinatorDriver, group_id: str = "g") -> None:
    """Somebody outside of any group commits offset 42."""
    topics = driver.coordinator.topics
    if "t" not in topics.catalog.by_name:
        topics.create(NewTopic(name="t"), driver.now)
    driver.coordinator.groups.handle(group_id, Commit("", None, -1), driver.now)
    keep_offset(driver, group_id)


def keep_offset(driver: CoordinatorDriver, group_id: str = "g", ago_ms: int = 0) -> None:
    committed = CommittedOffset(42, -1, "", driver.now.monotonic_ms - ago_ms)
    driver.store.commit_offsets(group_id, {1: committed})


def test_answers_come_when_their_time_has_come(driver: CoordinatorDriver) -> None:
    join(driver)
    assert driver.coordinator.groups.take_answers() == []
    driver.wait(3000)
    [answer] = driver.coordinator.groups.take_answers()
    assert isinstance(answer, Answer)
    assert isinstance(answer.answer, JoinAnswer)
    assert answer.answer.generation == 1
    assert driver.coordinator.groups.take_answers() == []


def test_each_group_is_looked_at_by_its_own_time(driver: CoordinatorDriver) -> None:
    for group_id in ("g1", "g2", "g3"):
        stable(driver, group_id)
    heartbeat(driver, "g1")
    for _ in range(20):
        driver.wait(SESSION_MS // 2)
        heartbeat(driver, "g1")
        heartbeat(driver, "g3")
    states = {group.group_id: group.state for group in driver.coordinator.groups}
    assert states == {"g1": GroupState.STABLE, "g2": GroupState.EMPTY, "g3": GroupState.STABLE}


@pytest.mark.parametrize("timeout_ms", [5999, 1_800_001, -1])
def test_a_session_timeout_out_of_bounds_is_refused(
    driver: CoordinatorDriver, timeout_ms: int
) -> None:
    with pytest.raises(BrokerError, match="INVALID_SESSION_TIMEOUT"):
        join(driver, session_timeout_ms=timeout_ms)


def test_a_group_needs_a_name_but_for_commits(driver: CoordinatorDriver) -> None:
    with pytest.raises(BrokerError, match="INVALID_GROUP_ID"):
        join(driver, "")
    with pytest.raises(BrokerError, match="INVALID_GROUP_ID"):
        heartbeat(driver, "")
    commit(driver, "")


def test_who_brings_a_member_id_to_no_group_is_unknown(driver: CoordinatorDriver) -> None:
    with pytest.raises(BrokerError, match="UNKNOWN_MEMBER_ID"):
        join(driver, member_id="a")
    with pytest.raises(BrokerError, match="UNKNOWN_MEMBER_ID"):
        heartbeat(driver)
    with pytest.raises(BrokerError, match="GROUP_ID_NOT_FOUND"):
        driver.coordinator.groups.handle("g", Commit("a", None, 1), driver.now)
    assert list(driver.coordinator.groups) == []


def test_after_a_restart_a_stable_group_simply_goes_on(driver: CoordinatorDriver) -> None:
    stable(driver)
    driver.store.commit()
    driver.restart()
    heartbeat(driver)
    driver.wait(SESSION_MS - 1)
    heartbeat(driver)
    driver.wait(SESSION_MS)
    assert driver.coordinator.groups.find("g").state is GroupState.EMPTY


def test_a_group_that_was_never_stable_is_gone_after_a_restart(driver: CoordinatorDriver) -> None:
    join(driver)
    driver.store.commit()
    driver.restart()
    assert list(driver.coordinator.groups) == []


def test_a_group_with_offsets_alone_comes_back_empty(driver: CoordinatorDriver) -> None:
    commit(driver)
    driver.store.commit()
    driver.restart()
    assert driver.coordinator.groups.find("g").state is GroupState.EMPTY


def test_a_consumer_that_comes_back_after_6_days_finds_its_offset(
    driver: CoordinatorDriver,
) -> None:
    commit(driver)
    stable(driver)
    keep_offset(driver)
    leave(driver)
    driver.store.commit()
    driver.restart()
    driver.wait(6 * DAY_MS)
    driver.set_clock(8 * DAY_MS)
    driver.wait(CHECK_INTERVAL_MS)
    assert driver.store.committed_offsets("g")[1].offset == 42
    join(driver)
    driver.wait(3000)
    assert driver.coordinator.groups.find("g").generation == 3


def test_after_seven_days_without_members_offsets_and_group_are_forgotten(
    driver: CoordinatorDriver,
) -> None:
    commit(driver)
    driver.set_clock(-8 * DAY_MS)
    driver.wait(7 * DAY_MS + CHECK_INTERVAL_MS)
    assert driver.store.committed_offsets("g") == {}
    assert list(driver.coordinator.groups) == []
    driver.store.commit()
    driver.restart()
    assert list(driver.coordinator.groups) == []


def subscription(*topics: str) -> bytes:
    """What a consumer says of itself (ConsumerProtocolSubscription 0)."""
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


@pytest.mark.parametrize(
    ("said", "is_kept"),
    [
        (subscription("t"), True),
        (subscription("other"), False),
        (b"what cannot be read", True),
    ],
)
def test_a_group_with_members_keeps_old_offsets_of_what_it_reads(
    driver: CoordinatorDriver, said: bytes, is_kept: bool
) -> None:
    commit(driver)
    stable(driver, protocols=(("range", said),))
    keep_offset(driver, ago_ms=400 * DAY_MS)
    for _ in range(CHECK_INTERVAL_MS // SESSION_MS * 2):
        driver.wait(SESSION_MS - 1)
        heartbeat(driver)
    assert bool(driver.store.committed_offsets("g")) == is_kept
    assert driver.coordinator.groups.find("g").state is GroupState.STABLE


def test_an_empty_group_without_offsets_is_forgotten_at_the_next_check(
    driver: CoordinatorDriver,
) -> None:
    stable(driver)
    leave(driver)
    driver.wait(CHECK_INTERVAL_MS)
    assert list(driver.coordinator.groups) == []
    assert driver.store.groups() == []


def test_who_was_told_its_member_id_is_not_forgotten(driver: CoordinatorDriver) -> None:
    driver.wait(CHECK_INTERVAL_MS - 1000)
    join(driver, must_know_member_id=True)
    driver.wait(1000)
    join(driver, member_id="a")


def test_only_an_empty_group_is_deleted(driver: CoordinatorDriver) -> None:
    groups = driver.coordinator.groups
    with pytest.raises(BrokerError, match="GROUP_ID_NOT_FOUND"):
        groups.delete("g")
    commit(driver)
    stable(driver)
    with pytest.raises(BrokerError, match="NON_EMPTY_GROUP"):
        groups.delete("g")
    leave(driver)
    groups.delete("g")
    assert driver.store.committed_offsets("g") == {}
    assert driver.store.groups() == []
    with pytest.raises(BrokerError) as refusal:
        groups.find("g")
    assert refusal.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_that_was_being_deleted_is_deleted_after_a_restart(
    driver: CoordinatorDriver,
) -> None:
    """Data fault 13: a coordinator that was killed amid DeleteGroups left some of the offsets, and
    a consumer that came back began there."""
    count = 3 * DELETED_A_TICK
    new = NewTopic(name="wide", partition_count=count)
    topic = driver.coordinator.topics.create(new, driver.now)
    offset = CommittedOffset(7, -1, "", driver.now.monotonic_ms)
    driver.store.commit_offsets("g", dict.fromkeys(topic.partition_numbers, offset))
    driver.store.commit()
    driver.restart()
    driver.coordinator.groups.delete("g")
    driver.store.commit()
    assert 0 < len(driver.store.committed_offsets("g")) < count
    driver.restart()
    assert driver.coordinator.groups.is_deleting("g")
    driver.wait(0)
    assert not driver.coordinator.groups.is_deleting("g")
    assert driver.store.committed_offsets("g") == {}
    driver.store.commit()
    driver.restart()
    assert not driver.coordinator.groups.is_deleting("g")


@pytest.mark.parametrize("step_ms", [-YEAR_MS, YEAR_MS])
def test_no_age_is_negative_after_a_restart(driver: CoordinatorDriver, step_ms: int) -> None:
    """Data fault 2: a time line that went back by a year kept offsets for a year and a week."""
    commit(driver, "h")
    stable(driver)
    leave(driver)
    keep_offset(driver)
    driver.store.commit()
    driver.now = Now(driver.now.monotonic_ms + step_ms, driver.now.wall_ms + step_ms)
    driver.restart()
    driver.wait(8 * DAY_MS)
    assert driver.store.committed_offsets("g") == driver.store.committed_offsets("h") == {}
    assert list(driver.coordinator.groups) == []


def test_a_thousand_heartbeats_leave_one_appointment(driver: CoordinatorDriver) -> None:
    stable(driver)
    for _ in range(1000):
        driver.wait(7)
        heartbeat(driver)
    assert len(driver.coordinator.groups._wakes) < 10


def test_answers_can_be_taken_some_at_a_time_in_order(driver: CoordinatorDriver) -> None:
    for i in range(5):
        join(driver, ticket=f"join-{i}", new_member_id=f"m{i}")
    driver.wait(6000)
    groups = driver.coordinator.groups
    taken = []
    while groups.has_answers:
        taken.append([answer.ticket for answer in groups.take_answers(2)])
    assert taken == [["join-0", "join-1"], ["join-2", "join-3"], ["join-4"]]
    assert groups.take_answers(2) == []


def test_a_tick_looks_at_so_many_groups_and_is_wanted_again_at_once(
    driver: CoordinatorDriver,
) -> None:
    groups = driver.coordinator.groups
    for i in range(3 * MEMBERS_A_TICK // 2):
        join(driver, f"g{i}")
    driver.now = driver.now._replace(monotonic_ms=groups.next_wake_ms() + STALL_MS - 1)
    completed = []
    while groups.next_wake_ms() <= driver.now.monotonic_ms:
        groups.tick(driver.now)
        completed.append(len(groups.take_answers()))
        groups.invariants()
    assert sum(completed) == 3 * MEMBERS_A_TICK // 2
    assert len(completed) == 3  # Each group counts itself and its member.


def test_a_member_is_heard_after_a_stall_before_it_counts_as_gone(
    driver: CoordinatorDriver,
) -> None:
    """data fault 36, in a stable group: the process was stopped over the end of the sessions, and
    the heartbeats are still in sockets when it wakes."""
    for group_id in ("heard", "gone"):
        stable(driver, group_id)
    groups = driver.coordinator.groups
    woken_ms = driver.now.monotonic_ms + SESSION_MS + STALL_MS
    driver.now = driver.now._replace(monotonic_ms=woken_ms)
    groups.tick(driver.now)
    heartbeat(driver, "heard")
    assert groups.next_wake_ms() == woken_ms + LISTEN_MS
    driver.wait(LISTEN_MS)
    states = {group.group_id: group.state for group in groups}
    assert states == {"heard": GroupState.STABLE, "gone": GroupState.EMPTY}
    driver.wait(SESSION_MS)
    assert groups.find("heard").state is GroupState.EMPTY  # It counts as gone in its time.
    groups.invariants()


def test_expiry_of_many_groups_lets_requests_in_between(driver: CoordinatorDriver) -> None:
    groups = driver.coordinator.groups
    for i in range(300):
        commit(driver, f"g{i}")
    driver.now = Now(driver.now.monotonic_ms + 61 * DAY_MS, driver.now.wall_ms)
    groups.tick(driver.now)
    left = []
    while groups.next_wake_ms() <= driver.now.monotonic_ms:
        groups.tick(driver.now)
        left.append(len(list(groups)))
        if len(left) == 1:
            commit(driver, "g0")  # It is looked at last: the walk begins at the other end.
    assert len(left) > 3
    assert [group.group_id for group in groups] == ["g0"]
    groups.invariants()
