"""FetchMessage and GetPartitionRangeInfo of SeaweedMQ's broker: reading without a subscription.

Messages of a FetchMessage have no offsets for SeaweedMQ's clients, who count from the start. So an
answer ends before the first gap (of a marker, of an aborted record, of one that compaction took),
and a start within one has no messages, and `next_offset` behind it. So does an answer that begins
at a batch that cannot be read: it has an error, and goes on behind it.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from smq.agent.proto import mq_broker_pb2 as pb
from smq.agent.read_records import WrittenAnswer, field_of
from smq.app.agent.apart import COPIED_AT_ONCE_BYTES, done_by_size
from smq.app.agent.broker import BrokerSide
from smq.app.agent.consumed import time_ns
from smq.app.agent.live import Live, LiveSubscriber
from smq.app.agent.methods import Context, Handler
from smq.app.agent.readers import PartitionReaders, Reader
from smq.app.agent.refusals import Code
from smq.app.agent.topics import KnownTopic, KnownTopics
from smq.app.agent.translation import range_of, topic_name
from smq.app.process.clock import monotonic_ms
from smq.client.kafka.cluster import Cluster
from smq.client.kafka.offsets import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    READ_UNCOMMITTED,
    FoundPlace,
    find_offsets,
    find_places,
)
from smq.model.offset_types import LogEnds
from smq.store.manifest import open_manifest

MiB = 1024 * 1024
MESSAGES_DEFAULT, MESSAGES_MAX = 100, 10_000
BYTES_DEFAULT, BYTES_MAX = 4 * MiB, 100 * MiB
ALL_BYTES_MAX = 256 * MiB  # Of all answers until they are sent; above, each gets one piece.
COPIES = 2  # Of an answer at a time: its pieces and the whole, or that and what gRPC sends.
ANSWER_REST_BYTES = 64 * 1024  # Of an answer, beside its messages.
MESSAGES_FIELD = pb.FetchMessageResponse.MESSAGES_FIELD_NUMBER
SENT_S_MAX, SENT_BYTES_S_MIN = 30, 256 * 1024
"""An answer is to be taken in so many seconds, and one more for each so many bytes. Whoever stands
still holds a part of what all answers have."""
STEP = 500  # Messages that are made without a pause.
WAIT_MS_MAX = 60_000


class _WantedMessages(NamedTuple):
    """How much of a partition, and how long it may be waited for."""

    start: int
    messages_max: int
    bytes_max: int
    bytes_min: int
    deadline_ms: int


class FetchedBytes:
    """Of the answers that are being made or sent."""

    def __init__(self) -> None:
        self.total = 0


class FetchCalls:
    """Answers those who name an offset themselves."""

    def __init__(
        self,
        topics: KnownTopics,
        broker: BrokerSide,
        readers: PartitionReaders,
        live: Live[LiveSubscriber],
        store: Path,
    ) -> None:
        self._topics, self._broker, self._readers, self._live = topics, broker, readers, live
        self._store = store
        self._fetched = FetchedBytes()

    def handlers(self) -> dict[str, Handler]:
        """The calls, by name."""
        return {"FetchMessage": self._fetch, "GetPartitionRangeInfo": self._describe}

    async def _fetch(
        self, request: pb.FetchMessageRequest, call: Context
    ) -> pb.FetchMessageResponse | WrittenAnswer:
        wanted = _wanted(request)
        topic = self._topics.asked(call, topic_name(request.topic))
        partition = topic.partition_of(range_of(request.partition))
        ends = await self._broker.ask(partial(ends_of, topic=topic, partition=partition))
        if not ends.earliest <= wanted.start <= ends.latest:
            return pb.FetchMessageResponse(
                high_water_mark=ends.latest,
                log_start_offset=ends.earliest,
                error=f"offset {wanted.start} is out of range: the partition has {ends.earliest} "
                f"to {ends.latest}",
                error_code=Code.TOPIC_NOT_FOUND,  # As SeaweedMQ says it.
                next_offset=min(max(wanted.start, ends.earliest), ends.latest),
            )
        reader = await self._readers.at(topic, partition, wanted.start)
        found = _WrittenMessages(wanted, self._fetched)
        call.when_done(found.let_go)
        try:
            next_offset = await _read(reader, wanted, found)
        except BaseException:
            self._readers.drop(reader)
            raise
        passed = reader.take_passed()
        self._readers.give_back(topic, partition, reader)
        call.give_up_after(SENT_S_MAX + found.size_bytes / SENT_BYTES_S_MIN)
        rest = pb.FetchMessageResponse(
            high_water_mark=max(ends.latest, next_offset),
            log_start_offset=ends.earliest,
            end_of_partition=next_offset >= ends.latest,
            next_offset=next_offset,
        )
        if passed and not found.count:  # Else the next call begins there, and is told.
            rest.error, rest.error_code = passed[0].sentence, passed[0].code
        answer = WrittenAnswer(rest.SerializeToString(), *found.hand_out())
        await done_by_size(answer.join, answer.ByteSize(), COPIED_AT_ONCE_BYTES)
        return answer

    async def _describe(
        self, request: pb.GetPartitionRangeInfoRequest, call: Context
    ) -> pb.GetPartitionRangeInfoResponse:
        topic = self._topics.asked(call, topic_name(request.topic))
        partition = topic.partition_of(range_of(request.partition))
        ends = await self._broker.ask(partial(ends_of, topic=topic, partition=partition))
        first, last = await self._broker.ask(partial(_times, topic=topic, partition=partition))
        number = topic.numbers[partition]
        count, sealed_ms, sealed_end = await asyncio.to_thread(
            _sealed, self._store, number, ends.earliest
        )
        first_ms = max(0, first.timestamp_ms)
        ranges = self._live.of(topic.id)
        return pb.GetPartitionRangeInfoResponse(
            offset_range=pb.OffsetRangeInfo(
                earliest_offset=ends.earliest,
                latest_offset=max(ends.earliest, ends.latest - 1),
                high_water_mark=ends.latest,
            ),
            timestamp_range=pb.TimestampRangeInfo(
                earliest_timestamp_ns=time_ns(
                    first_ms if sealed_ms is None else min(first_ms, max(0, sealed_ms))
                ),
                latest_timestamp_ns=time_ns(max(0, last.timestamp_ms)),
            ),
            record_count=count + max(0, ends.latest - sealed_end),
            active_subscriptions=sum(
                topic.partition_of(each.partition) == partition for each in ranges
            ),
        )


def ends_of(cluster: Cluster, topic: KnownTopic, partition: int) -> LogEnds:
    """Where a partition begins and ends. Raises BrokerError."""
    return all_ends_of(cluster, topic, [partition])[partition]


def all_ends_of(
    cluster: Cluster,
    topic: KnownTopic,
    partitions: list[int],
    isolation_level: int = READ_UNCOMMITTED,
) -> dict[int, LogEnds]:
    """Where some partitions begin and end; or, of what is committed. Raises BrokerError."""
    find = partial(find_offsets, cluster, topic.kafka_name, partitions)
    earliest = find(EARLIEST_TIMESTAMP)
    latest = find(LATEST_TIMESTAMP, isolation_level=isolation_level)
    return {each: LogEnds(earliest[each], latest[each]) for each in partitions}


def _times(cluster: Cluster, topic: KnownTopic, partition: int) -> tuple[FoundPlace, FoundPlace]:
    """The first record of any time, and the one with the latest."""
    find = partial(find_places, cluster, topic.kafka_name, [partition])
    return find(0)[partition], find(MAX_TIMESTAMP)[partition]


def _sealed(store: Path, number: int, earliest: int) -> tuple[int, int | None, int]:
    """In a thread: a partition may have very many segments."""
    with open_manifest(store) as manifest:
        return manifest.records(number, earliest)


def _wanted(request: pb.FetchMessageRequest) -> _WantedMessages:
    if request.start_offset < 0:
        raise ValueError(f"start_offset is {request.start_offset}; offsets begin with 0")
    wait_ms = min(max(0, request.max_wait_ms), WAIT_MS_MAX)
    bytes_max = min(request.max_bytes if request.max_bytes > 0 else BYTES_DEFAULT, BYTES_MAX)
    return _WantedMessages(
        start=request.start_offset,
        messages_max=min(max(0, request.max_messages) or MESSAGES_DEFAULT, MESSAGES_MAX),
        bytes_max=bytes_max - min(ANSWER_REST_BYTES, bytes_max // 2),
        bytes_min=min(max(1, request.min_bytes), bytes_max // 2),
        deadline_ms=monotonic_ms() + wait_ms,
    )


class _WrittenMessages:
    """What an answer has so far: `end` is the offset behind it."""

    def __init__(self, wanted: _WantedMessages, fetched: FetchedBytes) -> None:
        self._wanted, self._fetched = wanted, fetched
        self.pieces: list[bytes] = []
        self.end, self.size_bytes = wanted.start, 0

    @property
    def count(self) -> int:
        """How many messages they are."""
        return self.end - self._wanted.start

    @property
    def has_room(self) -> bool:
        """Whether another one may come."""
        wanted = self._wanted
        if self.count and self._fetched.total >= ALL_BYTES_MAX:
            return False
        return self.count < wanted.messages_max and self.size_bytes < wanted.bytes_max

    def add(self, pieces: Sequence[bytes], count: int) -> None:
        """So many more messages."""
        size_bytes = sum(map(len, pieces))
        self.pieces += pieces
        self.end += count
        self.size_bytes += size_bytes
        self._fetched.total += COPIES * size_bytes

    def hand_out(self) -> list[bytes]:
        """The pieces, which are not kept until the answer is sent: that has them once more."""
        pieces, self.pieces = self.pieces, []
        return pieces

    def let_go(self) -> None:
        """They are sent, or nobody waits for them."""
        self._fetched.total -= COPIES * self.size_bytes
        self.size_bytes = 0

    async def take(self, reader: Reader) -> bool:
        """Take what `reader` shows, which is at the end; False: there is no room for it."""
        wanted = self._wanted
        left = wanted.messages_max - self.count, wanted.bytes_max - self.size_bytes
        piece, count = await reader.take_messages(*left)
        if count:
            self.add([piece], count)
            return True
        # It has headers, or is too large for the room that is left.
        pieces = field_of(MESSAGES_FIELD, (await reader.read()).message())
        if self.count and sum(map(len, pieces)) > left[1]:
            return False
        reader.skip()
        self.add(pieces, 1)
        return True


async def _read(reader: Reader, wanted: _WantedMessages, found: _WrittenMessages) -> int:
    """Read messages from the start on, without a gap; the offset behind them."""
    pieces = 0
    while found.has_room:
        record = reader.peek()
        if record is None:
            is_enough = found.size_bytes >= wanted.bytes_min
            left_ms = 0 if is_enough else wanted.deadline_ms - monotonic_ms()
            has_come = await reader.wait(max(0, left_ms) / 1000)
            if not has_come and (left_ms <= 0 or reader.has_passed):
                return found.end if found.count else max(found.end, reader.position)
        elif record.offset != found.end:
            return found.end if found.count else record.offset
        elif not await found.take(reader):
            break
        elif (pieces := pieces + 1) % STEP == 0:
            await asyncio.sleep(0)
    return found.end
