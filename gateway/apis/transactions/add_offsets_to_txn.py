"""AddOffsetsToTxn (key 25), versions 0-4.

- The group's offsets may be committed with the transaction. Below 2 a fenced producer gets
  INVALID_PRODUCER_EPOCH.
"""

from gateway.apis.transactions.said import said
from gateway.coordinator_context import CoordinatorContext
from smq.coordinator.transactions.decisions import ProducerEpoch
from smq.model.errors import BrokerError, ErrorCode
from smq.security.acls import Operation, ResourceType
from smq.wire.generated.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

KNOWS_FENCING_FROM = 2


def handle(request: AddOffsetsToTxnRequest, context: CoordinatorContext) -> AddOffsetsToTxnResponse:
    """Add a group's offsets to a transaction."""
    error, rights = ErrorCode.NONE, context.rights
    try:
        rights.check(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        rights.check(Operation.READ, ResourceType.GROUP, request.group_id)
        context.coordinator.transactions.add(
            request.transactional_id,
            ProducerEpoch(request.producer_id, request.producer_epoch),
            context.now,
            groups=frozenset({request.group_id}),
        )
    except BrokerError as refusal:
        error = said(refusal.code, knows_fencing=context.version >= KNOWS_FENCING_FROM)
    return AddOffsetsToTxnResponse(error_code=error)
