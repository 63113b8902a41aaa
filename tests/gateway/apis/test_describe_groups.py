"""DescribeGroups: everything about a stable group; the members of one that rebalances."""

import pytest

from smq.model.errors import ErrorCode
from smq.wire.generated.describe_groups import DescribedGroupMember, DescribeGroupsRequest
from tests.gateway.coordinator_bench import CoordinatorBench
from tests.gateway.groups import join_request, stable_member

E = ErrorCode


@pytest.mark.parametrize("version", range(7))
def test_a_stable_group_is_told_with_members_and_assignments(
    bench: CoordinatorBench, version: int
) -> None:
    member_id = stable_member(bench, group_instance_id="i")
    answer = bench.ask("DescribeGroups", version, DescribeGroupsRequest(groups=["g"]))
    [group] = answer.groups
    assert (group.error_code, group.error_message) == (E.NONE, None)
    assert (group.group_state, group.protocol_type) == ("Stable", "consumer")
    assert group.protocol_data == "range"
    assert group.authorized_operations == -2147483648
    assert group.members == [
        DescribedGroupMember(
            member_id=member_id,
            group_instance_id="i" if version >= 4 else None,
            client_id="client",
            client_host="/10.0.0.9",
            member_metadata=b"meta",
            member_assignment=b"work",
        )
    ]


def test_while_it_rebalances_metadata_and_assignments_are_not_told(
    bench: CoordinatorBench,
) -> None:
    stable_member(bench)
    bench.ask("JoinGroup", 3, join_request())
    [group] = bench.ask("DescribeGroups", 5, DescribeGroupsRequest(groups=["g"])).groups
    assert (group.group_state, group.protocol_data) == ("PreparingRebalance", "")
    assert [m.member_metadata for m in group.members] == [b"", b""]
    assert [m.member_assignment for m in group.members] == [b"", b""]


@pytest.mark.parametrize(
    ("version", "error"), [(0, E.NONE), (5, E.NONE), (6, E.GROUP_ID_NOT_FOUND)]
)
def test_a_group_that_is_not_there_is_dead(
    bench: CoordinatorBench, version: int, error: ErrorCode
) -> None:
    [group] = bench.ask("DescribeGroups", version, DescribeGroupsRequest(groups=["x"])).groups
    assert (group.error_code, group.group_state, group.members) == (error, "Dead", [])
    assert group.error_message == ("Group x not found." if error else None)


def test_a_client_may_do_everything_while_there_are_no_acls(bench: CoordinatorBench) -> None:
    request = DescribeGroupsRequest(groups=["x"], include_authorized_operations=True)
    [group] = bench.ask("DescribeGroups", 3, request).groups
    assert group.authorized_operations == 0b1101_0100_1000  # As Apache Kafka 4.3.1 without ACLs.
