"""Sessions: heartbeats, and when a member is dropped."""

import pytest

from smq.coordinator.group_events import JoinAnswer
from smq.coordinator.group_states import GroupState
from smq.model.errors import BrokerError, ErrorCode
from tests.coordinator.group_driver import SESSION_MS, Driver

E, S = ErrorCode, GroupState


def test_a_member_id_that_is_never_used_is_forgotten_after_a_session(g: Driver) -> None:
    g.join(new_id="a", must_know_member_id=True)
    g.wait(SESSION_MS)
    assert g.group.is_idle()
    with pytest.raises(BrokerError, match="UNKNOWN_MEMBER_ID"):
        g.join("a")


def test_a_new_member_that_is_not_answered_for_five_minutes_is_thought_gone(g: Driver) -> None:
    g.stable("a")
    ticket = g.join(new_id="b", rebalance_timeout_ms=3_600_000)
    for _ in range(100):
        g.wait(3000)
        g.heartbeat("a")
    assert g.joined(ticket) == JoinAnswer(error=E.UNKNOWN_MEMBER_ID)


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


def test_a_member_waiting_for_its_join_answer_needs_no_heartbeats(two: Driver) -> None:
    a = two.join("a")
    for _ in range(5):
        two.wait(SESSION_MS - 1)
        assert two.heartbeat("b") is E.REBALANCE_IN_PROGRESS
    two.join("b")
    assert two.joined(a).error is E.NONE
