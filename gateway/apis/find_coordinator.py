"""FindCoordinator (key 10), versions 0-6.

- A group's coordinator is the node that Metadata names as the leader of the group's partition of
  __consumer_offsets, found by a hash of its id. Any node would do: each relays.
- From 1: key type. A transactional id (1) has a partition of __transaction_state by the same hash.
  Any other type is INVALID_REQUEST.
- From 6: a share group's partition (2, KIP-932). There are none here, which only those are told who
  may act for the cluster, as by a Kafka without share groups.
- From 4: several keys at once, each with its answer (KIP-699).

Left out: share groups (KIP-932).
"""

from gateway.coordinator_context import CoordinatorContext
from gateway.java_hash import java_hash
from smq.model.catalog import INTERNAL_PARTITIONS, Node, node_of_log
from smq.model.errors import BrokerError, ErrorCode
from smq.security.acls import Operation, ResourceType
from smq.security.rights import refusal
from smq.wire.generated.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

BATCHES_FROM, SHARE_FROM = 4, 6
GROUP, TRANSACTION, SHARE = range(3)


def handle(request: FindCoordinatorRequest, context: CoordinatorContext) -> FindCoordinatorResponse:
    """Name a node for each key."""
    found = [_find(key, request.key_type, context) for key in request.coordinator_keys]
    return FindCoordinatorResponse(coordinators=found)


def _find(key: str, key_type: int, context: CoordinatorContext) -> Coordinator:
    if key_type == SHARE:
        return _of_share_group(key, context)
    if key_type not in {GROUP, TRANSACTION}:
        return _none(key, ErrorCode.INVALID_REQUEST, f"There are no keys of type {key_type} here.")
    refused = _refusal(key, key_type, context)
    if refused is not None:
        sentence = "" if context.version >= BATCHES_FROM else refused.message
        return _none(key, refused.code, sentence or "")
    node = coordinator_of(key, context.nodes)
    said = "" if context.version >= BATCHES_FROM else "NONE"  # As Kafka does.
    return Coordinator(key=key, node_id=node.id, host=node.host, port=node.port, error_message=said)


def _of_share_group(key: str, context: CoordinatorContext) -> Coordinator:
    may = context.version < SHARE_FROM or context.rights.asks_cluster(Operation.CLUSTER_ACTION)
    if not may:
        refused = refusal(ResourceType.CLUSTER)
        return _none(key, refused.code, refused.message or "")
    sentence = "" if context.version >= BATCHES_FROM else "There are no share groups here."
    return _none(key, ErrorCode.INVALID_REQUEST, sentence)


def _refusal(key: str, key_type: int, context: CoordinatorContext) -> BrokerError | None:
    kind = ResourceType.GROUP if key_type == GROUP else ResourceType.TRANSACTIONAL_ID
    return None if context.rights.asks(Operation.DESCRIBE, kind, key) else refusal(kind)


def coordinator_of(key: str, nodes: list[Node]) -> Node:
    """The node to name as the coordinator of a group or a transactional id."""
    return node_of_log(java_hash(key) % INTERNAL_PARTITIONS, nodes)


def _none(key: str, error: ErrorCode, sentence: str) -> Coordinator:
    return Coordinator(
        key=key, node_id=-1, host="", port=-1, error_code=error, error_message=sentence
    )
