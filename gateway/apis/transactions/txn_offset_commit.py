"""TxnOffsetCommit (key 28), versions 0-5. The rules are in smq.coordinator.offsets.

- Errors of the transaction or the group stand on every partition; UNKNOWN_TOPIC_OR_PARTITION and
  OFFSET_METADATA_TOO_LARGE only on the partition concerned.
- A fenced producer gets INVALID_PRODUCER_EPOCH in every version, as in Kafka, and an unknown group
  is ILLEGAL_GENERATION.
- From 3: the group member is checked, as in OffsetCommit; without one, any client may commit
  (KIP-447).
- Below 5 the group has joined the transaction by AddOffsetsToTxn, or it is INVALID_TXN_STATE, from
  4 on TRANSACTION_ABORTABLE. From 5 it joins by this request (KIP-890).
"""

from gateway.apis.unknown_first import unknown_first
from gateway.coordinator_context import CoordinatorContext
from smq.coordinator.group_events import Commit
from smq.coordinator.offsets import Offered, Within
from smq.coordinator.transactions.decisions import ProducerEpoch
from smq.model.errors import ErrorCode
from smq.security.acls import Operation, ResourceType
from smq.wire.generated.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

ABORTABLE_FROM, JOINS_FROM = 4, 5


def handle(request: TxnOffsetCommitRequest, context: CoordinatorContext) -> TxnOffsetCommitResponse:
    """Keep a group's offsets pending until the transaction ends."""
    txn = Within(
        request.transactional_id,
        ProducerEpoch(request.producer_id, request.producer_epoch),
        joins=context.version >= JOINS_FROM,
    )
    by = Commit(
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        is_transactional=True,
    )
    catalog, rights = context.coordinator.topics.catalog, context.rights
    of_all = rights.error(
        Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id
    ) or rights.error(Operation.READ, ResourceType.GROUP, request.group_id)
    refused = {
        topic.name: of_all or rights.error(Operation.READ, ResourceType.TOPIC, topic.name)
        for topic in request.topics
    }
    offered = [
        Offered(
            catalog.find(topic.name),
            each.partition_index,
            each.committed_offset,
            each.committed_leader_epoch,
            each.committed_metadata,
        )
        for topic in request.topics
        for each in topic.partitions
        if not refused[topic.name]
    ]
    errors = (
        context.coordinator.offsets.commit(request.group_id, by, offered, context.now, txn=txn)
        if not of_all
        else []
    )
    code = iter(errors)
    return TxnOffsetCommitResponse(
        topics=unknown_first(
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=each.partition_index,
                        error_code=refused[topic.name] or _said(next(code), context.version),
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        )
    )


def _said(error: ErrorCode, version: int) -> ErrorCode:
    """The error as this API says it."""
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.GROUP_ID_NOT_FOUND:
        return ErrorCode.ILLEGAL_GENERATION
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_FROM:
        return ErrorCode.INVALID_TXN_STATE
    return error
