"""All groups: each in its own time, kept in the store, and forgotten."""

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
    LISTEN_MS,
    MEMBERS_A_TICK,
    STALL_MS,
)
from smq.coordinator.topics import NewTopic
from smq.model.errors import BrokerError
from smq.store.rows import CommittedOffset
from tests.coordinator.coordinator_driver import CoordinatorDriver

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
    sync(driver, group_id)
    driver.coordinator.groups.take_answers()


def sync(driver: CoordinatorDriver, group_id: str = "g") -> None:
    event = Sync(ticket="sync", member_id="a", instance_id=None, generation=1)
    driver.coordinator.groups.handle(group_id, event, driver.now)


def heartbeat(driver: CoordinatorDriver, group_id: str = "g") -> None:
    driver.coordinator.groups.handle(group_id, Heartbeat("a", None, 1), driver.now)


def leave(driver: CoordinatorDriver) -> None:
    event = Leave("leave", (("a", None),))
    driver.coordinator.groups.handle("g", event, driver.now)


def commit(driver: CoordinatorDriver, group_id: str = "g") -> None:
    """Somebody outside of any group commits an offset."""
    topic = driver.coordinator.topics.create(NewTopic(name="t"), driver.now)
    driver.coordinator.groups.handle(group_id, Commit("", None, -1), driver.now)
    committed = CommittedOffset(42, -1, "", driver.now.monotonic_ms)
    driver.store.commit_offsets(group_id, {topic.partition_numbers[0]: committed})


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


def test_a_member_id_for_a_missing_group_is_unknown(driver: CoordinatorDriver) -> None:
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
