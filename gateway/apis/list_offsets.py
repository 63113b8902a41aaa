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
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gateway.context import Ask, ReadLog, Result, ShardContext
from smq.log.reading import DamagedFrame, Run
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


class _Sealed(NamedTuple):
    """An answer that waits for the sealer, which is asked for what lies below `sealed_end`."""

    answer: ListOffsetsPartitionResponse
    led: Led
    sealed_end: int
    timestamp: int
    isolation_level: int

    def asks(self) -> dict[str, Any]:
        number, timestamp = self.led.number, self.timestamp
        return {"do": "offset_for_time", "number": number, "timestamp": timestamp}

    def take(self, said: dict[str, Any] | None, shard: Shard) -> "_Read | None":
        """Fill the answer with what the sealer said; a batch that must be read first."""
        answer, led = self.answer, self.led
        if shard.by_number(led.number) is None:  # Deleted meanwhile.
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif said is None:
            answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        elif (found := said["ok"]) is not None:
            _set(answer, led, found["offset"], found["timestamp"])
        else:
            offsets = led.offsets()
            unsealed = max(self.sealed_end, offsets.log_start)
            return _search(
                answer, led, unsealed, self.timestamp, _limit(offsets, self.isolation_level)
            )
        return None


class _Read(NamedTuple):
    """An answer that waits for the disk, which has the batch that holds the record."""

    answer: ListOffsetsPartitionResponse
    led: Led
    run: Run
    offset: int
    timestamp: int
    limit: int

    def asks(self) -> ReadLog:
        return ReadLog(self.led.log, self.run)

    def take(self, data: np.ndarray, shard: Shard) -> None:
        """Fill the answer from the batch."""
        if shard.by_number(self.led.number) is None:
            self.answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return
        try:
            batch = self.led.log.batches_of(self.run, data)
        except DamagedFrame:
            self.answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            return
        _find_record(self.answer, self.led, batch, (self.offset, self.limit), self.timestamp)


def handle(request: ListOffsetsRequest, context: ShardContext) -> Result:
    """Answer, or ask the sealer for times that only sealed segments know."""
    pending: list[_Sealed | _Read] = []
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
    return _answered(ListOffsetsResponse(topics=topics), pending, context.shard)


def _answered(
    response: ListOffsetsResponse, pending: Sequence[_Sealed | _Read], shard: Shard
) -> ListOffsetsResponse | Ask:
    """The response, when nothing of it waits any more."""
    if not pending:
        return response

    def then(answers: list[Any]) -> ListOffsetsResponse | Ask:
        reads = [each.take(said, shard) for each, said in zip(pending, answers, strict=True)]
        return _answered(response, [each for each in reads if each is not None], shard)

    return Ask([each.asks() for each in pending], then)


def _refused(asked: ListOffsetsPartition, error: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=error)


def _answer(
    name: str,
    asked: ListOffsetsPartition,
    isolation_level: int,
    context: ShardContext,
    pending: list[_Sealed | _Read],
) -> ListOffsetsPartitionResponse:
    """The answer for one partition; it is not finished when it also stands in `pending`."""
    led = _find(name, asked, context)
    if isinstance(led, ErrorCode):
        return _refused(asked, led)
    error = _refusal(asked.timestamp, isolation_level, context.header.api_version)
    if error != ErrorCode.NONE:
        return _refused(asked, error)
    answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
    waits = _fill(answer, led, asked.timestamp, isolation_level)
    if waits is not None:
        pending.append(waits)
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


def _fill(
    answer: ListOffsetsPartitionResponse, led: Led, timestamp: int, isolation: int
) -> _Sealed | _Read | None:
    """Fill the answer, or say what it waits for."""
    offsets = led.offsets()
    target = offsets.max_timestamp if timestamp == MAX_TIMESTAMP else timestamp
    if timestamp == LATEST:
        _set(answer, led, _limit(offsets, isolation), -1)
    elif timestamp in {EARLIEST, EARLIEST_LOCAL}:
        _set(answer, led, offsets.log_start, -1)
    elif timestamp in {LATEST_TIERED, EARLIEST_PENDING} or (
        timestamp == MAX_TIMESTAMP and offsets.log_start == offsets.log_end
    ):
        return None
    elif offsets.sealed_end > offsets.log_start:
        return _Sealed(answer, led, offsets.sealed_end, target, isolation)
    else:
        return _search(answer, led, offsets.log_start, target, _limit(offsets, isolation))
    return None


def _search(
    answer: ListOffsetsPartitionResponse, led: Led, offset: int, timestamp: int, limit: int
) -> _Read | None:
    """The first record in ring or WAL at or after a time; a batch that must be read first."""
    place = first_batch_at(led.log, led.number, offset, limit, timestamp)
    if place is None:
        return None
    view = led.log.view(*place)
    if view is None:
        run = led.log.first_run(np.array([place]))
        return _Read(answer, led, run, offset, timestamp, limit)
    _find_record(answer, led, view, (offset, limit), timestamp)
    return None


def _find_record(
    answer: ListOffsetsPartitionResponse,
    led: Led,
    data: memoryview,
    offsets: tuple[int, int],
    timestamp: int,
) -> None:
    """The first record of a batch at or after a time, of those in [offset, limit)."""
    [batch], (offset, limit) = read_batches(data), offsets
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
