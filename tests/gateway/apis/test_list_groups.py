"""ListGroups: all nodes together list each group once; filters by state and type."""

import pytest

from smq.model.errors import ErrorCode
from smq.wire.generated.leave_group import LeaveGroupRequest, MemberIdentity
from smq.wire.generated.list_groups import ListGroupsRequest
from tests.gateway.coordinator_bench import CoordinatorBench
from tests.gateway.groups import stable_member


def listed(bench: CoordinatorBench, version: int = 5, **fields: list[str]) -> list[str]:
    """The groups that all nodes together list."""
    found = []
    for node_id in (1, 2):
        answer = bench.ask("ListGroups", version, ListGroupsRequest(**fields), node_id=node_id)
        assert answer.error_code == ErrorCode.NONE
        found += [group.group_id for group in answer.groups]
    return sorted(found)


@pytest.mark.parametrize("version", range(6))
def test_all_nodes_together_list_each_group_once(bench: CoordinatorBench, version: int) -> None:
    names = sorted(f"group-{number}" for number in range(12))
    for name in names:
        stable_member(bench, name)
    assert listed(bench, version) == names
    [first, *_] = bench.ask("ListGroups", version, ListGroupsRequest()).groups
    assert first.protocol_type == "consumer"
    assert first.group_state in ({"Stable", "Empty"} if version >= 4 else {""})
    assert first.group_type == ("classic" if version >= 5 else "")


def test_filters_choose_by_state_and_type_in_any_case(bench: CoordinatorBench) -> None:
    member_id = stable_member(bench, "empty")
    members = [MemberIdentity(member_id=member_id)]
    bench.ask("LeaveGroup", 5, LeaveGroupRequest(group_id="empty", members=members))
    stable_member(bench, "stable")
    assert listed(bench, states_filter=["STABLE"]) == ["stable"]
    assert listed(bench, states_filter=["Empty", "Dead"]) == ["empty"]
    assert listed(bench, states_filter=["nonsense"]) == []
    assert listed(bench, types_filter=["Classic"]) == ["empty", "stable"]
    assert listed(bench, types_filter=["consumer"]) == []
    assert listed(bench, states_filter=["empty"], types_filter=["classic"]) == ["empty"]
