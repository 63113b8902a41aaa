"""Fetch (key 1), versions 4-18.

- Whole batches from the one that holds the offset on, below the high watermark; a batch may begin
  before the offset, clients skip what they did not ask for.
- max_bytes and partition_max_bytes are soft: the first partition that has anything gets a whole
  batch, however large (KIP-74).
- Long poll: with less than min_bytes we wait for max_wait_ms, unless a partition has an error.
- Offsets below the log start or above the log end: OFFSET_OUT_OF_RANGE.
- A stale or unknown current_leader_epoch: FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH (KIP-320, 9).
- Offsets that have left the WAL come from sealed segments, one partition an answer.
- Topic ids instead of names from 13 (KIP-516): UNKNOWN_TOPIC_ID.

Left out: fetch sessions (KIP-227): every answer has session id 0, and a session that a client names
is FETCH_SESSION_ID_NOT_FOUND, so that clients go on with full fetches. Fetching from followers
(KIP-392) and the fields of replicas: there are none.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from gateway.context import Ask, Message, Result, ShardContext, Wait
from smq.model.catalog import Topic
from smq.model.errors import ErrorCode
from smq.shard.lent import FileRange, LentBatches
from smq.shard.shard import Led, Offsets
from smq.wire.generated.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

FETCH_BYTES_MAX = 55 * 1024 * 1024  # Kafka's fetch.max.bytes: what one answer may hold of us.
IDS_FROM = 13
READ_COMMITTED = 1


@dataclass(slots=True)
class _Wanted:
    """One partition of a request: where to read, or what is wrong."""

    request: FetchPartition
    led: Led | None
    error: ErrorCode


def handle(request: FetchRequest, context: ShardContext) -> Result:
    """Answer now, ask the sealer, or wait."""
    if request.session_id != 0:
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    wanted = [
        [_resolve(topic, partition, context) for partition in topic.partitions]
        for topic in request.topics
    ]
    flat = [each for partitions in wanted for each in partitions]
    attempt = partial(_attempt, request, wanted)
    result = attempt(is_last=not flat or request.max_wait_ms <= 0)
    if result is not None:
        return result
    places = [(each.led.log.number, each.led.slot) for each in flat if each.led is not None]
    return Wait(places, request.max_wait_ms, lambda is_last: attempt(is_last=is_last))


def _topic(topic: FetchTopic, context: ShardContext) -> tuple[Topic | None, ErrorCode]:
    if context.header.api_version >= IDS_FROM:
        return context.shard.catalog.by_id.get(topic.topic_id), ErrorCode.UNKNOWN_TOPIC_ID
    found = context.shard.catalog.by_name.get(topic.topic)
    return found, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _resolve(topic: FetchTopic, partition: FetchPartition, context: ShardContext) -> _Wanted:
    found, error = _topic(topic, context)
    if found is None:
        return _Wanted(partition, None, error)
    led = context.shard.find(found, partition.partition)
    if isinstance(led, ErrorCode):
        return _Wanted(partition, None, led)
    error = context.shard.check_epoch(partition.current_leader_epoch, led)
    return _Wanted(partition, led if error == ErrorCode.NONE else None, error)


def _attempt(
    request: FetchRequest, wanted: list[list[_Wanted]], *, is_last: bool
) -> Message | Ask | None:
    """The response if there is enough to say, Ask if the sealer has it, or None."""
    reader = _Reader(request)
    topics = [
        FetchableTopicResponse(
            topic=topic.topic,
            topic_id=topic.topic_id,
            partitions=[reader.read(each) for each in partitions],
        )
        for topic, partitions in zip(request.topics, wanted, strict=True)
    ]
    response = FetchResponse(responses=topics)
    if reader.cold is not None:
        command, data = reader.cold
        return Ask([command], partial(_with_cold, response, data))
    if reader.total_bytes >= request.min_bytes or reader.has_error or is_last:
        return response
    return None


class _Reader:
    """Reads a request's partitions in order, within its limits."""

    def __init__(self, request: FetchRequest) -> None:
        self._left = min(request.max_bytes, FETCH_BYTES_MAX)
        self._read_committed = request.isolation_level == READ_COMMITTED
        self.total_bytes = 0
        self.has_error = False
        self.cold: tuple[dict[str, Any], PartitionData] | None = None

    def read(self, wanted: _Wanted) -> PartitionData:
        """One partition's part of the answer."""
        asked = wanted.request
        if wanted.led is None:
            return self._error(asked.partition, wanted.error)
        offsets = wanted.led.offsets()
        if not offsets.log_start <= asked.fetch_offset <= offsets.log_end:
            return self._error(asked.partition, ErrorCode.OFFSET_OUT_OF_RANGE)
        data = PartitionData(
            partition_index=asked.partition,
            high_watermark=offsets.high_watermark,
            last_stable_offset=offsets.last_stable if self._read_committed else -1,
            log_start_offset=offsets.log_start,
            aborted_transactions=[] if self._read_committed else None,
            records=b"",
        )
        limit = offsets.last_stable if self._read_committed else offsets.high_watermark
        budget = min(self._left, asked.partition_max_bytes)
        if asked.fetch_offset < limit and (budget > 0 or self.total_bytes == 0):
            self._fill(data, wanted.led, asked, offsets, limit, budget)
        return data

    def _fill(
        self,
        data: PartitionData,
        led: Led,
        asked: FetchPartition,
        offsets: Offsets,
        limit: int,
        budget: int,
    ) -> None:
        found = led.log.find(led.number, asked.fetch_offset, limit, budget)
        if found is None:
            if asked.fetch_offset >= offsets.sealed_end:
                data.error_code = ErrorCode.KAFKA_STORAGE_ERROR
                self.has_error = True
            elif self.cold is None:
                command = {
                    "do": "cold",
                    "number": led.number,
                    "offset": asked.fetch_offset,
                    "bytes_max": max(1, budget),
                }
                self.cold = command, data
        elif found.total_bytes and (found.total_bytes <= budget or self.total_bytes == 0):
            data.records = LentBatches(led.log, found.spans, found.total_bytes)
            self.total_bytes += found.total_bytes
            self._left -= found.total_bytes

    def _error(self, index: int, error: ErrorCode) -> PartitionData:
        self.has_error = True
        return PartitionData(
            partition_index=index,
            error_code=error,
            high_watermark=-1,
            last_stable_offset=-1,
            log_start_offset=-1,
            aborted_transactions=[] if self._read_committed else None,
            records=b"",
        )


def _with_cold(response: FetchResponse, data: PartitionData, answers: list[Any]) -> FetchResponse:
    """Put what the sealer gave into the partition that asked for it."""
    answer = answers[0]
    if answer is None:
        data.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    elif answer["length"]:
        try:
            data.records = FileRange(answer["path"], answer["at"], answer["length"])
        except OSError:
            data.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    return response


def lent_of(response: FetchResponse) -> Iterator[LentBatches | FileRange]:
    """What a response lends: to be released when it is not sent after all."""
    for topic in response.responses:
        for partition in topic.partitions:
            if isinstance(partition.records, (LentBatches, FileRange)):
                yield partition.records
