"""LeaveGroup: members go one by one or many at once, each with an error of its own."""

import pytest

from smq.coordinator.group_states import GroupState
from smq.model.errors import ErrorCode
from smq.wire.generated.leave_group import LeaveGroupRequest, MemberIdentity
from tests.gateway.coordinator_bench import CoordinatorBench
from tests.gateway.groups import stable_member

E = ErrorCode


@pytest.mark.parametrize("version", range(6))
def test_a_member_leaves(bench: CoordinatorBench, version: int) -> None:
    member_id = stable_member(bench)
    request = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=member_id)])
    answer = bench.ask("LeaveGroup", version, request)
    assert answer.error_code == E.NONE
    assert [m.error_code for m in answer.members] == [E.NONE]
    assert bench.coordinator.groups.find("g").state is GroupState.EMPTY


@pytest.mark.parametrize(
    ("group_id", "error"),
    [("g", E.UNKNOWN_MEMBER_ID), ("none", E.UNKNOWN_MEMBER_ID), ("", E.INVALID_GROUP_ID)],
)
def test_before_3_any_error_is_the_only_members(
    bench: CoordinatorBench, group_id: str, error: ErrorCode
) -> None:
    stable_member(bench)
    members = [MemberIdentity(member_id="stranger")]
    request = LeaveGroupRequest(group_id=group_id, members=members)
    [member] = bench.ask("LeaveGroup", 2, request).members
    assert member.error_code == error


def test_each_member_of_a_batch_has_an_error_of_its_own(bench: CoordinatorBench) -> None:
    stable_member(bench, group_instance_id="i")
    members = [
        MemberIdentity(member_id="stranger"),
        MemberIdentity(member_id="", group_instance_id="j"),
        MemberIdentity(member_id="old", group_instance_id="i"),
        MemberIdentity(member_id="", group_instance_id="i"),
    ]
    answer = bench.ask("LeaveGroup", 3, LeaveGroupRequest(group_id="g", members=members))
    assert answer.error_code == E.NONE
    assert [(m.member_id, m.group_instance_id, m.error_code) for m in answer.members] == [
        ("stranger", None, E.UNKNOWN_MEMBER_ID),
        ("", "j", E.UNKNOWN_MEMBER_ID),
        ("old", "i", E.FENCED_INSTANCE_ID),
        ("", "i", E.NONE),
    ]


def test_in_a_group_that_is_not_there_every_member_is_unknown(bench: CoordinatorBench) -> None:
    members = [MemberIdentity(member_id="a"), MemberIdentity(member_id="b")]
    answer = bench.ask("LeaveGroup", 5, LeaveGroupRequest(group_id="none", members=members))
    assert answer.error_code == E.NONE
    assert [m.error_code for m in answer.members] == [E.UNKNOWN_MEMBER_ID] * 2


def test_a_group_needs_a_name(bench: CoordinatorBench) -> None:
    request = LeaveGroupRequest(group_id="", members=[MemberIdentity(member_id="a")])
    answer = bench.ask("LeaveGroup", 5, request)
    assert (answer.error_code, answer.members) == (E.INVALID_GROUP_ID, [])
