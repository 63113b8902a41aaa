"""DescribeTransactions (key 65), version 0 (KIP-664).

- State, timeout, producer, when the transaction began and the partitions that wait for a marker;
  a group whose offsets it commits is one of `__consumer_offsets`, by Kafka's rule.
- A name that comes twice is answered once.
- An unknown transactional id is TRANSACTIONAL_ID_NOT_FOUND, an empty one INVALID_REQUEST.
"""

from collections import defaultdict
from collections.abc import Iterator

from gateway.coordinator_context import CoordinatorContext
from gateway.java_hash import java_hash
from smq.model.errors import ErrorCode
from smq.security.acls import Operation, ResourceType
from smq.store.rows import StoredTransaction
from smq.wire.generated.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)

OFFSETS_TOPIC = "__consumer_offsets"
OFFSETS_PARTITIONS = 50  # As Kafka has by default.


PART_PARTITIONS = 20_000  # Of the transactions in a part: some milliseconds.


def handle(
    request: DescribeTransactionsRequest, context: CoordinatorContext
) -> Iterator[DescribeTransactionsResponse]:
    """Describe each transactional id, in parts."""
    names = [
        name for name in dict.fromkeys(request.transactional_ids) if name not in context.described
    ]
    context.described.update(dict.fromkeys(names))
    part: list[TransactionState] = []
    partitions = 0
    for name in names:
        part.append(_describe(name, context))
        partitions += sum(len(topic.partitions) for topic in part[-1].topics)
        if partitions >= PART_PARTITIONS:
            yield DescribeTransactionsResponse(transaction_states=part)
            part, partitions = [], 0
    yield DescribeTransactionsResponse(transaction_states=part)


def _describe(transactional_id: str, context: CoordinatorContext) -> TransactionState:
    kind = ResourceType.TRANSACTIONAL_ID
    if refused := context.rights.error(Operation.DESCRIBE, kind, transactional_id):
        return TransactionState(transactional_id=transactional_id, error_code=refused)
    txn = context.coordinator.transactions.get(transactional_id)
    if txn is None:
        unknown = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        error = unknown if transactional_id else ErrorCode.INVALID_REQUEST
        return TransactionState(transactional_id=transactional_id, error_code=error)
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=txn.state,
        transaction_timeout_ms=txn.timeout_ms,
        transaction_start_time_ms=_start_time_ms(txn, context),
        producer_id=txn.producer_id,
        producer_epoch=txn.epoch,
        topics=_topics(txn, context),
    )


def _start_time_ms(txn: StoredTransaction, context: CoordinatorContext) -> int:
    return context.now.wall_of(txn.started_ms) if txn.started_ms >= 0 else -1


def _topics(txn: StoredTransaction, context: CoordinatorContext) -> list[TopicData]:
    places = context.coordinator.topics.places
    found = defaultdict[str, set[int]](set)
    for number in txn.partitions & places.keys():
        topic, partition = places[number]
        found[topic.name].add(partition)
    for group_id in txn.groups:
        found[OFFSETS_TOPIC].add(java_hash(group_id) % OFFSETS_PARTITIONS)
    return [
        TopicData(topic=name, partitions=sorted(found[name]))
        for name in sorted(found)
        if context.rights.topic(Operation.DESCRIBE, name)
    ]
