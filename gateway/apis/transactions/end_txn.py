"""EndTxn (key 26), versions 0-5.

- Answered when the decision is stored, before the markers are written; a repeated one is answered
  the same (smq.coordinator.transactions.endings).
- Below 2 a fenced producer gets INVALID_PRODUCER_EPOCH.
- TRANSACTION_ABORTABLE, below 4 INVALID_TXN_STATE, which clients know: a commit that was aborted,
  since a log may have lost some of its records.
- From 5 (KIP-890): the epoch rises with each end, and the answer carries the producer's new id and
  epoch.
"""

from gateway.apis.transactions.said import said
from gateway.coordinator_context import CoordinatorContext
from smq.coordinator.transactions.decisions import End, ProducerEpoch
from smq.coordinator.transactions.endings import EndAnswer
from smq.model.errors import BrokerError, ErrorCode
from smq.security.acls import Operation, ResourceType
from smq.wire.generated.end_txn import EndTxnRequest, EndTxnResponse

KNOWS_FENCING_FROM, KNOWS_ABORTABLE_FROM, BUMPS_FROM = 2, 4, 5


def handle(request: EndTxnRequest, context: CoordinatorContext) -> EndTxnResponse | None:
    """Commit or abort a transaction."""

    def respond(answer: EndAnswer) -> EndTxnResponse:
        return EndTxnResponse(
            error_code=_said(answer.error, context.version),
            producer_id=answer.producer.id,
            producer_epoch=answer.producer.epoch,
        )

    producer = ProducerEpoch(request.producer_id, request.producer_epoch)
    end = End(producer, request.committed, bumps=context.version >= BUMPS_FROM)
    ticket = context.ticket(respond)
    transactional_id = request.transactional_id
    try:
        context.rights.check(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        context.coordinator.transactions.end(transactional_id, end, ticket, context.now)
    except BrokerError as refusal:
        return respond(EndAnswer(refusal.code))
    return None


def _said(error: ErrorCode, version: int) -> ErrorCode:
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < KNOWS_ABORTABLE_FROM:
        return ErrorCode.INVALID_TXN_STATE
    return said(error, knows_fencing=version >= KNOWS_FENCING_FROM)
