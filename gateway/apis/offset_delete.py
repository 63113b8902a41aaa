"""OffsetDelete (key 47), version 0 (KIP-496). The rules are in smq.coordinator.offsets.

- Deletes offsets of partitions, committed ones and those that wait for a transaction's end; a
  partition without one is no error.
- A group with members must be a consumer group, and no member may read the topic: otherwise
  NON_EMPTY_GROUP or GROUP_SUBSCRIBED_TO_TOPIC.
- GROUP_ID_NOT_FOUND for an unknown group, INVALID_GROUP_ID for ""; UNKNOWN_TOPIC_OR_PARTITION for
  an unknown topic or partition.
"""

from collections.abc import Iterator

from gateway.apis.unknown_first import unknown_first
from gateway.coordinator_context import CoordinatorContext
from smq.coordinator.offsets import NamedPartition
from smq.model.errors import BrokerError, ErrorCode
from smq.wire.generated.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def handle(
    request: OffsetDeleteRequest, context: CoordinatorContext
) -> Iterator[OffsetDeleteResponse]:
    """Delete offsets of a group. While many are pending, parts of the answer have no rows."""
    catalog = context.coordinator.topics.catalog
    places = [
        NamedPartition(catalog.find(topic.name), each.partition_index)
        for topic in request.topics
        for each in topic.partitions
    ]
    try:
        for errors in context.coordinator.offsets.delete(request.group_id, places):
            yield OffsetDeleteResponse(topics=_rows(request, errors) if errors else ())
    except BrokerError as refusal:
        yield OffsetDeleteResponse(error_code=refusal.code)


def _rows(request: OffsetDeleteRequest, errors: list[ErrorCode]) -> list[OffsetDeleteResponseTopic]:
    code = iter(errors)
    return unknown_first(
        OffsetDeleteResponseTopic(
            name=topic.name,
            partitions=[
                OffsetDeleteResponsePartition(
                    partition_index=each.partition_index, error_code=next(code)
                )
                for each in topic.partitions
            ],
        )
        for topic in request.topics
        if topic.partitions
    )
