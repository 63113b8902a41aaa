"""ListOffsets (key 2), versions 1-11.

- -1 latest: the high watermark, or the last stable offset when reading committed; -2 earliest.
- -3 (7, KIP-734) the offset and timestamp of the record with the largest timestamp.
- -4 earliest local (8, KIP-405): the log start, sealed segments are served as any others.
- -5 latest tiered (9, KIP-1005) and -6 earliest pending upload (11, KIP-1023): -1, nothing is
  tiered in Kafka's sense.
- A time: the first record at or after it; none: offset and timestamp -1, and no error.
- A special timestamp in a version that has it not: UNSUPPORTED_VERSION; a partition named twice:
  INVALID_REQUEST.
"""

from collections import Counter
from functools import partial
from typing import Any, NamedTuple

from gateway.context import Ask, Result, ShardContext
from smq.log.reading import DamagedFrame
from smq.log.times import first_batch_at
from smq.model.errors import ErrorCode, PeerError
from smq.shard.shard import Led, Offsets, Shard
from smq.wire.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from smq.wire.records import read_batches

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = range(-1, -7, -1)
_FROM_VERSION = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING: 11,
}
_READ_UNCOMMITTED, _READ_COMMITTED = 0, 1


class _Pending(NamedTuple):
    """An answer that waits for the sealer, which is asked for what lies below `sealed_end`."""

    answer: ListOffsetsPartitionResponse
    led: Led
    sealed_end: int
    timestamp: int
    isolation_level: int


def handle(request: ListOffsetsRequest, context: ShardContext) -> Result:
    """Answer, or ask the sealer for times that only sealed segments know."""
    pending: list[_Pending] = []
    topics = []
    for topic in request.topics:
        counts = Counter(each.partition_index for each in topic.partitions)
        once = {each.partition_index: each for each in topic.partitions}
        answers = [
            _answer(topic.name, asked, request.isolation_level, context, pending)
            if counts[asked.partition_index] == 1
            else _refused(asked, ErrorCode.INVALID_REQUEST)
            for asked in once.values()
        ]
        if answers:
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    response = ListOffsetsResponse(topics=topics)
    if not pending:
        return response
    commands = [
        {"do": "offset_for_time", "number": each.led.number, "timestamp": each.timestamp}
        for each in pending
    ]
    return Ask(commands, partial(_with_sealed, response, pending, context.shard))


def _refused(asked: ListOffsetsPartition, error: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=error)


def _answer(
    name: str,
    asked: ListOffsetsPartition,
    isolation_level: int,
    context: ShardContext,
    pending: list[_Pending],
) -> ListOffsetsPartitionResponse:
    """The answer for one partition; it is not finished when it also stands in `pending`."""
    led = _find(name, asked, context)
    if isinstance(led, ErrorCode):
        return _refused(asked, led)
    error = _refusal(asked.timestamp, isolation_level, context.header.api_version)
    if error != ErrorCode.NONE:
        return _refused(asked, error)
    answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
    if not _fill(answer, led, asked.timestamp, isolation_level):
        timestamp = asked.timestamp
        if timestamp == MAX_TIMESTAMP:
            timestamp = led.offsets().max_timestamp
        pending.append(_Pending(answer, led, led.offsets().sealed_end, timestamp, isolation_level))
    return answer


def _find(name: str, asked: ListOffsetsPartition, context: ShardContext) -> Led | ErrorCode:
    topic = context.shard.catalog.by_name.get(name)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    led = context.shard.find(topic, asked.partition_index)
    if isinstance(led, ErrorCode):
        return led
    error = context.shard.check_epoch(asked.current_leader_epoch, led)
    return led if error == ErrorCode.NONE else error


def _refusal(timestamp: int, isolation_level: int, version: int) -> ErrorCode:
    if timestamp < EARLIEST_PENDING or version < _FROM_VERSION.get(timestamp, 1):
        return ErrorCode.UNSUPPORTED_VERSION
    if isolation_level not in {_READ_UNCOMMITTED, _READ_COMMITTED}:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return ErrorCode.NONE


def _limit(offsets: Offsets, isolation: int) -> int:
    return offsets.last_stable if isolation == _READ_COMMITTED else offsets.high_watermark


def _fill(answer: ListOffsetsPartitionResponse, led: Led, timestamp: int, isolation: int) -> bool:
    """Fill the answer; False: sealed segments must be asked first."""
    offsets = led.offsets()
    if timestamp == LATEST:
        _set(answer, led, _limit(offsets, isolation), -1)
    elif timestamp in {EARLIEST, EARLIEST_LOCAL}:
        _set(answer, led, offsets.log_start, -1)
    elif timestamp in {LATEST_TIERED, EARLIEST_PENDING} or (
        timestamp == MAX_TIMESTAMP and offsets.log_start == offsets.log_end
    ):
        return True
    elif offsets.sealed_end > offsets.log_start:
        return False
    else:
        target = offsets.max_timestamp if timestamp == MAX_TIMESTAMP else timestamp
        _search(answer, led, offsets.log_start, target, _limit(offsets, isolation))
    return True


def _search(
    answer: ListOffsetsPartitionResponse, led: Led, offset: int, timestamp: int, limit: int
) -> None:
    """The first record in ring or WAL at or after a time."""
    place = first_batch_at(led.log, led.number, offset, limit, timestamp)
    if place is None:
        return
    try:
        data = led.log.read_batch(*place)
    except DamagedFrame:
        answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return
    [batch] = read_batches(data)
    try:
        for record in batch.records():
            if record.timestamp_ms >= timestamp and offset <= record.offset < limit:
                _set(answer, led, record.offset, record.timestamp_ms)
                return
    except PeerError:  # What was sent cannot be read: the answer is as exact as the batch.
        _set(answer, led, max(batch.base_offset, offset), batch.max_timestamp)


def _set(answer: ListOffsetsPartitionResponse, led: Led, offset: int, timestamp: int) -> None:
    answer.offset, answer.timestamp = offset, timestamp
    history = led.log.partitions.epochs[led.number]
    answer.leader_epoch = max(
        (epoch for epoch, start in history if start <= offset), default=history[0][0]
    )


def _with_sealed(
    response: ListOffsetsResponse, pending: list[_Pending], shard: Shard, answers: list[Any]
) -> ListOffsetsResponse:
    for (answer, led, start, timestamp, isolation), said in zip(pending, answers, strict=True):
        if shard.by_number(led.number) is None:  # Deleted meanwhile.
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif said is None:
            answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        elif (found := said["ok"]) is not None:
            _set(answer, led, found["offset"], found["timestamp"])
        else:
            offsets = led.offsets()
            unsealed = max(start, offsets.log_start)
            _search(answer, led, unsealed, timestamp, _limit(offsets, isolation))
    return response
