"""LeaveGroup (key 13), versions 0-5.

- The members go at once, and the others rebalance; each has an error of its own.
- Before 3 one member, whose error is the answer's. From 3 several, static ones also by group
  instance id alone, which is how an administrator removes them (KIP-345).
- In an unknown group every member is UNKNOWN_MEMBER_ID.
- From 5: a reason, which we do not keep (KIP-800).
"""

from collections.abc import Sequence

from gateway.coordinator_context import CoordinatorContext
from smq.coordinator.group_events import Leave, LeaveAnswer
from smq.model.errors import BrokerError, ErrorCode
from smq.security.acls import Operation, ResourceType
from smq.wire.generated.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)

BATCHES_FROM = 3


def handle(request: LeaveGroupRequest, context: CoordinatorContext) -> LeaveGroupResponse | None:
    """Let members go."""
    leaving = request.members

    def respond(answer: LeaveAnswer) -> LeaveGroupResponse:
        return LeaveGroupResponse(members=_members(leaving, answer.errors))

    event = Leave(
        context.ticket(respond),
        tuple((each.member_id, each.group_instance_id) for each in leaving),
    )
    try:
        context.rights.check(Operation.READ, ResourceType.GROUP, request.group_id)
        context.coordinator.groups.handle(request.group_id, event, context.now)
    except BrokerError as refusal:
        if refusal.code == ErrorCode.UNKNOWN_MEMBER_ID or context.version < BATCHES_FROM:
            return respond(LeaveAnswer((refusal.code,) * len(leaving)))
        return LeaveGroupResponse(error_code=refusal.code)
    return None


def _members(
    leaving: Sequence[MemberIdentity], errors: Sequence[ErrorCode]
) -> list[MemberResponse]:
    return [
        MemberResponse(
            member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=error
        )
        for each, error in zip(leaving, errors, strict=True)
    ]
