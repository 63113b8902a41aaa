"""The rules of a Fetch: the partitions that it reads, up to where, and their errors."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gateway.context import ShardContext
from smq.model.catalog import InternalPartition, Leader, Topic
from smq.model.errors import ErrorCode
from smq.security.acls import Operation
from smq.shard.led import Led, Offsets
from smq.wire.generated.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

IDS_FROM = 13
LEADERS_FROM = 16
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
NO_SESSION_EPOCHS = frozenset({0, -1})  # Full fetches: one begins a session, the other has none.
_ISOLATION_LEVELS = frozenset({READ_UNCOMMITTED, READ_COMMITTED})
_LEADER_CHANGED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
_NOT_READ = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)


class Row(NamedTuple):
    """One partition of a request: where to read, or its error."""

    request: FetchPartition
    led: Led | None
    error: ErrorCode
    leader: Leader | None = None  # The actual leader, or our own epoch.


def is_impossible(request: FetchRequest) -> bool:
    """Whether the whole request is refused."""
    return request.isolation_level not in _ISOLATION_LEVELS


def topics_of(request: FetchRequest, version: int) -> list[FetchTopic]:
    """Each topic once, each of its partitions once; those without partitions are left out."""
    topics, by_id = request.topics, version >= IDS_FROM
    if by_id and is_impossible(request):
        return []
    if len(topics) == 1 and len(topics[0].partitions) == 1:
        return list(topics)
    merged: dict[object, dict[int, FetchPartition]] = {}
    first: dict[object, FetchTopic] = {}
    for topic in topics:
        key: object = topic.topic_id.bytes if by_id else topic.topic
        first.setdefault(key, topic)
        merged.setdefault(key, {}).update({each.partition: each for each in topic.partitions})
    return [
        FetchTopic(
            topic=first[key].topic,
            topic_id=first[key].topic_id,
            partitions=list(partitions.values()),
        )
        for key, partitions in merged.items()
        if partitions
    ]


def row_of(
    topic: FetchTopic, asked: FetchPartition, request: FetchRequest, context: ShardContext
) -> Row:
    """Find a partition in the catalog as it is now, for who may read it now."""
    shard = context.shard
    found, error = _topic(topic, request, context)
    if found is None:
        return Row(asked, None, error)
    led = shard.find(found, asked.partition)
    if isinstance(led, ErrorCode):
        return Row(asked, None, led, _leader(led, found, asked.partition, context))
    if is_follower(request):
        return Row(asked, None, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if is_impossible(request) or min(request.max_bytes, asked.partition_max_bytes) < 0:
        return Row(asked, None, ErrorCode.UNKNOWN_SERVER_ERROR)
    error = shard.check_epoch(max(-1, asked.current_leader_epoch), led)
    leader = _leader(error, found, asked.partition, context)
    if isinstance(led, InternalPartition):  # There is nothing to read.
        return Row(asked, None, error, leader)
    return Row(asked, led if error == ErrorCode.NONE else None, error, leader)


def is_follower(request: FetchRequest) -> bool:
    """Whether a broker asks."""
    return request.replica_state is not None and request.replica_state.replica_id >= 0


def _may_read(
    topic: FetchTopic, found: Topic | None, request: FetchRequest, context: ShardContext
) -> bool:
    """Whether the client may read a topic; of an unknown id nothing can be said."""
    if is_follower(request):
        return context.rights.asks_cluster(Operation.CLUSTER_ACTION)
    if found is not None:
        return context.rights.asks_topic(Operation.READ, found.name)
    by_id = context.header.api_version >= IDS_FROM
    return by_id or context.rights.asks_topic(Operation.READ, topic.topic)


def _topic(
    topic: FetchTopic, request: FetchRequest, context: ShardContext
) -> tuple[Topic | None, ErrorCode]:
    """A topic that the client may read; or none, and why."""
    catalog = context.shard.catalog
    if context.header.api_version >= IDS_FROM:
        found, error = catalog.find_by_id(topic.topic_id), ErrorCode.UNKNOWN_TOPIC_ID
    else:
        found, error = catalog.find(topic.topic), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not _may_read(topic, found, request, context):
        return None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return found, error


def _leader(error: ErrorCode, topic: Topic, index: int, context: ShardContext) -> Leader | None:
    """The leader to name (KIP-951)."""
    if error not in _LEADER_CHANGED or context.header.api_version < LEADERS_FROM:
        return None
    return context.shard.leader_of(topic.id, index, context.rights.peer.listener)


def endpoints(rows: Iterable[Sequence[Row]]) -> list[NodeEndpoint]:
    """The addresses of the leaders that an answer names."""
    named = {row.leader.node.id: row.leader.node for those in rows for row in those if row.leader}
    return [
        NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
        for node in named.values()
    ]


def limit_of(offsets: Offsets, isolation_level: int) -> int:
    """The offset below which records are given."""
    return offsets.last_stable if isolation_level == READ_COMMITTED else offsets.high_watermark


def divergence(led: Led, asked: FetchPartition) -> EpochEndOffset | ErrorCode | None:
    """Where our log ended in the client's last epoch, if the client's log is longer (ours was
    cut)."""
    epoch, end = led.log.partitions.end_of_epoch(led.number, asked.last_fetched_epoch)
    if epoch < 0:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    if epoch == asked.last_fetched_epoch and end >= asked.fetch_offset:
        return None
    return EpochEndOffset(epoch=epoch, end_offset=end)


def empty(index: int, offsets: Offsets | None, isolation_level: int) -> PartitionData:
    """A partition's row, still without records; an internal topic's partition never has any."""
    return PartitionData(
        partition_index=index,
        high_watermark=offsets.high_watermark if offsets else 0,
        last_stable_offset=offsets.last_stable if offsets else 0,
        log_start_offset=offsets.log_start if offsets else 0,
        aborted_transactions=None if isolation_level == READ_UNCOMMITTED else [],
        records=b"",
    )


def refused(row: Row, error: ErrorCode, isolation_level: int) -> PartitionData:
    """The row of a partition that cannot be read, with its leader if that is another."""
    # These Kafka finds before it reads: it tells no aborted transactions, after others null.
    is_unread = error in _NOT_READ or isolation_level not in _ISOLATION_LEVELS
    data = PartitionData(
        partition_index=row.request.partition,
        error_code=error,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        aborted_transactions=[] if is_unread else None,
        records=b"",
    )
    if row.leader is not None:
        data.current_leader = LeaderIdAndEpoch(
            leader_id=row.leader.node.id, leader_epoch=row.leader.epoch
        )
    return data
