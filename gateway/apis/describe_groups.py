"""DescribeGroups (key 15), versions 0-6.

- State, protocol type and members of each group; metadata and the protocol's name when the group
  is stable. While it rebalances the members have the assignments of before, as in Kafka.
- Once an answer has told DESCRIBED_BYTES_MAX of members, its further groups are
  COORDINATOR_LOAD_IN_PROGRESS: clients ask for those again. The first is always told.
- An unknown group is "Dead" without an error, from 6 on GROUP_ID_NOT_FOUND (KIP-1043).
- From 3: the operations a client is allowed, if it asks (KIP-430).
- From 4: group instance ids (KIP-345).
"""

from gateway.coordinator_context import CoordinatorContext
from smq.coordinator.group import Group
from smq.coordinator.group_states import GroupState
from smq.coordinator.roster import Member
from smq.model.errors import BrokerError, ErrorCode
from smq.security.acls import Operation, ResourceType
from smq.wire.generated.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

GROUP_NOT_FOUND_FROM = 6
DESCRIBED_BYTES_MAX = 4 * 1024 * 1024  # A request may name a large group 10,000 times.
MEMBER_BYTES = 100  # Beside what a member says: its row in an answer.


def handle(request: DescribeGroupsRequest, context: CoordinatorContext) -> DescribeGroupsResponse:
    """Describe each group."""
    groups = [_describe(group_id, context) for group_id in request.groups]
    for group in groups:
        is_there = group.error_code == ErrorCode.NONE
        if request.include_authorized_operations and is_there:
            operations = context.rights.operations(ResourceType.GROUP, group.group_id)
            group.authorized_operations = operations
    return DescribeGroupsResponse(groups=groups)


def _describe(group_id: str, context: CoordinatorContext) -> DescribedGroup:
    try:
        context.rights.check(Operation.DESCRIBE, ResourceType.GROUP, group_id)
        group = context.coordinator.groups.find(group_id)
    except BrokerError as refusal:
        if refusal.code is not ErrorCode.GROUP_ID_NOT_FOUND:  # Or it is being deleted.
            return DescribedGroup(error_code=refusal.code, group_id=group_id)
        said = context.version >= GROUP_NOT_FOUND_FROM
        return DescribedGroup(
            error_code=refusal.code if said else ErrorCode.NONE,
            error_message=refusal.message if said else None,
            group_id=group_id,
            group_state=GroupState.DEAD.value,
        )
    if context.told.size >= DESCRIBED_BYTES_MAX:
        later = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return DescribedGroup(error_code=later, group_id=group_id)
    stable = group.state is GroupState.STABLE
    members = [_member(each, group, stable=stable) for each in group.roster]
    context.told.size += sum(
        MEMBER_BYTES + len(each.member_metadata) + len(each.member_assignment) for each in members
    )
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if stable else "",
        members=members,
    )


def _member(member: Member, group: Group, *, stable: bool) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata(group.protocol_name) if stable else b"",
        member_assignment=member.assignment,
    )
