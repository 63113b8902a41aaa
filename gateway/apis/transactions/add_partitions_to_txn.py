"""AddPartitionsToTxn (key 24), versions 0-5.

- All partitions of a request (of a transaction from 4 on) join, or none: if one is
  UNKNOWN_TOPIC_OR_PARTITION, or TOPIC_AUTHORIZATION_FAILED since its topic is internal, the others
  are OPERATION_NOT_ATTEMPTED. A large request is handled in portions, each by this rule.
- Below 2 a fenced producer gets INVALID_PRODUCER_EPOCH.
- From 4, for brokers: several transactions at once, and `verify_only`, which checks that each
  partition belongs to the transaction; others are TRANSACTION_ABORTABLE (KIP-890).
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gateway.apis.transactions.said import said
from gateway.coordinator_context import CoordinatorContext
from smq.coordinator.transactions.decisions import ProducerEpoch
from smq.model.errors import BrokerError, ErrorCode
from smq.security.acls import Operation, ResourceType
from smq.wire.generated.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

KNOWS_FENCING_FROM, FOR_BROKERS_FROM = 2, 4


class _Place(NamedTuple):
    """A partition by its number, or why it can be in no transaction."""

    number: int
    refusal: ErrorCode = ErrorCode.NONE


_REFUSED = _Place(-1, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
_UNKNOWN = _Place(-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def handle(
    request: AddPartitionsToTxnRequest, context: CoordinatorContext
) -> AddPartitionsToTxnResponse:
    """Add partitions to transactions."""
    is_for_brokers = context.version >= FOR_BROKERS_FROM
    if is_for_brokers and not context.rights.asks_cluster(Operation.CLUSTER_ACTION):
        return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=each.transactional_id, topic_results=_results(each, context)
            )
            for each in request.transactions
        ]
    )


def _results(
    asked: AddPartitionsToTxnTransaction, context: CoordinatorContext
) -> list[AddPartitionsToTxnTopicResult]:
    found = [_places(topic, context) for topic in asked.topics]
    errors = _errors(asked, found, context)
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=errors[place]
                )
                for index, place in zip(topic.partitions, places, strict=True)
            ],
        )
        for topic, places in zip(asked.topics, found, strict=True)
    ]


def _places(asked: AddPartitionsToTxnTopic, context: CoordinatorContext) -> list[_Place]:
    """Of the partitions of a topic, in the order asked."""
    topic = context.coordinator.topics.catalog.find(asked.name)
    if not _may_write(asked.name, context) or (topic is not None and topic.is_internal):
        return [_REFUSED] * len(asked.partitions)
    numbers = topic.partition_numbers if topic is not None else ()
    return [
        _Place(numbers[index]) if 0 <= index < len(numbers) else _UNKNOWN
        for index in asked.partitions
    ]


def _may_write(name: str, context: CoordinatorContext) -> bool:
    """Whether a client may write to a topic; a broker may."""
    return context.version >= FOR_BROKERS_FROM or context.rights.asks_topic(Operation.WRITE, name)


def _errors(
    asked: AddPartitionsToTxnTransaction,
    found: Sequence[list[_Place]],
    context: CoordinatorContext,
) -> Mapping[_Place, ErrorCode]:
    """The error of each partition, refused ones included."""
    places = {place for of_topic in found for place in of_topic}
    name = asked.transactional_id
    if context.version < FOR_BROKERS_FROM and (
        refused := context.rights.error(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name)
    ):
        return dict.fromkeys(places, refused)
    if any(place.refusal for place in places):
        return {place: place.refusal or ErrorCode.OPERATION_NOT_ATTEMPTED for place in places}
    numbers = frozenset(place.number for place in places)
    transactions = context.coordinator.transactions
    producer = ProducerEpoch(asked.producer_id, asked.producer_epoch)
    try:
        if asked.verify_only:
            inside = transactions.verify(asked.transactional_id, producer).partitions
            outside = {place for place in places if place.number not in inside}
            errors = dict.fromkeys(places, ErrorCode.NONE)
            return errors | dict.fromkeys(outside, ErrorCode.TRANSACTION_ABORTABLE)
        if numbers:
            transactions.add(asked.transactional_id, producer, context.now, numbers=numbers)
    except BrokerError as refusal:
        knows_fencing = context.version >= KNOWS_FENCING_FROM
        return dict.fromkeys(places, said(refusal.code, knows_fencing=knows_fencing))
    return dict.fromkeys(places, ErrorCode.NONE)
