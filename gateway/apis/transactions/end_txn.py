"""EndTxn (key 26), versions 0-5.

- Answered when every marker is written; Kafka answers earlier
  (smq.coordinator.transactions.endings).
- Below 2 a fenced producer gets INVALID_PRODUCER_EPOCH.
- From 5 (KIP-890): the epoch rises with each end, and the answer carries the producer's new id and
  epoch.
"""

from gateway.apis.transactions.said import said
from gateway.coordinator_context import CoordinatorContext
from smq.coordinator.transactions.decisions import End, ProducerEpoch
from smq.coordinator.transactions.endings import EndAnswer
from smq.model.errors import BrokerError
from smq.wire.generated.end_txn import EndTxnRequest, EndTxnResponse

KNOWS_FENCING_FROM, BUMPS_FROM = 2, 5


def handle(request: EndTxnRequest, context: CoordinatorContext) -> EndTxnResponse | None:
    """Commit or abort a transaction."""

    def respond(answer: EndAnswer) -> EndTxnResponse:
        knows_fencing = context.version >= KNOWS_FENCING_FROM
        return EndTxnResponse(
            error_code=said(answer.error, knows_fencing=knows_fencing),
            producer_id=answer.producer.id,
            producer_epoch=answer.producer.epoch,
        )

    producer = ProducerEpoch(request.producer_id, request.producer_epoch)
    end = End(producer, request.committed, bumps=context.version >= BUMPS_FROM)
    ticket = context.ticket(respond)
    try:
        context.coordinator.transactions.end(request.transactional_id, end, ticket, context.now)
    except BrokerError as refusal:
        return respond(EndAnswer(refusal.code))
    return None
