"""DescribeQuorum (key 55), versions 0-2 (KIP-595, KIP-836, KIP-853).

The cluster's metadata has no quorum: the coordinator alone keeps it. Tools that ask for
__cluster_metadata see one voter, the node that clients take for the controller, and the catalog's
version as the log end. If a request names any other partition, all of its partitions get
UNKNOWN_TOPIC_OR_PARTITION.
"""

from gateway.apis.metadata import controller_id
from gateway.context import ShardContext
from smq.model.errors import BrokerError, ErrorCode
from smq.wire.generated.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)

CLUSTER_METADATA = "__cluster_metadata"
WORDS_FROM = 2
LISTENER = "PLAINTEXT"


def handle(request: DescribeQuorumRequest, context: ShardContext) -> DescribeQuorumResponse:
    """Describe one voter, which leads."""
    asked = [
        (topic.topic_name, each.partition_index)
        for topic in request.topics
        for each in topic.partitions
    ]
    is_known = asked == [(CLUSTER_METADATA, 0)]
    topics = [
        TopicData(
            topic_name=topic.topic_name,
            partitions=[
                _voter(context) if is_known else _unknown(each.partition_index)
                for each in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return DescribeQuorumResponse(
        error_message="", topics=topics, nodes=_nodes(context) if is_known else ()
    )


def refuse(_request: DescribeQuorumRequest, why: BrokerError) -> DescribeQuorumResponse:
    """Describe nothing."""
    return DescribeQuorumResponse(error_code=why.code, error_message=why.message)


def _voter(context: ShardContext) -> PartitionData:
    leader, shard = controller_id(context.nodes), context.shard
    voter = ReplicaState(
        replica_id=leader,
        log_end_offset=shard.catalog_version,
        last_fetch_timestamp=context.now.wall_ms,
        last_caught_up_timestamp=context.now.wall_ms,
    )
    return PartitionData(
        leader_id=leader,
        leader_epoch=context.nodes[0].generation,
        high_watermark=shard.catalog_version,
        error_message="",
        current_voters=[voter],
    )


def _unknown(index: int) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        error_message="This server does not host this topic-partition.",
    )


def _nodes(context: ShardContext) -> list[Node]:
    controller = context.nodes[0]
    listener = Listener(name=LISTENER, host=controller.host, port=controller.port)
    return [Node(node_id=controller.id, listeners=[listener])]
