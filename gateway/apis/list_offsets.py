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

from functools import partial
from typing import Any

from gateway.context import Ask, Result, ShardContext
from smq.log.log import DamagedFrame
from smq.log.times import first_batch_at
from smq.model.errors import ErrorCode
from smq.shard.shard import Led, Offsets
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
_READ_COMMITTED = 1


def handle(request: ListOffsetsRequest, context: ShardContext) -> Result:
    """Answer, or ask the sealer for times that only sealed segments know."""
    names = [
        (topic.name, each.partition_index) for topic in request.topics for each in topic.partitions
    ]
    twice = (
        {name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else ()
    )
    commands: list[dict[str, Any]] = []
    pending: list[tuple[ListOffsetsPartitionResponse, Led, int, int]] = []
    topics = []
    for topic in request.topics:
        answers = []
        for asked in topic.partitions:
            answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
            answers.append(answer)
            led = _find(
                topic.name, asked, context, is_twice=(topic.name, asked.partition_index) in twice
            )
            if isinstance(led, ErrorCode):
                answer.error_code = led
                continue
            if _answer(answer, led, asked.timestamp, request.isolation_level):
                continue
            target = (
                led.offsets().max_timestamp if asked.timestamp == MAX_TIMESTAMP else asked.timestamp
            )
            commands.append({"do": "offset_for_time", "number": led.number, "timestamp": target})
            pending.append((answer, led, target, request.isolation_level))
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    response = ListOffsetsResponse(topics=topics)
    return Ask(commands, partial(_with_sealed, response, pending)) if commands else response


def _find(
    name: str, asked: ListOffsetsPartition, context: ShardContext, *, is_twice: bool
) -> Led | ErrorCode:
    if is_twice:
        return ErrorCode.INVALID_REQUEST
    topic = context.shard.catalog.by_name.get(name)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    led = context.shard.find(topic, asked.partition_index)
    if isinstance(led, ErrorCode):
        return led
    error = context.shard.check_epoch(asked.current_leader_epoch, led)
    if error != ErrorCode.NONE:
        return error
    special = asked.timestamp < 0
    if special and context.header.api_version < _FROM_VERSION.get(asked.timestamp, 1):
        return ErrorCode.UNSUPPORTED_VERSION
    if asked.timestamp < EARLIEST_PENDING:
        return ErrorCode.UNSUPPORTED_VERSION
    return led


def _limit(offsets: Offsets, isolation: int) -> int:
    return offsets.last_stable if isolation == _READ_COMMITTED else offsets.high_watermark


def _answer(answer: ListOffsetsPartitionResponse, led: Led, timestamp: int, isolation: int) -> bool:
    """Fill the answer; False: sealed segments must be asked first."""
    offsets = led.offsets()
    if timestamp == LATEST:
        _set(answer, led, _limit(offsets, isolation), -1)
    elif timestamp in {EARLIEST, EARLIEST_LOCAL}:
        _set(answer, led, offsets.log_start, -1)
    elif timestamp == MAX_TIMESTAMP and (
        offsets.max_timestamp < 0 or offsets.log_start == offsets.log_end
    ):
        return True
    elif timestamp in {LATEST_TIERED, EARLIEST_PENDING}:
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
    for batch in read_batches(data):
        for record in batch.records():
            if record.timestamp_ms >= timestamp and offset <= record.offset < limit:
                _set(answer, led, record.offset, record.timestamp_ms)
                return


def _set(answer: ListOffsetsPartitionResponse, led: Led, offset: int, timestamp: int) -> None:
    answer.offset, answer.timestamp = offset, timestamp
    history = led.log.partitions.epochs[led.number]
    answer.leader_epoch = max(
        (epoch for epoch, start in history if start <= offset), default=history[0][0]
    )


def _with_sealed(
    response: ListOffsetsResponse,
    pending: list[tuple[ListOffsetsPartitionResponse, Led, int, int]],
    answers: list[Any],
) -> ListOffsetsResponse:
    for (answer, led, timestamp, isolation), found in zip(pending, answers, strict=True):
        offsets = led.offsets()
        if found is not None:
            _set(answer, led, found["offset"], found["timestamp"])
        else:
            _search(answer, led, offsets.sealed_end, timestamp, _limit(offsets, isolation))
    return response
