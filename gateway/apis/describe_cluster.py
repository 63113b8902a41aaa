"""DescribeCluster (key 60), versions 0-2.

- Cluster id, controller id and the nodes, as Metadata gives them.
- From 1: the endpoint type; asked for controllers we answer MISMATCHED_ENDPOINT_TYPE, as any Kafka
  broker does, and UNSUPPORTED_ENDPOINT_TYPE for a type that is none (KIP-919).
- From 2: include_fenced_brokers; no node is ever fenced (KIP-1073).
"""

from gateway.apis.metadata import NO_OPERATIONS_ASKED, controller_id
from gateway.context import ShardContext
from smq.model.errors import ErrorCode
from smq.wire.generated.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS, CONTROLLERS = 1, 2


def handle(request: DescribeClusterRequest, context: ShardContext) -> DescribeClusterResponse:
    """The nodes."""
    if request.endpoint_type != BROKERS:
        is_known = request.endpoint_type == CONTROLLERS
        return DescribeClusterResponse(
            error_code=(
                ErrorCode.MISMATCHED_ENDPOINT_TYPE
                if is_known
                else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
            ),
            error_message="The request was sent to an endpoint of the wrong type: ask for brokers.",
            endpoint_type=BROKERS,
        )
    return DescribeClusterResponse(
        endpoint_type=BROKERS,
        cluster_id=context.shard.catalog.cluster_id,
        controller_id=controller_id(context.nodes),
        brokers=[
            DescribeClusterBroker(broker_id=node.id, host=node.host, port=node.port, rack=node.rack)
            for node in context.nodes
        ],
        cluster_authorized_operations=(
            context.rights.cluster_operations()
            if request.include_cluster_authorized_operations
            else NO_OPERATIONS_ASKED
        ),
    )
