"""JoinGroup: who may join, and the answer to each kind of member."""

from typing import Any

import pytest

from smq.coordinator.group import Group
from smq.coordinator.group_events import JoinAnswer
from smq.coordinator.group_limits import GroupLimits
from smq.coordinator.group_states import GroupState
from smq.model.errors import BrokerError, ErrorCode
from tests.coordinator.group_driver import RANGE, Driver

E, S = ErrorCode, GroupState


def test_a_dynamic_member_gets_its_id_first(g: Driver) -> None:
    ticket = g.join(new_id="a", must_know_member_id=True)
    assert g.joined(ticket) == JoinAnswer(error=E.MEMBER_ID_REQUIRED, member_id="a")
    assert g.group.state is S.EMPTY
    assert not g.group.is_idle()
    ticket = g.join("a")
    g.wait(3000)
    assert g.joined(ticket).error is E.NONE


def test_a_static_member_joins_without_getting_an_id_first(g: Driver) -> None:
    ticket = g.join(new_id="a", instance_id="i", must_know_member_id=True)
    g.wait(3000)
    assert g.joined(ticket).members == (("a", "i", b"r"),)


def test_an_id_given_to_a_dynamic_member_is_not_for_a_static_one(g: Driver) -> None:
    g.join(new_id="a", must_know_member_id=True)
    with pytest.raises(BrokerError, match="UNKNOWN_MEMBER_ID"):
        g.join("a", instance_id="i")


@pytest.mark.parametrize(
    "wrong",
    [{"protocols": ()}, {"protocol_type": ""}, {"protocols": (("a", b"1"), ("a", b"2"))}],
    ids=["no protocols", "no protocol type", "one named twice"],
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


def test_a_follower_that_rejoins_unchanged_causes_no_rebalance(two: Driver) -> None:
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
