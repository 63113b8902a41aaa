"""DescribeTopicPartitions (key 75), version 0 (KIP-966).

- Topics in the order of their names, each once, at most 2,000 partitions of them; no topics: all.
- The request's cursor says where to begin, the answer's where the next request begins. A cursor
  whose topic is not requested, or with a partition below 0, makes each topic INVALID_REQUEST.
- UNKNOWN_TOPIC_OR_PARTITION, or INVALID_TOPIC_EXCEPTION for an impossible name.
- A partition's only replica leads it; none is eligible beside it.
"""

from collections.abc import Iterator

from gateway.context import ShardContext
from smq.model.catalog import Leader, Topic
from smq.model.errors import ErrorCode
from smq.model.names import is_valid_topic_name
from smq.security.acls import Operation, ResourceType
from smq.security.rights import Rights
from smq.wire.generated.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition as DescribedPartition,
    DescribeTopicPartitionsResponseTopic as DescribedTopic,
)

PARTITIONS_MAX = 2000  # Per answer: Kafka's default of max.request.partition.size.limit.
PART_NAMES = 100  # Looked at in a step: the rights on one take some ten microseconds.
PART_PARTITIONS = 250  # Per part: two milliseconds.


def handle(
    request: DescribeTopicPartitionsRequest, context: ShardContext
) -> Iterator[DescribeTopicPartitionsResponse]:
    """Describe topics from the cursor on, in parts."""
    catalog, cursor = context.shard.catalog, request.cursor
    asked = {each.name for each in request.topics}
    if cursor is not None and not _is_possible(cursor, asked):
        refused = [
            DescribedTopic(error_code=ErrorCode.INVALID_REQUEST, name=name)
            for name in sorted(asked)
        ]
        yield DescribeTopicPartitionsResponse(topics=refused)
        return
    left = min(PARTITIONS_MAX, max(1, request.response_partition_limit))
    for name, denied in _named(asked, cursor, context):
        if name is None:
            yield _response([])
            continue
        first = cursor.partition_index if cursor and name == cursor.topic_name else 0
        topic = catalog.find(name)
        if left == 0 or topic is None or denied:
            if left == 0:
                yield _response([], Cursor(topic_name=name))
                return
            yield _response([_missing(name, context.rights, denied)])
            continue
        end = min(topic.partition_count, first + left)
        left -= max(0, end - first)
        yield from _described(topic, range(first, end), context)
        if end < topic.partition_count and left == 0:
            yield _response([], Cursor(topic_name=name, partition_index=end))
            return
    yield _response([])


def _named(
    asked: set[str], cursor: Cursor | None, context: ShardContext
) -> Iterator[tuple[str | None, ErrorCode]]:
    """The names to describe, and why not; of all topics those that the client may see. None where a
    step ends."""
    names = sorted(asked or (topic.name for topic in context.shard.catalog.all()))
    if cursor is not None:
        names = [name for name in names if name >= cursor.topic_name]
    for count, name in enumerate(names, start=1):
        if count % PART_NAMES == 0:
            yield None, ErrorCode.NONE
        if asked:
            yield name, context.rights.error(Operation.DESCRIBE, ResourceType.TOPIC, name)
        elif context.rights.topic(Operation.DESCRIBE, name):
            yield name, ErrorCode.NONE


def _is_possible(cursor: Cursor, asked: set[str]) -> bool:
    return cursor.partition_index >= 0 and (not asked or cursor.topic_name in asked)


def _response(
    topics: list[DescribedTopic], next_cursor: Cursor | None = None
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(topics=topics, next_cursor=next_cursor)


def _missing(name: str, rights: Rights, denied: ErrorCode) -> DescribedTopic:
    if denied:
        return DescribedTopic(error_code=denied, name=name)
    valid = is_valid_topic_name(name)
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if valid else ErrorCode.INVALID_TOPIC_EXCEPTION
    operations = rights.operations(ResourceType.TOPIC, name)
    return DescribedTopic(error_code=error, name=name, topic_authorized_operations=operations)


def _described(
    topic: Topic, indexes: range, context: ShardContext
) -> Iterator[DescribeTopicPartitionsResponse]:
    """Rows of a topic, in parts, one at least."""
    nodes = context.nodes
    operations = context.rights.operations(ResourceType.TOPIC, topic.name)
    for first in range(indexes.start, max(indexes.stop, indexes.start + 1), PART_PARTITIONS):
        row = DescribedTopic(
            name=topic.name,
            topic_id=topic.id,
            is_internal=topic.is_internal,
            topic_authorized_operations=operations,
            partitions=[
                _partition(index, topic.leader(index, nodes))
                for index in range(first, min(first + PART_PARTITIONS, indexes.stop))
            ],
        )
        yield _response([row])


def _partition(index: int, leader: Leader) -> DescribedPartition:
    return DescribedPartition(
        partition_index=index,
        leader_id=leader.node.id,
        leader_epoch=leader.epoch,
        replica_nodes=[leader.node.id],
        isr_nodes=[leader.node.id],
        eligible_leader_replicas=(),
        last_known_elr=(),
    )
