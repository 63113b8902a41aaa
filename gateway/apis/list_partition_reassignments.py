"""ListPartitionReassignments (key 46), version 0 (KIP-455).

A partition stays on its log for life: no reassignment is ever under way, whatever is asked for.
"""

from gateway.context import ShardContext
from smq.wire.generated.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


def handle(
    _request: ListPartitionReassignmentsRequest, _context: ShardContext
) -> ListPartitionReassignmentsResponse:
    """No reassignments."""
    return ListPartitionReassignmentsResponse(error_message=None)
