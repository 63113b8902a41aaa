"""OffsetForLeaderEpoch (key 23), versions 2-4 (KIP-101, KIP-279, KIP-320).

- The largest epoch not above the one asked for, and the offset where it ended: how a client or a
  follower finds what was cut after a failure.
- For the current epoch the log end; for a future epoch, and for -1, both are -1.
- A stale or unknown current_leader_epoch is an error, as for Fetch.
"""

from functools import partial

from gateway.context import ShardContext
from smq.model.catalog import InternalPartition
from smq.model.errors import ErrorCode
from smq.security.acls import Operation
from smq.shard.led import Led
from smq.wire.generated.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

NO_EPOCH = NO_OFFSET = -1


def handle(
    request: OffsetForLeaderEpochRequest, context: ShardContext
) -> OffsetForLeaderEpochResponse:
    """Each partition's epoch and end."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_answer(topic.topic, each, context) for each in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _answer(name: str, asked: OffsetForLeaderPartition, context: ShardContext) -> EpochEndOffset:
    is_broker = context.rights.cluster(Operation.CLUSTER_ACTION)
    find = context.shard.find_named if is_broker else partial(context.find, Operation.DESCRIBE)
    led = find(name, asked.partition)
    if isinstance(led, ErrorCode):
        return EpochEndOffset(error_code=led, partition=asked.partition)
    error = context.shard.check_epoch(asked.current_leader_epoch, led)
    if error != ErrorCode.NONE:
        return EpochEndOffset(error_code=error, partition=asked.partition)
    if asked.leader_epoch == NO_EPOCH:
        return EpochEndOffset(partition=asked.partition)
    epoch, end = _end_of_epoch(led, asked.leader_epoch)
    return EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end)


def _end_of_epoch(led: Led | InternalPartition, epoch: int) -> tuple[int, int]:
    if isinstance(led, InternalPartition):  # It remembers no other epoch, and has no records.
        return (epoch, 0) if epoch <= led.epoch else (NO_EPOCH, NO_OFFSET)
    return led.log.partitions.end_of_epoch(led.number, epoch)
