"""DescribeGroups: everything about a stable group; the members of one that rebalances."""

import pytest

from gateway.apis.describe_groups import DESCRIBED_BYTES_MAX
from smq.model.errors import ErrorCode
from smq.wire.generated.describe_groups import DescribedGroupMember, DescribeGroupsRequest
from smq.wire.generated.join_group import JoinGroupRequestProtocol
from tests.gateway.coordinator_bench import CoordinatorBench
from tests.gateway.groups import join_request, stable_member

E = ErrorCode


@pytest.mark.parametrize("version", range(7))
def test_a_stable_group_is_described_with_members_and_assignments(
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


def test_a_rebalancing_group_is_described_without_metadata_but_with_the_last_assignments(
    bench: CoordinatorBench,
) -> None:
    """data fault 37, of answers: Apache Kafka keeps them, and its tools show who had what."""
    stable_member(bench)
    bench.ask("JoinGroup", 3, join_request())
    [group] = bench.ask("DescribeGroups", 5, DescribeGroupsRequest(groups=["g"])).groups
    assert (group.group_state, group.protocol_data) == ("PreparingRebalance", "")
    assert [m.member_metadata for m in group.members] == [b"", b""]
    assert [m.member_assignment for m in group.members] == [b"work", b""]


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


def test_groups_beyond_some_bytes_of_members_are_to_be_asked_for_again(
    bench: CoordinatorBench,
) -> None:
    """data fault 12, of answers: some hundred bytes told gigabytes."""
    large = [JoinGroupRequestProtocol(name="range", metadata=bytes(DESCRIBED_BYTES_MAX // 8))]
    for name in ("a", "b"):
        stable_member(bench, name, protocols=large)
    names = ["a", "b"] * 1000
    groups = bench.ask("DescribeGroups", 5, DescribeGroupsRequest(groups=names)).groups
    assert [each.group_id for each in groups] == names
    told = [each for each in groups if each.members]
    assert [each.error_code for each in told] == [E.NONE] * 8
    assert {each.error_code for each in groups[8:]} == {E.COORDINATOR_LOAD_IN_PROGRESS}
    later = bench.ask("DescribeGroups", 5, DescribeGroupsRequest(groups=["a"])).groups
    assert len(later[0].members) == 1
