"""TxnOffsetCommit (key 28), versions 0-5.

- The offsets stay pending until the transaction ends, and are committed or dropped with it.
- Errors of the transaction or the group stand on every partition; UNKNOWN_TOPIC_OR_PARTITION and
  OFFSET_METADATA_TOO_LARGE only on the partition concerned.
- A fenced producer gets INVALID_PRODUCER_EPOCH in every version, as in Kafka.
- From 3: the group member is checked, as in OffsetCommit; without one, any client may commit
  (KIP-447).
- Below 5 the group has joined the transaction by AddOffsetsToTxn, or it is INVALID_TXN_STATE, from
  4 on TRANSACTION_ABORTABLE. From 5 it joins by this request (KIP-890).
"""

from gateway.apis.unknown_first import unknown_first
from gateway.coordinator_context import CoordinatorContext
from smq.coordinator.group_events import Commit
from smq.coordinator.transactions.decisions import ProducerEpoch
from smq.model.errors import BrokerError, ErrorCode
from smq.store.rows import CommittedOffset
from smq.wire.generated.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

ABORTABLE_FROM, JOINS_FROM = 4, 5


def handle(request: TxnOffsetCommitRequest, context: CoordinatorContext) -> TxnOffsetCommitResponse:
    """Keep a group's offsets pending until the transaction ends."""
    refusal = _refusal(request, context)
    taken: dict[int, CommittedOffset] = {}
    response = TxnOffsetCommitResponse(
        topics=unknown_first(
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=each.partition_index,
                        error_code=_take(topic.name, each, refusal, taken, context),
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        )
    )
    if taken:
        transactions = context.coordinator.transactions
        transactions.put_offsets(request.transactional_id, request.group_id, taken)
    return response


def _refusal(request: TxnOffsetCommitRequest, context: CoordinatorContext) -> ErrorCode:
    """The error of the transaction or the group, or NONE."""
    try:
        _check_transaction(request, context)
        _check_group(request, context)
    except BrokerError as refusal:
        if refusal.code is ErrorCode.PRODUCER_FENCED:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        return refusal.code
    return ErrorCode.NONE


def _check_transaction(request: TxnOffsetCommitRequest, context: CoordinatorContext) -> None:
    transactions = context.coordinator.transactions
    producer = ProducerEpoch(request.producer_id, request.producer_epoch)
    if not request.group_id:
        raise BrokerError(ErrorCode.INVALID_GROUP_ID)
    if context.version >= JOINS_FROM:
        groups = frozenset({request.group_id})
        transactions.add(request.transactional_id, producer, context.now, groups=groups)
    elif request.group_id not in transactions.verify(request.transactional_id, producer).groups:
        abortable = context.version >= ABORTABLE_FROM
        raise BrokerError(
            ErrorCode.TRANSACTION_ABORTABLE if abortable else ErrorCode.INVALID_TXN_STATE
        )


def _check_group(request: TxnOffsetCommitRequest, context: CoordinatorContext) -> None:
    event = Commit(
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        is_transactional=True,
    )
    try:
        context.coordinator.groups.handle(request.group_id, event, context.now)
    except BrokerError as refusal:
        if refusal.code is ErrorCode.GROUP_ID_NOT_FOUND:
            raise BrokerError(ErrorCode.ILLEGAL_GENERATION) from refusal
        raise


def _take(
    name: str,
    asked: TxnOffsetCommitRequestPartition,
    refusal: ErrorCode,
    taken: dict[int, CommittedOffset],
    context: CoordinatorContext,
) -> ErrorCode:
    """Take one partition's offset or refuse it."""
    topic = context.coordinator.topics.catalog.find(name)
    if topic is None or not 0 <= asked.partition_index < topic.partition_count:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if refusal is not ErrorCode.NONE:
        return refusal
    metadata = asked.committed_metadata or ""
    if len(metadata) > context.coordinator.config.offset_metadata_max_bytes:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    if topic.is_internal:  # It is always empty: there is nothing to remember.
        return ErrorCode.NONE
    taken[topic.partition_numbers[asked.partition_index]] = CommittedOffset(
        asked.committed_offset, asked.committed_leader_epoch, metadata, context.now.monotonic_ms
    )
    return ErrorCode.NONE
