"""OffsetFetch (key 9), versions 1-10.

- What a group committed; where it has committed nothing, and in a group that is not there, offset
  -1, leader epoch -1, metadata "" and no error. A topic that is not there has no offsets, and no
  error either.
- From 2: null topics mean every offset of the group. From 5: leader epochs (KIP-320).
- From 7: require_stable, which holds always while there are no transactions (KIP-447).
- From 8: several groups at once (KIP-709). From 9: member id and epoch, of groups of the consumer
  protocol only (KIP-848).
- From 10: topics by id; an unknown one is UNKNOWN_TOPIC_ID.
"""

from collections.abc import Sequence
from itertools import groupby

from gateway.coordinator_context import CoordinatorContext
from smq.model.catalog import Topic
from smq.model.errors import ErrorCode
from smq.store.rows import CommittedOffset
from smq.wire.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

GROUPS_FROM = 8
IDS_FROM = 10
NOTHING = CommittedOffset(-1, -1, "", 0)


def handle(request: OffsetFetchRequest, context: CoordinatorContext) -> OffsetFetchResponse:
    """The offsets of each group."""
    if context.version >= GROUPS_FROM:
        return OffsetFetchResponse(groups=[_group(each, context) for each in request.groups])
    only = OffsetFetchRequestGroup(group_id=request.group_id, topics=_upgraded(request))
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name, partitions=[_downgraded(each) for each in topic.partitions]
            )
            for topic in _group(only, context).topics
        ]
    )


def _upgraded(request: OffsetFetchRequest) -> Sequence[OffsetFetchRequestTopics] | None:
    if request.topics is None:
        return None
    return [
        OffsetFetchRequestTopics(name=each.name, partition_indexes=each.partition_indexes)
        for each in request.topics
    ]


def _downgraded(partition: OffsetFetchResponsePartitions) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=partition.partition_index,
        committed_offset=partition.committed_offset,
        committed_leader_epoch=partition.committed_leader_epoch,
        metadata=partition.metadata,
    )


def _group(asked: OffsetFetchRequestGroup, context: CoordinatorContext) -> OffsetFetchResponseGroup:
    store = context.coordinator.store
    if asked.topics is None:
        topics = _all(store.committed_offsets(asked.group_id), context)
    else:
        numbers = {number for each in asked.topics for number in _numbers(each, context)}
        committed = store.committed_offsets_of(asked.group_id, numbers)
        topics = [_topic(each, committed, context) for each in asked.topics]
    return OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics)


def _numbers(asked: OffsetFetchRequestTopics, context: CoordinatorContext) -> set[int]:
    """The partitions, by number, that are asked for and there."""
    topic = _find(asked, context)
    numbers = topic.partition_numbers if topic is not None else ()
    return {numbers[index] for index in asked.partition_indexes if 0 <= index < len(numbers)}


def _find(asked: OffsetFetchRequestTopics, context: CoordinatorContext) -> Topic | None:
    catalog = context.coordinator.topics.catalog
    if context.version >= IDS_FROM:
        return catalog.by_id.get(asked.topic_id)
    return catalog.by_name.get(asked.name)


def _all(
    committed: dict[int, CommittedOffset], context: CoordinatorContext
) -> list[OffsetFetchResponseTopics]:
    # By number, and the numbers of a topic were given in one go.
    catalog, places = context.coordinator.topics.catalog, context.coordinator.topics.places
    return [
        OffsetFetchResponseTopics(
            name=name,
            topic_id=catalog.by_name[name].id,
            partitions=[_partition(places[number][1], each) for number, each in of_topic],
        )
        for name, of_topic in groupby(committed.items(), lambda item: places[item[0]][0].name)
    ]


def _topic(
    asked: OffsetFetchRequestTopics,
    committed: dict[int, CommittedOffset],
    context: CoordinatorContext,
) -> OffsetFetchResponseTopics:
    topic, is_by_id = _find(asked, context), context.version >= IDS_FROM
    error = ErrorCode.UNKNOWN_TOPIC_ID if topic is None and is_by_id else ErrorCode.NONE
    numbers = topic.partition_numbers if topic is not None else ()
    partitions = [
        _partition(
            index,
            committed.get(numbers[index], NOTHING) if 0 <= index < len(numbers) else NOTHING,
            error,
        )
        for index in asked.partition_indexes
    ]
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
        error_code=error,
    )
