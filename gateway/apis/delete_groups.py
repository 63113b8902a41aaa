"""DeleteGroups (key 42), versions 0-2 (KIP-229).

- Deletes an empty group with its offsets. NON_EMPTY_GROUP: it has members.
- GROUP_ID_NOT_FOUND: there is no such group.
"""

from gateway.coordinator_context import CoordinatorContext
from smq.model.errors import BrokerError, ErrorCode
from smq.wire.generated.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


def handle(request: DeleteGroupsRequest, context: CoordinatorContext) -> DeleteGroupsResponse:
    """Delete each group."""
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=group_id, error_code=_delete(group_id, context))
            for group_id in request.groups_names
        ]
    )


def _delete(group_id: str, context: CoordinatorContext) -> ErrorCode:
    try:
        context.coordinator.groups.delete(group_id)
    except BrokerError as refusal:
        return refusal.code
    return ErrorCode.NONE
