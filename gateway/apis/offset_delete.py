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
from smq.security.acls import Operation, ResourceType
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
    catalog, rights = context.coordinator.topics.catalog, context.rights
    refused = {
        topic.name: rights.error(Operation.READ, ResourceType.TOPIC, topic.name)
        for topic in request.topics
    }
    places = [
        NamedPartition(catalog.find(topic.name), each.partition_index)
        for topic in request.topics
        for each in topic.partitions
        if not refused[topic.name]
    ]
    try:
        rights.check(Operation.DELETE, ResourceType.GROUP, request.group_id)
        for errors in context.coordinator.offsets.delete(request.group_id, places):
            is_end = bool(errors) or not places
            yield OffsetDeleteResponse(topics=_rows(request, refused, errors) if is_end else ())
    except BrokerError as refusal:
        yield OffsetDeleteResponse(error_code=refusal.code)


def _rows(
    request: OffsetDeleteRequest, refused: dict[str, ErrorCode], errors: list[ErrorCode]
) -> list[OffsetDeleteResponseTopic]:
    code = iter(errors)
    return unknown_first(
        OffsetDeleteResponseTopic(
            name=topic.name,
            partitions=[
                OffsetDeleteResponsePartition(
                    partition_index=each.partition_index,
                    error_code=refused[topic.name] or next(code),
                )
                for each in topic.partitions
            ],
        )
        for topic in request.topics
        if topic.partitions
    )
