"""DescribeCluster (key 60), versions 0-2.

- Cluster id, controller id and the nodes, as Metadata gives them.
- From 1: the endpoint type; only brokers have one here, controllers are UNSUPPORTED_ENDPOINT_TYPE
  as from any Kafka broker (KIP-919).
- From 2: include_fenced_brokers; no node is ever fenced (KIP-1073).
"""

from gateway.apis.metadata import NO_OPERATIONS_ASKED, controller_id
from gateway.context import ShardContext
from smq.wire.generated.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS = 1
MISMATCHED_ENDPOINT_TYPE = 114


def handle(request: DescribeClusterRequest, context: ShardContext) -> DescribeClusterResponse:
    """The nodes."""
    if request.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=MISMATCHED_ENDPOINT_TYPE,
            error_message="The request was sent to an endpoint of the wrong type: ask for brokers.",
            endpoint_type=BROKERS,
        )
    return DescribeClusterResponse(
        endpoint_type=BROKERS,
        cluster_id=context.shard.catalog.cluster_id,
        controller_id=controller_id(context.shard.nodes()),
        brokers=[
            DescribeClusterBroker(broker_id=node.id, host=node.host, port=node.port, rack=None)
            for node in context.shard.nodes()
        ],
        cluster_authorized_operations=NO_OPERATIONS_ASKED,
    )
