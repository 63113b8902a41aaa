"""A classic group: syncs, commits, leaves, restarts and its end."""

import pytest

from smq.coordinator.group import Group
from smq.coordinator.group_states import GroupState
from smq.model.errors import BrokerError, ErrorCode
from tests.coordinator.group_driver import LIMITS, SESSION_MS, Driver

E, S = ErrorCode, GroupState


@pytest.mark.parametrize("member_id", ["x", "c"])
def test_a_stranger_is_unknown(two: Driver, member_id: str) -> None:
    for ask in (two.join, two.sync):
        with pytest.raises(BrokerError, match="UNKNOWN_MEMBER_ID"):
            ask(member_id)
    assert two.heartbeat(member_id) is E.UNKNOWN_MEMBER_ID
    assert two.commit(member_id) is E.UNKNOWN_MEMBER_ID
    assert two.leave((member_id, None)) == (E.UNKNOWN_MEMBER_ID,)


def test_a_sync_during_a_rebalance_is_refused(two: Driver) -> None:
    two.join("a")
    with pytest.raises(BrokerError, match="REBALANCE_IN_PROGRESS"):
        two.sync("b")


def test_a_leave_starts_a_rebalance_and_the_last_one_empties_the_group(two: Driver) -> None:
    assert two.leave(("a", None)) == (E.NONE,)
    assert two.group.state is S.PREPARING
    assert two.joined(two.join("b")).leader == "b"
    two.leave(("b", None))
    assert two.group.is_idle()
    assert two.saved[-1].members == ()
    assert two.saved[-1].generation == two.group.generation == 3
    assert two.saved[-1].protocol_type == "consumer"


def test_each_member_of_a_leave_gets_its_own_answer(g: Driver) -> None:
    g.stable("a", "b", "c", instances={"b": "ib", "c": "ic"})
    errors = g.leave(("a", None), ("", "ib"), ("x", None), ("", "nobody"), ("a", "ic"))
    assert errors == (
        E.NONE,
        E.NONE,
        E.UNKNOWN_MEMBER_ID,
        E.UNKNOWN_MEMBER_ID,
        E.FENCED_INSTANCE_ID,
    )


def test_anybody_may_commit_to_an_empty_group(g: Driver) -> None:
    assert g.commit("", generation=-1) is E.NONE
    assert g.commit("", generation=3) is E.UNKNOWN_MEMBER_ID


def test_a_commit_from_outside_is_refused_while_the_group_has_members(two: Driver) -> None:
    assert two.commit("", generation=-1) is E.UNKNOWN_MEMBER_ID
    assert two.commit("a", generation=-1) is E.ILLEGAL_GENERATION


def test_only_an_empty_group_is_removed(two: Driver) -> None:
    assert not two.group.is_idle()
    with pytest.raises(KeyError):
        two.group.remove()
    two.leave(("a", None), ("b", None))
    two.group.remove()
    assert two.group.state is S.DEAD


def test_after_a_restart_heartbeats_simply_go_on(two: Driver) -> None:
    two.group = Group.restore(two.saved[-1], LIMITS, two.now_ms)
    two.group.invariants()
    assert two.heartbeat("a") is E.NONE
    assert two.heartbeat("b") is E.NONE
    assert two.synced(two.sync("b")).assignment == b"for b"
    assert two.group.stored() == two.saved[-1]


def test_after_a_restart_silent_members_are_dropped_after_a_session(two: Driver) -> None:
    two.group = Group.restore(two.saved[-1], LIMITS, two.now_ms)
    two.wait(SESSION_MS)
    assert two.group.state is S.EMPTY


def test_a_restart_in_a_rebalance_goes_back_to_the_last_stable_generation(two: Driver) -> None:
    two.join("a")
    two.join("b")
    assert two.group.generation == 2
    two.group = Group.restore(two.saved[-1], LIMITS, two.now_ms)
    with pytest.raises(BrokerError, match="ILLEGAL_GENERATION"):
        two.sync("a", generation=2)
    two.join("a")
    two.join("b")
    assert two.group.generation == 2
