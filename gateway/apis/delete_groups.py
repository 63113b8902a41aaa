"""DeleteGroups (key 42), versions 0-2 (KIP-229).

- Deletes an empty group with its offsets. NON_EMPTY_GROUP: it has members.
- GROUP_ID_NOT_FOUND: there is no such group.
"""

from collections.abc import Iterator

from gateway.coordinator_context import CoordinatorContext
from smq.model.errors import BrokerError, ErrorCode
from smq.security.acls import Operation, ResourceType
from smq.wire.generated.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


def handle(
    request: DeleteGroupsRequest, context: CoordinatorContext
) -> Iterator[DeleteGroupsResponse]:
    """Delete each group. One with many offsets takes some turns, and parts of the answer without
    rows."""
    deleting = context.coordinator.groups.deleting
    results: list[DeletableGroupResult] = []
    for group_id in request.groups_names:
        error = _delete(group_id, context)
        while error is ErrorCode.NONE and group_id in deleting:
            yield DeleteGroupsResponse(results=results)
            results = []
        results.append(DeletableGroupResult(group_id=group_id, error_code=error))
    yield DeleteGroupsResponse(results=results)


def _delete(group_id: str, context: CoordinatorContext) -> ErrorCode:
    try:
        context.rights.check(Operation.DELETE, ResourceType.GROUP, group_id)
        context.coordinator.offsets.delete_group(group_id)
    except BrokerError as refusal:
        return refusal.code
    return ErrorCode.NONE
