"""SyncGroup (key 14), versions 0-5.

- The leader sends every member's assignment; the others wait for it. In a stable group a member
  gets its assignment at once. A member that the leader left out gets an empty one.
- UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION; REBALANCE_IN_PROGRESS while members rejoin. Assignments of
  more than 1 MiB in all are UNKNOWN_SERVER_ERROR for every member, which joins again.
- From 3: static members (KIP-345).
- From 5: the protocol's type and name must be the group's, else INCONSISTENT_GROUP_PROTOCOL
  (KIP-559).
"""

from gateway.coordinator_context import CoordinatorContext
from smq.coordinator.group_events import Sync, SyncAnswer
from smq.model.errors import BrokerError, ErrorCode
from smq.security.acls import Operation, ResourceType
from smq.wire.generated.sync_group import SyncGroupRequest, SyncGroupResponse

PROTOCOL_FROM = 5


def handle(request: SyncGroupRequest, context: CoordinatorContext) -> SyncGroupResponse | None:
    """Take the leader's assignments, or wait for them."""
    refused = context.rights.error(Operation.READ, ResourceType.GROUP, request.group_id)
    if refused:
        return _respond(SyncAnswer(error=refused))
    if context.version >= PROTOCOL_FROM and None in {request.protocol_type, request.protocol_name}:
        return _respond(SyncAnswer(error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    event = Sync(
        ticket=context.ticket(_respond),
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments={each.member_id: each.assignment for each in request.assignments},
    )
    try:
        context.coordinator.groups.handle(request.group_id, event, context.now)
    except BrokerError as refusal:
        return _respond(SyncAnswer(error=refusal.code))
    return None


def _respond(answer: SyncAnswer) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=answer.error,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name,
        assignment=answer.assignment,
    )
