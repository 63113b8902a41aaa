"""Fetch (key 1), versions 4-18.

- Whole batches from the one that holds the offset on, below the high watermark; a batch may begin
  before the offset: clients skip what they did not ask for.
- max_bytes and partition_max_bytes are soft: the first partition that has anything gets a whole
  batch, however large (KIP-74). Below zero they are UNKNOWN_SERVER_ERROR; so is an isolation level
  above 1, for the whole request.
- read_committed: below the last stable offset, with the aborted transactions that overlap what is
  returned (gateway.apis.log_fetch); null when uncommitted records are read too.
- Long poll: with less than min_bytes we wait for max_wait_ms, WAIT_MS_MAX at most, unless a
  partition has an error.
- Offsets below the log start or above the log end: OFFSET_OUT_OF_RANGE.
- A stale or unknown current_leader_epoch: FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH (9, KIP-320).
- last_fetched_epoch reveals a truncated log: diverging_epoch (12, KIP-595); an epoch that is not
  known yet is OFFSET_OUT_OF_RANGE.
- Where a topic says smq.reference.delivery=inline, batches with handles come from the sealer's
  reader too, with payloads as values where they fit.
- Offsets that have left the WAL come from sealed segments, for few partitions per answer.
- Topic ids instead of names from 13 (KIP-516): UNKNOWN_TOPIC_ID.
- From 16: with NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH the leader and its address (KIP-951).
- A topic that is named twice gets one row. A partition that is named twice: the last entry counts.
  A topic without partitions gets no row.
- Follower fetches get NOT_LEADER_OR_FOLLOWER: there is no replication yet.

Sessions (KIP-227) are gateway.apis.session_fetch. Left out: fetching from followers (KIP-392);
there are none.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from gateway.apis.cold_fetch import ColdPart, Part, Unread, storage_error, with_cold
from gateway.apis.log_fetch import ABORTED_MAX, Told, find_told, find_told_sealed
from gateway.context import Ask, LogSlot, Message, Result, ShardContext, Wait
from shm.kernels.request.fetch_request import FETCH_BYTES_MAX, WAIT_MS_MAX
from smq.log.lookup import Found
from smq.model.catalog import InternalPartition, Node, Topic
from smq.model.errors import ErrorCode
from smq.model.segments import BatchLimits
from smq.shard.inline import Search
from smq.shard.led import Led, Offsets
from smq.shard.lent import LentBatches
from smq.wire.generated.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

COLD_PARTITIONS_MAX = 4  # Per answer: each may make the sealer decode a row group.
IDS_FROM = 13
LEADERS_FROM = 16
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
NO_SESSION_EPOCHS = frozenset({0, -1})  # Full fetches: one begins a session, the other has none.
Answered = Callable[[Sequence[FetchTopic], FetchResponse], None]
_ISOLATION_LEVELS = frozenset({READ_UNCOMMITTED, READ_COMMITTED})
_LEADER_CHANGED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
_UNKNOWN = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


class _Row(NamedTuple):
    """One partition of a request: where to read, or its error."""

    request: FetchPartition
    led: Led | None
    error: ErrorCode
    leader: Node | None = None  # The actual leader, or our own epoch.


def _nobody(_topics: Sequence[FetchTopic], _response: FetchResponse) -> None:
    """A fetch without a session."""


def handle(request: FetchRequest, context: ShardContext, answered: Answered) -> Result:
    """Answer a full fetch now, ask the sealer, or wait. `answered` receives the request's
    partitions and the response."""
    fetch = Fetching(request, context, answered)
    result = fetch.attempt(is_last=request.max_wait_ms <= 0 or not fetch.topics)
    if result is not None:
        return result
    wait_ms = min(request.max_wait_ms, WAIT_MS_MAX)
    return Wait(lambda: list(fetch.places), wait_ms, fetch.attempt, fetch.moved)


class Fetching:
    """A request in progress, or a portion of one.

    It is evaluated whole at first, and while it waits only where a high watermark has moved.
    """

    def __init__(
        self, request: FetchRequest, context: ShardContext, answered: Answered = _nobody
    ) -> None:
        self._request, self._context, self._answered = request, context, answered
        self.topics = _merged(request.topics, context.header.api_version >= IDS_FROM)
        self._is_impossible = request.isolation_level not in _ISOLATION_LEVELS
        if self._is_impossible and context.header.api_version >= IDS_FROM:
            self.topics = []
        self._rows: list[list[_Row]] = []
        self._catalog_version = -1
        self.places: dict[LogSlot, _Row] = {}
        self._ready_bytes: dict[LogSlot, int] = {}

    def attempt(self, *, is_last: bool) -> Message | Ask | None:
        """The response if there is enough to read, Ask if the sealer has it, or None."""
        reader = Reader(self._request, self._context.header.api_version)
        response = self.read(reader)
        is_enough = reader.has_enough(self._request.min_bytes) or is_last
        if not is_enough and not reader.cold:
            return None
        self._context.shard.count_fetch(reader.total_bytes)
        self._answered(self.topics, response)
        return with_cold(response, reader.take_cold())

    def read(self, reader: "Reader") -> FetchResponse:
        """Read what is available now, except what only the sealer has."""
        if self._catalog_version != self._context.shard.catalog_version:
            self._resolve_all()
        read = [[self._read(reader, row) for row in rows] for rows in self._rows]
        return FetchResponse(
            error_code=ErrorCode.UNKNOWN_SERVER_ERROR if self._is_impossible else ErrorCode.NONE,
            responses=[
                FetchableTopicResponse(
                    topic=topic.topic, topic_id=topic.topic_id, partitions=partitions
                )
                for topic, partitions in zip(self.topics, read, strict=True)
            ],
            node_endpoints=self._endpoints(),
        )

    def _endpoints(self) -> list[NodeEndpoint]:
        """The addresses of the leaders that the answer names."""
        named = {row.leader.id: row.leader for rows in self._rows for row in rows if row.leader}
        return [
            NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
            for node in named.values()
        ]

    def moved(self, places: Iterable[LogSlot]) -> Message | Ask | None:
        """Some partitions have more to read: the response, if there is enough now."""
        assert self._catalog_version == self._context.shard.catalog_version, "places of old slots"
        if self._request.min_bytes > 1:  # Any record is a byte at least.
            for place in places:
                self._ready_bytes[place] = self._readable_bytes(self.places[place])
            if sum(self._ready_bytes.values()) < self._request.min_bytes:
                return None
        return self.attempt(is_last=False)

    def _readable_bytes(self, row: _Row) -> int:
        assert row.led is not None
        asked, limit = row.request, _limit(row.led.offsets(), self._request.isolation_level)
        found = row.led.log.find(
            row.led.number, asked.fetch_offset, limit, asked.partition_max_bytes
        )
        return found.total_bytes if found is not None else 0

    def _read(self, reader: "Reader", row: _Row) -> PartitionData:
        data, size = reader.read(row)
        if row.led is not None:
            self._ready_bytes[row.led.log.number, row.led.slot] = size
        return data

    def _resolve_all(self) -> None:
        """Find the partitions in the catalog as it is now."""
        self._catalog_version = self._context.shard.catalog_version
        self._rows = [
            [self._resolve(topic, each) for each in topic.partitions] for topic in self.topics
        ]
        self._ready_bytes.clear()  # The places may belong to another topic by now.
        found = [row for rows in self._rows for row in rows if row.led is not None]
        self.places = {(row.led.log.number, row.led.slot): row for row in found if row.led}

    def _resolve(self, topic: FetchTopic, asked: FetchPartition) -> _Row:
        shard, request = self._context.shard, self._request
        found, error = self._topic(topic)
        if found is None:
            return _Row(asked, None, error)
        led = shard.find(found, asked.partition)
        if isinstance(led, ErrorCode):
            return _Row(asked, None, led, self._leader(led, found, asked.partition))
        state = request.replica_state  # From version 15 on it stands there.
        if (request.replica_id if state is None else state.replica_id) >= 0:
            return _Row(asked, None, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if self._is_impossible or min(request.max_bytes, asked.partition_max_bytes) < 0:
            return _Row(asked, None, ErrorCode.UNKNOWN_SERVER_ERROR)
        error = shard.check_epoch(max(-1, asked.current_leader_epoch), led)
        leader = self._leader(error, found, asked.partition)
        if isinstance(led, InternalPartition):  # There is nothing to read.
            return _Row(asked, None, error, leader)
        return _Row(asked, led if error == ErrorCode.NONE else None, error, leader)

    def _leader(self, error: ErrorCode, topic: Topic, index: int) -> Node | None:
        """The leader to name (KIP-951)."""
        if error not in _LEADER_CHANGED or self._context.header.api_version < LEADERS_FROM:
            return None
        return self._context.shard.leader_of(topic.id, index)

    def _topic(self, topic: FetchTopic) -> tuple[Topic | None, ErrorCode]:
        catalog = self._context.shard.catalog
        if self._context.header.api_version >= IDS_FROM:
            return catalog.find_by_id(topic.topic_id), ErrorCode.UNKNOWN_TOPIC_ID
        return catalog.find(topic.topic), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _merged(topics: Sequence[FetchTopic], by_id: bool) -> list[FetchTopic]:  # noqa: FBT001
    """Each topic once, each of its partitions once; those without partitions are left out."""
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


def _limit(offsets: Offsets, isolation_level: int) -> int:
    return offsets.last_stable if isolation_level == READ_COMMITTED else offsets.high_watermark


def _divergence(led: Led, asked: FetchPartition) -> EpochEndOffset | ErrorCode | None:
    """Where our log ended in the client's last epoch, if the client's log is longer (ours was
    cut)."""
    epoch, end = led.log.partitions.end_of_epoch(led.number, asked.last_fetched_epoch)
    if epoch < 0:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    if epoch == asked.last_fetched_epoch and end >= asked.fetch_offset:
        return None
    return EpochEndOffset(epoch=epoch, end_offset=end)


def _empty(index: int, isolation_level: int) -> PartitionData:
    """The row of an internal topic's partition, which never has records."""
    return PartitionData(
        partition_index=index,
        high_watermark=0,
        last_stable_offset=0,
        log_start_offset=0,
        aborted_transactions=None if isolation_level == READ_UNCOMMITTED else [],
        records=b"",
    )


class Reader:
    """Reads a request's partitions in order, within its limits."""

    def __init__(self, request: FetchRequest, version: int) -> None:
        self._left = self._bytes_max = min(request.max_bytes, FETCH_BYTES_MAX)
        self._failure = storage_error(version)
        self._isolation_level = request.isolation_level
        self._aborted_left = ABORTED_MAX
        self._search = Search()
        self.total_bytes = 0
        self.has_error = False
        self.cold: list[Part] = []
        self._cold_count = 0

    def has_enough(self, min_bytes: int) -> bool:
        """Whether an answer goes out now: there is enough, an error, or no more can be read."""
        return self.total_bytes >= min_bytes or self.has_error or self._search.is_over

    @property
    def has_cold(self) -> bool:
        """Whether the sealer has some of it."""
        return self._cold_count > 0

    def take_cold(self) -> list[Part]:
        """Take the partitions with something to ask for, added since the last call."""
        cold, self.cold = self.cold, []
        return cold

    def read(self, row: _Row) -> tuple[PartitionData, int]:
        """One partition's row of the answer, and its bytes of records."""
        asked = row.request
        if row.led is None:
            return self._unled(row), 0
        offsets = row.led.offsets()
        limit = _limit(offsets, self._isolation_level)
        if not offsets.log_start <= asked.fetch_offset <= offsets.log_end:
            return self._error(asked.partition, ErrorCode.OFFSET_OUT_OF_RANGE), 0
        data = PartitionData(
            partition_index=asked.partition,
            high_watermark=offsets.high_watermark,
            last_stable_offset=offsets.last_stable,
            log_start_offset=offsets.log_start,
            aborted_transactions=None if self._isolation_level == READ_UNCOMMITTED else [],
            records=b"",
        )
        if asked.last_fetched_epoch >= 0:
            cut = _divergence(row.led, asked)
            if isinstance(cut, ErrorCode):
                return self._error(asked.partition, cut), 0
            if cut is not None:
                data.diverging_epoch, self.has_error = cut, True  # Answer without waiting.
                return data, 0
        budget = min(self._left, asked.partition_max_bytes)
        is_wanted = asked.fetch_offset < limit
        if is_wanted and (budget > 0 or not (self.total_bytes or self._cold_count)):
            return data, self._fill(data, row, limit, budget)
        return data, 0

    def _unled(self, row: _Row) -> PartitionData:
        """The row of a partition that is not led here or belongs to an internal topic."""
        asked = row.request
        if row.error is ErrorCode.NONE and asked.fetch_offset == 0:
            return _empty(asked.partition, self._isolation_level)
        data = self._error(asked.partition, row.error or ErrorCode.OFFSET_OUT_OF_RANGE)
        if row.leader is not None:
            data.current_leader = LeaderIdAndEpoch(
                leader_id=row.leader.id, leader_epoch=row.leader.epoch
            )
        return data

    def _fill(self, data: PartitionData, row: _Row, limit: int, budget: int) -> int:
        led, asked = row.led, row.request
        assert led is not None
        count_max = None if data.aborted_transactions is None else self._aborted_left
        has_any = bool(self.total_bytes or self._cold_count)
        if has_any and self._is_over_for(led, asked.fetch_offset, is_told=count_max is not None):
            return 0
        told = find_told(led, asked.fetch_offset, limit, budget, count_max, self._search)
        if told.found is not None:
            return self._take(data, led, told, told.found, budget)
        if self._cold_count < COLD_PARTITIONS_MAX:
            self.cold.append(self._cold_part(data, row, limit, budget))
            self._cold_count += 1
            self._left -= budget
        return 0

    def _is_over_for(self, led: Led, offset: int, *, is_told: bool) -> bool:
        """Whether other partitions have used up what an answer may look at, of this kind."""
        if self._search.is_over and led.delivers_inline:
            return True
        is_over = is_told and not self._aborted_left
        return is_over and led.log.transactions.has_aborted(led.number, offset)

    def _take(self, data: PartitionData, led: Led, told: Told, found: Found, budget: int) -> int:
        """Put what is found in the log into the row, if it fits; its bytes."""
        self._aborted_left = max(0, self._aborted_left - told.looked_at)
        is_too_much = found.total_bytes > budget or told.too_many is not None
        if not found.total_bytes or (is_too_much and self.total_bytes > 0):
            return 0
        data.aborted_transactions = told.aborted
        data.records = LentBatches(led.log, found.spans, found.total_bytes)
        self.total_bytes += found.total_bytes
        self._left -= found.total_bytes
        if told.too_many is not None:
            self.cold.append(Unread(data, led.log, found, told.too_many, self._failure))
            self._cold_count += 1
        return found.total_bytes

    def _cold_part(self, data: PartitionData, row: _Row, limit: int, budget: int) -> ColdPart:
        led, asked = row.led, row.request
        assert led is not None
        asked_bytes = min(self._bytes_max, asked.partition_max_bytes)
        limits = BatchLimits.of(led.batch_bytes_max(), asked_bytes)
        must_give = not (self.total_bytes or self._cold_count)
        offset, is_plain = asked.fetch_offset, data.aborted_transactions is None
        aborted = find_told_sealed(led, offset, limit, None if is_plain else self._aborted_left)
        self._aborted_left = max(0, self._aborted_left - len(aborted.table))
        sizes = max(1, budget), limits, must_give
        return ColdPart(data, led, offset, limit, *sizes, self._failure, aborted)

    def _error(self, index: int, error: ErrorCode) -> PartitionData:
        self.has_error = True
        # These Kafka finds before it reads: it tells no aborted transactions, after others null.
        is_unread = error in _UNKNOWN or self._isolation_level not in _ISOLATION_LEVELS
        return PartitionData(
            partition_index=index,
            error_code=error,
            high_watermark=-1,
            last_stable_offset=-1,
            log_start_offset=-1,
            aborted_transactions=[] if is_unread else None,
            records=b"",
        )
