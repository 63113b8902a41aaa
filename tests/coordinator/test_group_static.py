"""Members that bring a group instance id (KIP-345): they may come back without a rebalance."""

import pytest

from smq.coordinator.group_events import JoinAnswer
from smq.coordinator.group_states import GroupState
from smq.model.errors import BrokerError, ErrorCode
from tests.coordinator.group_driver import REBALANCE_MS, SESSION_MS, Driver

E, S = ErrorCode, GroupState


@pytest.fixture
def g() -> Driver:
    return Driver()


@pytest.fixture
def static(g: Driver) -> Driver:
    """A stable group of a, the leader, and b, with the instance ids ia and ib."""
    g.stable("a", "b", instances={"a": "ia", "b": "ib"})
    return g


def test_a_static_follower_comes_back_without_a_rebalance(static: Driver) -> None:
    answer = static.joined(static.join(new_id="b2", instance_id="ib"))
    assert (answer.member_id, answer.generation, answer.leader) == ("b2", 1, "a")
    assert static.synced(static.sync("b2")).assignment == b"for b"
    assert static.group.state is S.STABLE
    assert [m.member_id for m in static.saved[-1].members] == ["a", "b2"]


def test_the_old_self_of_a_static_member_is_fenced(static: Driver) -> None:
    static.join(new_id="b2", instance_id="ib")
    assert static.heartbeat("b", "ib") is E.FENCED_INSTANCE_ID
    assert static.commit("b", "ib") is E.FENCED_INSTANCE_ID
    with pytest.raises(BrokerError, match="FENCED_INSTANCE_ID"):
        static.join("b", instance_id="ib")
    with pytest.raises(BrokerError, match="FENCED_INSTANCE_ID"):
        static.sync("b", instance_id="ib")
    assert static.heartbeat("b2", "ib") is E.NONE


def test_a_returning_static_leader_keeps_the_assignment(static: Driver) -> None:
    old = static.joined(static.join(new_id="a2", instance_id="ia"))
    assert (old.leader, old.members, old.skip_assignment) == ("a", (), False)
    new = static.joined(static.join(new_id="a3", instance_id="ia", may_skip_assignment=True))
    assert (new.leader, len(new.members), new.skip_assignment) == ("a3", 2, True)


def test_a_returning_static_follower_gets_no_skip_assignment(static: Driver) -> None:
    answer = static.joined(static.join(new_id="b2", instance_id="ib", may_skip_assignment=True))
    assert (answer.skip_assignment, answer.members) == (False, ())


def test_a_static_member_with_other_protocols_starts_a_rebalance(g: Driver) -> None:
    both = (("range", b""), ("rr", b""))
    g.join(new_id="a", instance_id="ia", protocols=both)
    g.wait(3000)
    g.sync("a")
    g.join(new_id="a2", instance_id="ia", protocols=(("rr", b""),))
    assert g.group.protocol_name == "rr"
    assert g.group.generation == 2


def test_the_request_of_the_old_self_is_answered_when_the_new_one_comes(g: Driver) -> None:
    old = g.join(new_id="a", instance_id="ia")
    new = g.join(new_id="a2", instance_id="ia")
    assert g.joined(old) == JoinAnswer(error=E.FENCED_INSTANCE_ID, member_id="a")
    g.wait(3000)
    assert g.joined(new).member_id == "a2"
    syncing = g.join(new_id="b")
    assert syncing not in g.answers


def test_a_static_member_that_returns_while_the_leader_works_starts_over(g: Driver) -> None:
    g.join(new_id="a", instance_id="ia")
    g.join(new_id="b", instance_id="ib")
    g.wait(6000)
    b = g.sync("b")
    g.join(new_id="b2", instance_id="ib")
    assert g.synced(b).error is E.FENCED_INSTANCE_ID
    assert g.group.state is S.PREPARING
    assert [m for m, _, _ in g.joined(g.join("a")).members] == ["a", "b2"]


def test_static_members_are_kept_through_a_rebalance_they_miss(static: Driver) -> None:
    a = static.join("a")
    for _ in range(12):
        static.wait(REBALANCE_MS // 12)
        static.heartbeat("b")
    assert [m for m, _, _ in static.joined(a).members] == ["a", "b"]
    assert static.group.generation == 2


def test_when_only_absent_static_members_are_left_the_group_waits_for_their_sessions(
    static: Driver,
) -> None:
    static.leave(("", "ia"))
    static.wait(SESSION_MS)
    assert static.group.state is S.EMPTY
