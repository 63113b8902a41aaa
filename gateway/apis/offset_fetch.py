"""OffsetFetch (key 9), versions 1-10. The rules are in smq.coordinator.offsets.

- Returns a group's committed offsets. A partition without one, an unknown topic and an unknown
  group get offset -1, leader epoch -1, metadata "" and no error.
- A partition with metadata is answered once, however often a group names it.
- From 2: null topics mean every offset of the group. From 5: leader epochs (KIP-320).
- From 7: if stable offsets are required, those pending in a transaction are UNSTABLE_OFFSET_COMMIT
  (KIP-447).
- From 8: several groups at once (KIP-709); one whose every offset is requested is answered once,
  however often it is named. From 9: member id and epoch, of groups of the consumer
  protocol only (KIP-848).
- From 10: topics by id; an unknown one is UNKNOWN_TOPIC_ID.
"""

from collections.abc import Iterator
from itertools import groupby

from gateway.coordinator_context import CoordinatorContext
from smq.coordinator.offsets import UNDECIDED
from smq.model.catalog import Topic
from smq.model.errors import BrokerError, ErrorCode
from smq.security.acls import Operation, ResourceType
from smq.store.rows import CommittedOffset
from smq.wire.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

ERRORS_FROM = 2
IDS_FROM = 10
NOWHERE = -1  # As partitions of internal topics, which have no offsets.
NOTHING = CommittedOffset(-1, -1, "", 0)


def handle(
    request: OffsetFetchRequest, context: CoordinatorContext
) -> Iterator[OffsetFetchResponse]:
    """The offsets of each group: one part for several groups whose partitions are named, and one
    for each page of the others."""
    named, wants_stable = list[OffsetFetchResponseGroup](), request.require_stable
    for asked in request.groups:
        if asked.topics is not None:
            named += _group(asked, context, wants_stable=wants_stable)
            continue
        if asked.group_id in context.described:
            continue
        context.described[asked.group_id] = None
        if named:
            yield OffsetFetchResponse(groups=named)
            named = []
        for page in _group(asked, context, wants_stable=wants_stable):
            yield OffsetFetchResponse(groups=[page])
    if named or not request.groups:
        yield OffsetFetchResponse(groups=named)


def _group(
    asked: OffsetFetchRequestGroup, context: CoordinatorContext, *, wants_stable: bool
) -> Iterator[OffsetFetchResponseGroup]:
    """The requested offsets, or all committed ones page by page."""
    offsets, group_id = context.coordinator.offsets, asked.group_id
    try:
        context.rights.check(Operation.DESCRIBE, ResourceType.GROUP, group_id)
        if asked.topics is None:
            for page in offsets.pages(group_id, stable=wants_stable):
                yield OffsetFetchResponseGroup(group_id=group_id, topics=_all(page, context))
            return
        numbers = {number for each in asked.topics for number in _numbers(each, context)}
        committed = offsets.fetch(group_id, numbers, stable=wants_stable)
        topics = [_topic(group_id, each, committed, context) for each in asked.topics]
        yield OffsetFetchResponseGroup(group_id=group_id, topics=topics)
    except BrokerError as refusal:
        yield _refused(asked, refusal.code, context)


def _refused(
    asked: OffsetFetchRequestGroup, error: ErrorCode, context: CoordinatorContext
) -> OffsetFetchResponseGroup:
    """An error of the group, which the oldest version says of each partition."""
    topics = list[OffsetFetchResponseTopics]()
    for topic in (asked.topics or ()) if context.version < ERRORS_FROM else ():
        rows = [_partition(index, NOTHING, error) for index in topic.partition_indexes]
        topics.append(OffsetFetchResponseTopics(name=topic.name, partitions=rows))
    return OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics, error_code=error)


def _numbers(asked: OffsetFetchRequestTopics, context: CoordinatorContext) -> list[int]:
    """The number of each requested partition; NOWHERE if there is none for this client."""
    topic, wanted = _find(asked, context), asked.partition_indexes
    numbers = topic.partition_numbers if topic is not None else ()
    if _refusal(asked, topic, context):
        numbers = ()
    return [numbers[index] if 0 <= index < len(numbers) else NOWHERE for index in wanted]


def _find(asked: OffsetFetchRequestTopics, context: CoordinatorContext) -> Topic | None:
    catalog = context.coordinator.topics.catalog
    if context.version >= IDS_FROM:
        return catalog.find_by_id(asked.topic_id)
    return catalog.find(asked.name)


def _refusal(
    asked: OffsetFetchRequestTopics, topic: Topic | None, context: CoordinatorContext
) -> ErrorCode:
    """Why there is nothing to tell of a topic."""
    if topic is None and context.version >= IDS_FROM:
        return ErrorCode.UNKNOWN_TOPIC_ID
    name = asked.name if topic is None else topic.name
    return context.rights.error(Operation.DESCRIBE, ResourceType.TOPIC, name)


def _all(
    committed: dict[int, CommittedOffset], context: CoordinatorContext
) -> list[OffsetFetchResponseTopics]:
    # By number; a topic's numbers were assigned together.
    places = context.coordinator.topics.places
    return [
        OffsetFetchResponseTopics(
            name=topic.name,
            topic_id=topic.id,
            partitions=[_partition(places[number][1], each) for number, each in of_topic],
        )
        for topic, of_topic in groupby(committed.items(), lambda item: places[item[0]][0])
        if context.rights.topic(Operation.DESCRIBE, topic.name)
    ]


def _topic(
    group_id: str,
    asked: OffsetFetchRequestTopics,
    committed: dict[int, CommittedOffset],
    context: CoordinatorContext,
) -> OffsetFetchResponseTopics:
    error = _refusal(asked, _find(asked, context), context)
    partitions = list[OffsetFetchResponsePartitions]()
    for index, number in zip(asked.partition_indexes, _numbers(asked, context), strict=True):
        found = committed.get(number, NOTHING)
        if found.metadata:
            if (group_id, number) in context.told.offsets:
                continue
            context.told.offsets.add((group_id, number))
        partitions.append(_partition(index, found, error))
    return OffsetFetchResponseTopics(
        name=asked.name, topic_id=asked.topic_id, partitions=partitions
    )


def _partition(
    index: int, committed: CommittedOffset, error: ErrorCode = ErrorCode.NONE
) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT if committed is UNDECIDED else error,
    )
