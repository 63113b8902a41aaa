"""ListPartitionReassignments (key 46), version 0 (KIP-455).

A partition stays on its log for life: no reassignment is ever under way, whatever is asked for.
"""

from gateway.context import ShardContext
from smq.model.errors import BrokerError
from smq.wire.generated.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


def handle(
    _request: ListPartitionReassignmentsRequest, _context: ShardContext
) -> ListPartitionReassignmentsResponse:
    """No reassignments."""
    return ListPartitionReassignmentsResponse(error_message=None)


def refuse(
    request: ListPartitionReassignmentsRequest, why: BrokerError
) -> ListPartitionReassignmentsResponse:
    """Tell nothing of each partition, as Kafka does."""
    return ListPartitionReassignmentsResponse(
        error_code=why.code,
        error_message=why.message,
        topics=[
            OngoingTopicReassignment(
                name=topic.name,
                partitions=[
                    OngoingPartitionReassignment(partition_index=index)
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ],
    )
