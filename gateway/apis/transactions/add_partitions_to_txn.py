"""AddPartitionsToTxn (key 24), versions 0-5.

- All partitions of a request (of a transaction from 4 on) join, or none: if one is
  UNKNOWN_TOPIC_OR_PARTITION, the others are OPERATION_NOT_ATTEMPTED. A large request is handled in
  portions, each by this rule.
- Below 2 a fenced producer gets INVALID_PRODUCER_EPOCH.
- From 4, for brokers: several transactions at once, and `verify_only`, which checks that each
  partition belongs to the transaction; others are TRANSACTION_ABORTABLE (KIP-890).
"""

from collections.abc import Mapping, Sequence

from gateway.apis.transactions.said import said
from gateway.coordinator_context import CoordinatorContext
from smq.coordinator.transactions.decisions import ProducerEpoch
from smq.model.errors import BrokerError, ErrorCode
from smq.wire.generated.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

KNOWS_FENCING_FROM, BATCHES_FROM = 2, 4
Numbers = list[int | None]
"""Of the partitions of a topic, in the order asked; None: there is no such partition."""


def handle(
    request: AddPartitionsToTxnRequest, context: CoordinatorContext
) -> AddPartitionsToTxnResponse:
    """Add partitions to transactions."""
    if context.version >= BATCHES_FROM:
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(
                    transactional_id=each.transactional_id, topic_results=_results(each, context)
                )
                for each in request.transactions
            ]
        )
    only = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(only, context))


def _results(
    asked: AddPartitionsToTxnTransaction, context: CoordinatorContext
) -> list[AddPartitionsToTxnTopicResult]:
    found = [_numbers(topic, context) for topic in asked.topics]
    errors = _errors(asked, found, context)
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=errors[number]
                )
                for index, number in zip(topic.partitions, numbers, strict=True)
            ],
        )
        for topic, numbers in zip(asked.topics, found, strict=True)
    ]


def _numbers(asked: AddPartitionsToTxnTopic, context: CoordinatorContext) -> Numbers:
    topic = context.coordinator.topics.catalog.by_name.get(asked.name)
    numbers = topic.partition_numbers if topic is not None else ()
    return [numbers[index] if 0 <= index < len(numbers) else None for index in asked.partitions]


def _errors(
    asked: AddPartitionsToTxnTransaction, found: Sequence[Numbers], context: CoordinatorContext
) -> Mapping[int | None, ErrorCode]:
    """The error of each partition, unknown ones included."""
    numbers = {number for of_topic in found for number in of_topic}
    there = frozenset(number for number in numbers if number is not None)
    errors: dict[int | None, ErrorCode] = dict.fromkeys(numbers, ErrorCode.NONE)
    if None in numbers:
        errors = dict.fromkeys(numbers, ErrorCode.OPERATION_NOT_ATTEMPTED)
        return errors | {None: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    transactions = context.coordinator.transactions
    producer = ProducerEpoch(asked.producer_id, asked.producer_epoch)
    try:
        if asked.verify_only:
            inside = transactions.verify(asked.transactional_id, producer).partitions
            return errors | dict.fromkeys(there - inside, ErrorCode.TRANSACTION_ABORTABLE)
        if there:
            transactions.add(asked.transactional_id, producer, context.now, numbers=there)
    except BrokerError as refusal:
        knows_fencing = context.version >= KNOWS_FENCING_FROM
        return dict.fromkeys(numbers, said(refusal.code, knows_fencing=knows_fencing))
    return errors
