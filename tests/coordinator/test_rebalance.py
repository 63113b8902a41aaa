"""Rebalances: the members awaited, the deadlines, and the assignments."""

from smq.coordinator.group_events import JoinAnswer, TimePasses
from smq.coordinator.group_limits import GroupLimits
from smq.coordinator.group_states import GroupState
from smq.model.errors import ErrorCode
from tests.coordinator.group_driver import REBALANCE_MS, SESSION_MS, Driver

E, S = ErrorCode, GroupState
NEWER = (("range", b"newer"),)  # A member that joins with other metadata starts a rebalance.


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


def test_a_rebalance_waits_for_a_member_that_was_given_its_id(two: Driver) -> None:
    two.join(new_id="c", must_know_member_id=True)
    assert two.group.state is S.STABLE
    a, b = two.join("a"), two.join("b")
    assert a not in two.answers
    two.join("c")
    assert len(two.joined(a).members) == 3
    assert two.joined(b).generation == 2


def test_a_rebalance_goes_on_when_a_given_id_expires_or_leaves(two: Driver) -> None:
    for forget in (lambda: two.wait(SESSION_MS), lambda: two.leave(("c", None))):
        two.join(new_id="c", must_know_member_id=True)
        a, _ = two.join("a"), two.join("b")
        forget()
        assert len(two.joined(a).members) == 2


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


def test_a_late_sync_gets_the_assignment_at_once(g: Driver) -> None:
    g.join(new_id="a")
    g.join(new_id="b")
    g.wait(6000)
    g.sync("a", {"b": b"all"})
    assert g.synced(g.sync("b")).assignment == b"all"


def test_a_member_the_leader_forgot_is_assigned_nothing(g: Driver) -> None:
    g.join(new_id="a")
    g.wait(3000)
    assert g.synced(g.sync("a", {"stranger": b"x"})).assignment == b""


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


def test_a_leader_that_never_syncs_is_dropped_and_the_others_rebalance(g: Driver) -> None:
    g.join(new_id="a")
    g.join(new_id="b")
    g.wait(6000)
    b = g.sync("b")
    for _ in range(10):
        g.wait(REBALANCE_MS // 10)
        g.heartbeat("a")
    assert g.synced(b).error is E.REBALANCE_IN_PROGRESS
    assert g.joined(g.join("b")).leader == "b"


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


def test_a_member_that_does_not_rejoin_in_time_is_dropped(two: Driver) -> None:
    a = two.join("a")
    for _ in range(12):
        two.wait(REBALANCE_MS // 12)
        two.heartbeat("b")
    assert [m for m, _, _ in two.joined(a).members] == ["a"]


def test_members_whose_sessions_end_as_one_that_is_gone_completes_their_rebalance_stay(
    g: Driver,
) -> None:
    """data fault 36: due members were listed, dropping the gone one answered and restarted the
    others, and then the list went on and dropped those too."""
    names = ["gone", "a", "b"]
    g.stable(*names)
    tickets = [g.join(name, protocols=NEWER) for name in names[1:]]
    g.now_ms += SESSION_MS  # All sessions end in one wake-up: the process was stopped.
    g.handle(TimePasses())
    assert [g.joined(ticket).generation for ticket in tickets] == [2] * 2
    assert g.group.roster.members.keys() == set(names[1:])
    g.now_ms += 1
    synced = [g.sync("b"), g.sync("a")]
    assert {g.synced(ticket).error for ticket in synced} == {E.NONE}


def test_several_gone_members_and_an_unused_id_leave_in_one_wake_up(g: Driver) -> None:
    """data fault 36, several gone at once, one of them static, beside an id that nobody took."""
    g.stable("gone", "static", "a", "b", instances={"static": "i"})
    g.join(new_id="told", must_know_member_id=True)
    tickets = [g.join("a", protocols=NEWER), g.join("b", protocols=NEWER)]
    g.now_ms += SESSION_MS
    g.handle(TimePasses())
    assert [g.joined(ticket).error for ticket in tickets] == [E.NONE, E.NONE]
    assert g.group.roster.members.keys() == {"a", "b"}


def test_a_sync_or_join_after_a_stall_counts_before_sessions_expire(g: Driver) -> None:
    """data fault 36: the process was stopped over the end of the sessions, and requests that are
    answered at once come before the deadlines are looked at."""
    g.stable("leader", "synced", "joined")
    g.now_ms += SESSION_MS
    g.heartbeat("leader")
    assert g.synced(g.sync("synced")).error is E.NONE
    assert g.joined(g.join("joined")).error is E.NONE
    g.handle(TimePasses())
    assert g.group.roster.members.keys() == {"leader", "synced", "joined"}
    assert g.group.state is S.STABLE


def test_members_that_wait_to_sync_stay_when_the_gone_leaders_session_ends(g: Driver) -> None:
    """data fault 36, in the other wait: the end of the leader's session answers the others."""
    for name in ("leader", "a", "b"):
        g.join(new_id=name)
    g.wait(9000)
    waiting = [g.sync("a"), g.sync("b")]
    g.now_ms += SESSION_MS
    g.handle(TimePasses())
    assert [g.synced(each).error for each in waiting] == [E.REBALANCE_IN_PROGRESS] * 2
    assert g.group.roster.members.keys() == {"a", "b"}
    tickets = [g.join("a"), g.join("b")]
    assert [g.joined(each).error for each in tickets] == [E.NONE, E.NONE]
