"""OffsetCommit (key 8), versions 2-10. The rules are in smq.coordinator.offsets.

- An error of the group goes to every partition; UNKNOWN_TOPIC_OR_PARTITION and
  OFFSET_METADATA_TOO_LARGE go to the partition they concern.
- Offset, leader epoch and metadata come back as they are committed; null metadata as "".
- 2-4: the client's retention time is honoured. From 6: leader epoch (KIP-320). From 7: static
  members (KIP-345).
- From 9: an unknown group is GROUP_ID_NOT_FOUND, before it was ILLEGAL_GENERATION (KIP-848).
- From 10: topics by id; an unknown one is UNKNOWN_TOPIC_ID.
"""

from gateway.apis.unknown_first import unknown_first
from gateway.coordinator_context import CoordinatorContext
from smq.coordinator.group_events import Commit
from smq.coordinator.offsets import Offered
from smq.model.catalog import Topic
from smq.model.errors import ErrorCode
from smq.security.acls import Operation, ResourceType
from smq.wire.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

GROUP_NOT_FOUND_FROM = 9
IDS_FROM = 10


def handle(request: OffsetCommitRequest, context: CoordinatorContext) -> OffsetCommitResponse:
    """Commit offsets of a group."""
    # Leave out a topic without partitions, as Kafka does.
    topics = [(each, _find(each, context)) for each in request.topics if each.partitions]
    no_group = context.rights.error(Operation.READ, ResourceType.GROUP, request.group_id)
    refused = {id(asked): no_group or _refusal(asked, topic, context) for asked, topic in topics}
    offered = [
        Offered(
            topic,
            each.partition_index,
            each.committed_offset,
            each.committed_leader_epoch,
            each.committed_metadata,
        )
        for asked, topic in topics
        for each in asked.partitions
        if not refused[id(asked)]
    ]
    by = Commit(request.member_id, request.group_instance_id, request.generation_id_or_member_epoch)
    errors = (
        []
        if no_group
        else context.coordinator.offsets.commit(
            request.group_id, by, offered, context.now, retention_ms=request.retention_time_ms
        )
    )
    error_of = iter(errors)
    return OffsetCommitResponse(
        topics=unknown_first(
            OffsetCommitResponseTopic(
                name=asked.name,
                topic_id=asked.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=each.partition_index,
                        error_code=refused[id(asked)]
                        or _said(next(error_of), topic, context.version),
                    )
                    for each in asked.partitions
                ],
            )
            for asked, topic in topics
        )
    )


def _find(asked: OffsetCommitRequestTopic, context: CoordinatorContext) -> Topic | None:
    catalog = context.coordinator.topics.catalog
    if context.version >= IDS_FROM:
        return catalog.find_by_id(asked.topic_id)
    return catalog.find(asked.name)


def _refusal(
    asked: OffsetCommitRequestTopic, topic: Topic | None, context: CoordinatorContext
) -> ErrorCode:
    """Why this client may not commit offsets of a topic; of an unknown id nothing can be said."""
    if topic is None and context.version >= IDS_FROM:
        return ErrorCode.NONE
    name = asked.name if topic is None else topic.name
    return context.rights.error(Operation.READ, ResourceType.TOPIC, name)


def _said(error: ErrorCode, topic: Topic | None, version: int) -> ErrorCode:
    """The error as this version says it."""
    if not error:
        return error
    if topic is None and version >= IDS_FROM:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if error is ErrorCode.GROUP_ID_NOT_FOUND and version < GROUP_NOT_FOUND_FROM:
        return ErrorCode.ILLEGAL_GENERATION
    return error
