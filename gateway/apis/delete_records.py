"""DeleteRecords (key 21), versions 0-2.

- Raises a partition's log start to an offset, or for -1 to the high watermark; never lowers it. The
  answer goes out once the new log start is durable.
- OFFSET_OUT_OF_RANGE: an offset above the high watermark or below -1.
- UNKNOWN_TOPIC_OR_PARTITION; NOT_LEADER_OR_FOLLOWER; POLICY_VIOLATION for a topic that is compacted
  only.

Readers get OFFSET_OUT_OF_RANGE below the log start at once. Retention deletes whole sealed segments
below it on its next pass. Queries leave out the other rows at once.
"""

from collections.abc import Iterator

from gateway.context import Ask, Later, ShardContext
from smq.log.log import Log
from smq.model.catalog import InternalPartition
from smq.model.errors import ErrorCode
from smq.model.topic_settings import settings_of
from smq.security.acls import Operation
from smq.security.audit import AdminAct
from smq.wire.generated.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

HIGH_WATERMARK = -1
PORTION_MAX = 100  # Partitions: each one's unsealed bytes are counted anew.


def handle(request: DeleteRecordsRequest, context: ShardContext) -> DeleteRecordsResponse | Ask:
    """Move each partition's log start; the answer waits for checkpoints that contain them."""
    deletion = _Deletion(context)
    rights = context.rights
    topics = [
        DeleteRecordsTopicResult(
            name=topic.name,
            partitions=[deletion.carry_out(topic.name, each) for each in topic.partitions],
        )
        for topic in request.topics
        if topic.partitions
    ]
    response = DeleteRecordsResponse(topics=topics)
    for act in dict.fromkeys(_acts(response)):  # Once, however often it is asked for.
        rights.audit.act(rights.peer, rights.api, act, context.now)
    if not deletion.logs:
        return response
    return Ask([_checkpoint(log) for log in deletion.logs.values()], lambda _: response)


def _acts(response: DeleteRecordsResponse) -> Iterator[AdminAct]:
    for topic in response.topics:
        for each in topic.partitions:
            detail = f"partition {each.partition_index}, below {each.low_watermark}"
            yield AdminAct("DELETE_RECORDS", "TOPIC", topic.name, each.error_code, detail)


def _checkpoint(log: Log) -> Later:
    return Later(lambda done: log.checkpoint(lambda: done(None)))


class _Deletion:
    """The deletions of a request; `logs` are the logs that it changed."""

    def __init__(self, context: ShardContext) -> None:
        self._context, self._shard = context, context.shard
        self.logs: dict[int, Log] = {}

    def carry_out(self, name: str, asked: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
        """Move one partition's log start or refuse."""
        result = DeleteRecordsPartitionResult(
            partition_index=asked.partition_index, low_watermark=-1
        )
        led = self._context.find(Operation.DELETE, name, asked.partition_index)
        if isinstance(led, ErrorCode):
            result.error_code = led
            return result
        if isinstance(led, InternalPartition):
            result.error_code = ErrorCode.INVALID_TOPIC_EXCEPTION
            return result
        if not settings_of(led.topic, self._shard.config).deletes:
            result.error_code = ErrorCode.POLICY_VIOLATION
            return result
        end = led.offsets().high_watermark
        offset = end if asked.offset == HIGH_WATERMARK else asked.offset
        if not 0 <= offset <= end:
            result.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            return result
        if offset > led.offsets().log_start:
            led.log.sealing.set_log_start(led.number, offset)
        self.logs[led.log.number] = led.log
        result.low_watermark = led.offsets().log_start
        return result
