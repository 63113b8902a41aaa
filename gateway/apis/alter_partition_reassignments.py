"""AlterPartitionReassignments (key 45), versions 0-1 (KIP-455, KIP-860).

A partition stays on its log for life. Assigning it to the broker that leads it succeeds at once;
any other broker is INVALID_REPLICA_ASSIGNMENT. Cancelling (null replicas) gets
NO_REASSIGNMENT_IN_PROGRESS.
"""

from gateway.context import ShardContext
from smq.model.catalog import Topic
from smq.model.errors import BrokerError, ErrorCode
from smq.wire.generated.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


def handle(
    request: AlterPartitionReassignmentsRequest, context: ShardContext
) -> AlterPartitionReassignmentsResponse:
    """Report for each partition whether it is already on the requested node."""
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None if request.topics else "",  # As Kafka answers.
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[_answer(topic.name, each, context) for each in topic.partitions],
            )
            for topic in request.topics
        ],
    )


def refuse(
    request: AlterPartitionReassignmentsRequest, why: BrokerError
) -> AlterPartitionReassignmentsResponse:
    """Refuse each partition."""
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=why.code,
        error_message=why.message,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    ReassignablePartitionResponse(
                        partition_index=each.partition_index,
                        error_code=why.code,
                        error_message=why.message,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _answer(
    name: str, asked: ReassignablePartition, context: ShardContext
) -> ReassignablePartitionResponse:
    answer = ReassignablePartitionResponse(
        partition_index=asked.partition_index, error_message=None
    )
    try:
        _check(context.shard.catalog.find(name), asked, context)
    except BrokerError as refusal:
        answer.error_code, answer.error_message = refusal.code, refusal.message
    return answer


def _check(topic: Topic | None, asked: ReassignablePartition, context: ShardContext) -> None:
    index, replicas, nodes = asked.partition_index, asked.replicas, context.nodes
    if topic is None or not 0 <= index < topic.partition_count:
        raise BrokerError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "This server does not host this topic-partition.",
        )
    if replicas is None:
        raise BrokerError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    leader = topic.node(index, nodes).id
    if list(replicas) != [leader]:
        raise BrokerError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Partitions do not move: this one stays on broker {leader}, its only replica.",
        )
