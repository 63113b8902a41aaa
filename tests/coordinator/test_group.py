"""A classic group, event by event: who is told what, and when."""

from typing import Any

import pytest

from smq.coordinator.group import Group
from smq.coordinator.group_events import JoinAnswer
from smq.coordinator.group_limits import GroupLimits
from smq.coordinator.group_states import GroupState
from smq.model.errors import BrokerError, ErrorCode
from tests.coordinator.group_driver import LIMITS, RANGE, REBALANCE_MS, SESSION_MS, Driver

E, S = ErrorCode, GroupState


@pytest.fixture
def g() -> Driver:
    return Driver()


@pytest.fixture
def two(g: Driver) -> Driver:
    """A stable group of a, the leader, and b."""
    g.stable("a", "b")
    return g


# The first members


def test_the_first_member_leads_once_the_initial_delay_is_over(g: Driver) -> None:
    ticket = g.join(new_id="a")
    g.wait(2999)
    assert ticket not in g.answers
    g.wait(1)
    assert g.joined(ticket) == JoinAnswer(
        member_id="a",
        generation=1,
        protocol_type="consumer",
        protocol_name="range",
        leader="a",
        members=(("a", None, b"r"),),
    )
    assert g.group.state is S.COMPLETING


def test_members_that_come_during_the_delay_meet_in_one_generation(g: Driver) -> None:
    first = g.join(new_id="a")
    g.wait(2000)
    second = g.join(new_id="b")
    g.wait(3999)
    assert first not in g.answers  # The delay began anew when b came.
    g.wait(1)
    assert [m for m, _, _ in g.joined(first).members] == ["a", "b"]
    assert g.joined(second).members == ()
    assert g.joined(second).leader == "a"


def test_the_delay_is_not_extended_beyond_the_rebalance_timeout(g: Driver) -> None:
    first = g.join(new_id="a", rebalance_timeout_ms=7000)
    for name in "bcdefghi":
        g.wait(1000)
        g.join(new_id=name, rebalance_timeout_ms=7000)
    assert g.joined(first).generation == 1


def test_without_a_delay_the_first_member_is_answered_at_once() -> None:
    g = Driver(GroupLimits(initial_rebalance_delay_ms=0, size_max=10))
    ticket = g.join(new_id="a")
    g.wait(0)
    assert g.joined(ticket).generation == 1


def test_a_dynamic_member_is_told_its_id_first(g: Driver) -> None:
    ticket = g.join(new_id="a", must_know_member_id=True)
    assert g.joined(ticket) == JoinAnswer(error=E.MEMBER_ID_REQUIRED, member_id="a")
    assert g.group.state is S.EMPTY
    assert not g.group.is_idle()
    ticket = g.join("a")
    g.wait(3000)
    assert g.joined(ticket).error is E.NONE


def test_a_member_id_that_is_never_used_is_forgotten_after_a_session(g: Driver) -> None:
    g.join(new_id="a", must_know_member_id=True)
    g.wait(SESSION_MS)
    assert g.group.is_idle()
    with pytest.raises(BrokerError, match="UNKNOWN_MEMBER_ID"):
        g.join("a")


def test_a_rebalance_waits_for_a_member_that_was_told_its_id(two: Driver) -> None:
    two.join(new_id="c", must_know_member_id=True)
    assert two.group.state is S.STABLE
    a, b = two.join("a"), two.join("b")
    assert a not in two.answers
    two.join("c")
    assert len(two.joined(a).members) == 3
    assert two.joined(b).generation == 2


def test_a_rebalance_goes_on_when_a_told_id_expires_or_leaves(two: Driver) -> None:
    for forget in (lambda: two.wait(SESSION_MS), lambda: two.leave(("c", None))):
        two.join(new_id="c", must_know_member_id=True)
        a, _ = two.join("a"), two.join("b")
        forget()
        assert len(two.joined(a).members) == 2


def test_a_static_member_is_not_told_its_id_first(g: Driver) -> None:
    ticket = g.join(new_id="a", instance_id="i", must_know_member_id=True)
    g.wait(3000)
    assert g.joined(ticket).members == (("a", "i", b"r"),)


def test_an_id_given_to_a_dynamic_member_is_not_for_a_static_one(g: Driver) -> None:
    g.join(new_id="a", must_know_member_id=True)
    with pytest.raises(BrokerError, match="UNKNOWN_MEMBER_ID"):
        g.join("a", instance_id="i")


def test_a_new_member_that_is_not_answered_for_five_minutes_is_thought_gone(g: Driver) -> None:
    g.stable("a")
    ticket = g.join(new_id="b", rebalance_timeout_ms=3_600_000)
    for _ in range(100):
        g.wait(3000)
        g.heartbeat("a")
    assert g.joined(ticket) == JoinAnswer(error=E.UNKNOWN_MEMBER_ID)


# Refusals


@pytest.mark.parametrize(
    "wrong",
    [{"protocols": ()}, {"protocol_type": ""}],
    ids=["no protocols", "no protocol type"],
)
def test_an_empty_group_wants_a_protocol(g: Driver, wrong: dict[str, Any]) -> None:
    with pytest.raises(BrokerError, match="INCONSISTENT_GROUP_PROTOCOL"):
        g.join(new_id="a", **wrong)


@pytest.mark.parametrize(
    "wrong",
    [{"protocols": (("other", b""),)}, {"protocol_type": "connect"}, {"protocols": ()}],
    ids=["no common protocol", "another type", "no protocols"],
)
@pytest.mark.parametrize("member_id", ["", "b"])
def test_a_protocol_the_others_do_not_know_is_refused(
    two: Driver, wrong: dict[str, Any], member_id: str
) -> None:
    with pytest.raises(BrokerError, match="INCONSISTENT_GROUP_PROTOCOL"):
        two.join(member_id, new_id="x", **wrong)
    assert two.group.state is S.STABLE


def test_an_empty_group_may_change_its_protocol_type(two: Driver) -> None:
    two.leave(("a", None), ("b", None))
    ticket = two.join(new_id="c", protocol_type="connect", protocols=(("eager", b""),))
    two.wait(3000)
    assert two.joined(ticket).protocol_type == "connect"


def test_while_all_have_left_a_rebalance_anybody_may_come(g: Driver) -> None:
    g.join(new_id="a")
    g.leave(("a", None))
    ticket = g.join(new_id="b", protocol_type="connect", protocols=(("eager", b""),))
    g.wait(6000)
    assert g.joined(ticket).protocol_type == "connect"


@pytest.mark.parametrize("member_id", ["x", "c"])
def test_a_stranger_is_unknown(two: Driver, member_id: str) -> None:
    for ask in (two.join, two.sync):
        with pytest.raises(BrokerError, match="UNKNOWN_MEMBER_ID"):
            ask(member_id)
    assert two.heartbeat(member_id) is E.UNKNOWN_MEMBER_ID
    assert two.commit(member_id) is E.UNKNOWN_MEMBER_ID
    assert two.leave((member_id, None)) == (E.UNKNOWN_MEMBER_ID,)


@pytest.mark.parametrize("generation", [-1, 0, 2])
def test_another_generation_is_illegal(two: Driver, generation: int) -> None:
    with pytest.raises(BrokerError, match="ILLEGAL_GENERATION"):
        two.sync("a", generation=generation)
    assert two.heartbeat("a", generation=generation) is E.ILLEGAL_GENERATION
    assert two.commit("a", generation=generation) is E.ILLEGAL_GENERATION


@pytest.mark.parametrize("wrong", [{"protocol_type": "connect"}, {"protocol_name": "rr"}])
def test_a_sync_for_another_protocol_is_refused(two: Driver, wrong: dict[str, Any]) -> None:
    with pytest.raises(BrokerError, match="INCONSISTENT_GROUP_PROTOCOL"):
        two.sync("a", **wrong)
    two.sync("a", protocol_type="consumer", protocol_name="range")


def test_a_full_group_takes_no_more() -> None:
    g = Driver(GroupLimits(initial_rebalance_delay_ms=3000, size_max=2))
    g.join(new_id="a")
    g.join(new_id="b")
    full = JoinAnswer(error=E.GROUP_MAX_SIZE_REACHED)
    assert g.joined(g.join(new_id="c")) == full
    g.wait(9000)
    assert g.joined(g.join(new_id="c")) == full
    g.sync("a")
    assert g.joined(g.join(new_id="c")) == full
    assert g.heartbeat("b") is E.NONE


def test_members_in_excess_of_a_lowered_limit_go_as_they_rejoin_last(two: Driver) -> None:
    stored = two.saved[-1]
    two.group = Group.restore(stored, GroupLimits(3000, size_max=1), two.now_ms)
    a = two.join("a")
    b = two.join("b")
    assert two.joined(b).error is E.GROUP_MAX_SIZE_REACHED
    assert [m for m, _, _ in two.joined(a).members] == ["a"]


# Assignments


def test_the_leaders_word_reaches_all_and_is_saved_before(g: Driver) -> None:
    g.join(new_id="a")
    g.join(new_id="b")
    g.wait(6000)
    waiting = g.sync("b")
    assert waiting not in g.answers
    leading = g.sync("a", {"a": b"0-4", "b": b"5-9"})
    assert g.synced(waiting).assignment == b"5-9"
    assert g.synced(leading).assignment == b"0-4"
    assert [m.assignment for m in g.saved[-1].members] == [b"0-4", b"5-9"]
    assert g.saved[-1].generation == 1


def test_who_syncs_late_gets_the_assignment_at_once(g: Driver) -> None:
    g.join(new_id="a")
    g.join(new_id="b")
    g.wait(6000)
    g.sync("a", {"b": b"all"})
    assert g.synced(g.sync("b")).assignment == b"all"


def test_a_member_the_leader_forgot_is_assigned_nothing(g: Driver) -> None:
    g.join(new_id="a")
    g.wait(3000)
    assert g.synced(g.sync("a", {"stranger": b"x"})).assignment == b""


def test_a_sync_while_members_rejoin_is_told_so(two: Driver) -> None:
    two.join("a")
    with pytest.raises(BrokerError, match="REBALANCE_IN_PROGRESS"):
        two.sync("b")


def test_members_that_do_not_sync_in_time_are_dropped(g: Driver) -> None:
    g.join(new_id="a")
    g.join(new_id="b")
    g.wait(6000)
    a = g.sync("a", {"a": b"x"})
    g.wait(1)
    assert g.synced(a).error is E.NONE
    for _ in range(10):
        g.wait(REBALANCE_MS // 10)
        g.heartbeat("a")
        g.heartbeat("b")
    assert g.group.state is S.PREPARING
    ticket = g.join("a")
    assert [m for m, _, _ in g.joined(ticket).members] == ["a"]


def test_a_leader_that_never_syncs_is_dropped_and_the_others_are_told(g: Driver) -> None:
    g.join(new_id="a")
    g.join(new_id="b")
    g.wait(6000)
    b = g.sync("b")
    for _ in range(10):
        g.wait(REBALANCE_MS // 10)
        g.heartbeat("a")
    assert g.synced(b).error is E.REBALANCE_IN_PROGRESS
    assert g.joined(g.join("b")).leader == "b"


# Rebalances


def test_a_new_member_starts_a_rebalance_all_must_join(two: Driver) -> None:
    c = two.join(new_id="c")
    assert two.group.state is S.PREPARING
    assert two.heartbeat("a") is E.REBALANCE_IN_PROGRESS
    assert two.commit("a") is E.NONE  # What was read before is still committed.
    two.join("a")
    assert c not in two.answers
    two.join("b")
    assert two.joined(c).generation == 2
    assert two.commit("a") is E.REBALANCE_IN_PROGRESS


def test_who_does_not_rejoin_in_time_is_dropped(two: Driver) -> None:
    a = two.join("a")
    for _ in range(12):
        two.wait(REBALANCE_MS // 12)
        two.heartbeat("b")
    assert [m for m, _, _ in two.joined(a).members] == ["a"]


def test_a_follower_that_rejoins_unchanged_disturbs_nobody(two: Driver) -> None:
    answer = two.joined(two.join("b"))
    assert (answer.error, answer.generation, answer.members) == (E.NONE, 1, ())
    assert two.group.state is S.STABLE


def test_a_leader_that_rejoins_wants_a_rebalance(two: Driver) -> None:
    two.join("a")
    assert two.group.state is S.PREPARING


@pytest.mark.parametrize("changed", [(("range", b"new"),), (*RANGE, ("rr", b""))])
def test_a_follower_with_new_metadata_starts_a_rebalance(
    two: Driver, changed: tuple[tuple[str, bytes], ...]
) -> None:
    two.join("b", protocols=changed)
    assert two.group.state is S.PREPARING


def test_a_join_whose_answer_was_lost_is_answered_again(g: Driver) -> None:
    first = g.join(new_id="a")
    g.wait(3000)
    again = g.join("a")
    assert g.joined(again) == g.joined(first)
    assert g.group.state is S.COMPLETING
    g.join("a", protocols=(("range", b"new"),))
    assert g.group.generation == 2


def test_a_join_on_a_new_connection_takes_the_place_of_the_old_one(two: Driver) -> None:
    old = two.join("b", protocols=(("range", b"new"),))
    new = two.join("b", protocols=(("range", b"new"),))
    assert two.joined(old).error is E.REBALANCE_IN_PROGRESS
    two.join("a")
    assert two.joined(new).error is E.NONE


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


def test_a_silent_member_is_dropped_after_its_session(two: Driver) -> None:
    two.wait(SESSION_MS - 1)
    assert two.heartbeat("a") is E.NONE
    two.wait(1)
    assert two.group.state is S.PREPARING
    assert two.heartbeat("b") is E.UNKNOWN_MEMBER_ID


def test_a_commit_keeps_the_session_alive(two: Driver) -> None:
    for _ in range(5):
        two.wait(SESSION_MS - 1)
        assert two.commit("a") is E.NONE
        assert two.heartbeat("b") is E.NONE


def test_who_waits_for_an_answer_need_not_send_heartbeats(two: Driver) -> None:
    a = two.join("a")
    for _ in range(5):
        two.wait(SESSION_MS - 1)
        assert two.heartbeat("b") is E.REBALANCE_IN_PROGRESS
    two.join("b")
    assert two.joined(a).error is E.NONE


# Commits without a group, and the end


def test_anybody_may_commit_to_an_empty_group(g: Driver) -> None:
    assert g.commit("", generation=-1) is E.NONE
    assert g.commit("", generation=3) is E.UNKNOWN_MEMBER_ID


def test_nobody_from_outside_commits_to_a_group_with_members(two: Driver) -> None:
    assert two.commit("", generation=-1) is E.UNKNOWN_MEMBER_ID
    assert two.commit("a", generation=-1) is E.ILLEGAL_GENERATION


def test_only_an_empty_group_is_removed(two: Driver) -> None:
    assert not two.group.is_idle()
    with pytest.raises(KeyError):
        two.group.remove()
    two.leave(("a", None), ("b", None))
    two.group.remove()
    assert two.group.state is S.DEAD


# Restarts


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


def test_generations_go_on_after_a_restart_of_an_empty_group(two: Driver) -> None:
    two.leave(("a", None), ("b", None))
    two.group = Group.restore(two.saved[-1], LIMITS, two.now_ms)
    assert two.group.state is S.EMPTY
    ticket = two.join(new_id="c")
    two.wait(3000)
    assert two.joined(ticket).generation == 3
