"""InitProducerId (key 22), versions 0-5.

- Without a transactional id: a new producer id, with epoch 0. The client's own id and
  epoch (3, KIP-360) change nothing, as in Kafka: an idempotent producer bumps its epoch by itself;
  but an id without an epoch, or the reverse, is INVALID_REQUEST.
- An empty transactional id is INVALID_REQUEST.
- With one: its producer id with the next epoch, which fences the former producer. An open
  transaction is aborted first: CONCURRENT_TRANSACTIONS until that is done.
- A timeout that is not above 0, or above transaction.max.timeout.ms, is
  INVALID_TRANSACTION_TIMEOUT.
- From 3: a producer that sends its id and epoch gets its next epoch, or the same again if it missed
  the answer, or if its transaction was aborted and no other producer has begun; any other is fenced
  (KIP-360): below 4 INVALID_PRODUCER_EPOCH, else PRODUCER_FENCED.
"""

from gateway.apis.transactions.said import said
from gateway.coordinator_context import CoordinatorContext
from smq.coordinator.transactions.decisions import ProducerEpoch
from smq.model.errors import BrokerError, ErrorCode
from smq.security.acls import Operation, ResourceType
from smq.security.rights import Rights, refusal
from smq.wire.generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

NONE = -1
KNOWS_FENCING_FROM = 4


def handle(request: InitProducerIdRequest, context: CoordinatorContext) -> InitProducerIdResponse:
    """Give a producer its id and epoch."""
    try:
        producer = _begun(request, context)
    except BrokerError as refusal:
        error = said(refusal.code, knows_fencing=context.version >= KNOWS_FENCING_FROM)
        return InitProducerIdResponse(error_code=error, producer_epoch=NONE)
    return InitProducerIdResponse(producer_id=producer.id, producer_epoch=producer.epoch)


def _begun(request: InitProducerIdRequest, context: CoordinatorContext) -> ProducerEpoch:
    brought = ProducerEpoch(request.producer_id, request.producer_epoch)
    half = (brought.id == NONE) != (brought.epoch == NONE)
    if half or request.transactional_id == "":
        raise BrokerError(ErrorCode.INVALID_REQUEST)
    _check_rights(request.transactional_id, context.rights)
    if request.transactional_id is None:
        return ProducerEpoch(context.coordinator.producer_ids.next(), 0)
    return context.coordinator.transactions.begin(
        request.transactional_id,
        request.transaction_timeout_ms,
        None if brought.id == NONE else brought,
        context.now,
    )


def _check_rights(transactional_id: str | None, rights: Rights) -> None:
    """Raises BrokerError. Who may write to some topic may do so idempotently (KIP-679)."""
    if transactional_id is not None:
        rights.check(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    elif not (
        rights.cluster(Operation.IDEMPOTENT_WRITE)
        or rights.any_topic(Operation.WRITE)
        or rights.asks_cluster(Operation.IDEMPOTENT_WRITE)
    ):
        raise refusal(ResourceType.CLUSTER)
