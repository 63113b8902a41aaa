"""The members of a group, its leader, and their common protocols."""

from collections.abc import Iterator

import pytest

from smq.coordinator.roster import REBALANCE_TIMEOUT_MS_MIN, Member, Roster
from smq.model.errors import BrokerError, ErrorCode


def member(
    member_id: str, *protocols: str, instance_id: str | None = None, rebalance_ms: int = 60_000
) -> Member:
    names = protocols or ("range",)
    known = tuple((name, name.encode()) for name in names)
    return Member(member_id, instance_id, "client", "/host", 10_000, rebalance_ms, b"", known)


@pytest.fixture
def roster() -> Iterator[Roster]:
    roster = Roster()
    yield roster
    roster.invariants()


def test_the_first_member_leads_and_the_next_one_after_it(roster: Roster) -> None:
    for name in "abc":
        roster.add(member(name))
    assert roster.leader == "a"
    roster.drop("a")
    assert roster.leader == "b"
    roster.drop("c")
    assert roster.leader == "b"
    roster.drop("b")
    assert roster.leader is None


def test_dropping_a_stranger_changes_nothing(roster: Roster) -> None:
    roster.add(member("a"))
    assert roster.drop("x") is None
    assert "a" in roster


def test_only_who_joined_can_be_elected(roster: Roster) -> None:
    for name in "abc":
        roster.add(member(name))
    assert not roster.elect_leader()
    roster.awaits_join(roster.members["c"], 1)
    assert roster.elect_leader()
    assert roster.leader == "c"


def test_the_vote_goes_to_what_most_prefer_of_what_all_know(roster: Roster) -> None:
    roster.add(member("a", "sticky", "range", "rr"))
    roster.add(member("b", "rr", "range"))
    roster.add(member("c", "range", "rr"))
    assert roster.common_protocols() == {"range", "rr"}
    assert roster.vote() == "range"


def test_a_static_member_keeps_its_place_and_the_lead_under_a_new_id(roster: Roster) -> None:
    roster.add(member("a", instance_id="i"))
    roster.add(member("b"))
    roster.rename(roster.members["a"], "a2")
    assert [each.member_id for each in roster] == ["a2", "b"]
    assert roster.leader == "a2"
    found = roster.of_instance("i")
    assert found is not None
    assert found.member_id == "a2"


@pytest.mark.parametrize(
    ("member_id", "instance_id", "error"),
    [
        ("x", None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("x", "i", ErrorCode.FENCED_INSTANCE_ID),
        ("a", "other", ErrorCode.UNKNOWN_MEMBER_ID),
        ("b", "i", ErrorCode.FENCED_INSTANCE_ID),
        ("b", "other", ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_member_id_that_contradicts_its_instance_id_is_refused(
    roster: Roster, member_id: str, instance_id: str | None, error: ErrorCode
) -> None:
    roster.add(member("a", instance_id="i"))
    roster.add(member("b"))
    with pytest.raises(BrokerError) as refusal:
        roster.find(member_id, instance_id)
    assert refusal.value.code is error


def test_a_static_member_may_leave_its_instance_unsaid(roster: Roster) -> None:
    roster.add(member("a", instance_id="i"))
    assert roster.find("a", None) is roster.find("a", "i")


def test_the_slowest_member_sets_the_rebalance_timeout(roster: Roster) -> None:
    assert roster.rebalance_timeout_ms() == REBALANCE_TIMEOUT_MS_MIN
    roster.add(member("a", rebalance_ms=5))
    assert roster.rebalance_timeout_ms() == REBALANCE_TIMEOUT_MS_MIN
    roster.add(member("b", rebalance_ms=900))
    roster.add(member("c", rebalance_ms=800))
    assert roster.rebalance_timeout_ms() == 900


def test_a_member_comes_back_as_it_was_stored() -> None:
    one = member("a", "range", "rr", instance_id="i")
    one.assignment = b"\x00\xff"
    one.saved = one.stored()
    assert Member.restore(one.stored()) == one
