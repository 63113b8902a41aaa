"""Heartbeat (key 12), versions 0-4.

- Keeps the member's session alive; REBALANCE_IN_PROGRESS tells it to join again.
- UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, INVALID_GROUP_ID for an empty group id.
- From 3: static members; a fenced one gets FENCED_INSTANCE_ID (KIP-345).
"""

from gateway.coordinator_context import CoordinatorContext
from smq.coordinator.group_events import Heartbeat
from smq.model.errors import BrokerError
from smq.security.acls import Operation, ResourceType
from smq.wire.generated.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(request: HeartbeatRequest, context: CoordinatorContext) -> HeartbeatResponse:
    """Restart a member's session timeout."""
    event = Heartbeat(request.member_id, request.group_instance_id, request.generation_id)
    try:
        context.rights.check(Operation.READ, ResourceType.GROUP, request.group_id)
        context.coordinator.groups.handle(request.group_id, event, context.now)
    except BrokerError as refusal:
        return HeartbeatResponse(error_code=refusal.code)
    return HeartbeatResponse()
