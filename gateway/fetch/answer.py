"""The answer to a Fetch that is evaluated whole: its rows, filled from the log within its limits.

What the sealer has is asked for (gateway.fetch.cold).
"""

from collections.abc import Callable, Iterable, Sequence

from gateway.context import Ask, Message, ShardContext
from gateway.fetch.cold import ColdPart, Part, Unread, storage_error, with_cold
from gateway.fetch.handle_search import Search
from gateway.fetch.in_log import (
    ABORTED_MAX,
    FoundInLog,
    find_told,
    find_told_sealed,
    readable_part,
)
from gateway.fetch.rules import (
    Row,
    divergence,
    empty,
    endpoints,
    is_impossible,
    limit_of,
    refused,
    row_of,
    topics_of,
)
from shm.kernels.request.fetch import FETCH_BYTES_MAX, PLACES_MAX
from smq.log.lookup import FoundBatches
from smq.model.errors import ErrorCode
from smq.model.segments import BatchLimits
from smq.security.acls import Operation
from smq.shard.led import Led
from smq.shard.loans import LentBatches
from smq.wire.generated.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

COLD_PARTITIONS_MAX = 4  # Per answer: each may make the sealer decode a row group.
Answered = Callable[[Sequence[FetchTopic], FetchResponse], None]


def _nobody(_topics: Sequence[FetchTopic], _response: FetchResponse) -> None:
    """A fetch without a session."""


class Fetching:
    """A request in progress, or a portion of one.

    It is evaluated whole at first, and while it waits only where a high watermark has moved.

    places  where it reads, by log << 32 | slot
    """

    def __init__(
        self, request: FetchRequest, context: ShardContext, answered: Answered = _nobody
    ) -> None:
        self._request, self._context, self._answered = request, context, answered
        self.topics = topics_of(request, context.header.api_version)
        self._rows: list[list[Row]] = []
        self._resolved = (-1, -1)  # The versions of the catalog and of rights.
        self.places: dict[int, Row] = {}
        self._ready_bytes: dict[int, int] = {}

    def attempt(self, *, is_last: bool) -> Message | Ask | None:
        """The response if there is enough to read, Ask if the sealer has it, or None."""
        reader = PartitionReader(self._request, self._context.header.api_version)
        response = self.read(reader)
        is_enough = reader.has_enough(self._request.min_bytes) or is_last
        if not is_enough and not reader.cold:
            return None
        self._context.shard.count_fetch(reader.total_bytes)
        self._answered(self.topics, response)
        return with_cold(response, reader.take_cold(), self._context.loan)

    def read(self, reader: "PartitionReader") -> FetchResponse:
        """Read what is available now, except what only the sealer has."""
        if self._resolved != self._versions():
            self._resolve_all()
        read = [[self._read(reader, row) for row in rows] for rows in self._rows]
        return FetchResponse(
            error_code=ErrorCode.UNKNOWN_SERVER_ERROR
            if is_impossible(self._request)
            else ErrorCode.NONE,
            responses=[
                FetchableTopicResponse(
                    topic=topic.topic, topic_id=topic.topic_id, partitions=partitions
                )
                for topic, partitions in zip(self.topics, read, strict=True)
            ],
            node_endpoints=endpoints(self._rows),
        )

    def moved(self, codes: Iterable[int]) -> Message | Ask | None:
        """Some partitions have more to read: the response, if there is enough now."""
        assert self._resolved[0] == self._context.shard.catalog_version, "places of old slots"
        if self._request.min_bytes > 1:  # Any record is a byte at least.
            for code in codes:
                self._ready_bytes[code] = self._readable_bytes(self.places[code])
            if sum(self._ready_bytes.values()) < self._request.min_bytes:
                return None
        return self.attempt(is_last=False)

    def _readable_bytes(self, row: Row) -> int:
        assert row.led is not None
        asked, limit = row.request, limit_of(row.led.offsets(), self._request.isolation_level)
        found = row.led.log.find(
            row.led.number, asked.fetch_offset, limit, asked.partition_max_bytes
        )
        return found.total_bytes if found is not None else 0

    def _read(self, reader: "PartitionReader", row: Row) -> PartitionData:
        data, size = reader.read(row)
        if row.led is not None:
            self._ready_bytes[row.led.code] = size
        return data

    def _versions(self) -> tuple[int, int]:
        shard = self._context.shard
        return shard.catalog_version, shard.access.refresh()

    def _resolve_all(self) -> None:
        """Find the partitions in the catalog, and what the client may read, as they are now."""
        self._resolved = self._versions()
        self._rows = [
            [row_of(topic, each, self._request, self._context) for each in topic.partitions]
            for topic in self.topics
        ]
        self._ready_bytes.clear()  # The places may belong to another topic by now.
        found = [row for rows in self._rows for row in rows if row.led is not None]
        self.places = {row.led.code: row for row in found if row.led}
        rights, bitmaps = self._context.rights, self._context.shard.bitmaps
        if bitmaps is not None and not rights.is_unlimited and len(self.places) <= PLACES_MAX:
            bitmaps.learn(rights.peer, Operation.READ, self.places)


class PartitionReader:
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

    def read(self, row: Row) -> tuple[PartitionData, int]:
        """One partition's row of the answer, and its bytes of records."""
        asked = row.request
        if row.led is None:
            return self._unled(row), 0
        offsets = row.led.offsets()
        limit = limit_of(offsets, self._isolation_level)
        if not offsets.log_start <= asked.fetch_offset <= offsets.log_end:
            return self._refused(row, ErrorCode.OFFSET_OUT_OF_RANGE), 0
        data = empty(asked.partition, offsets, self._isolation_level)
        if asked.last_fetched_epoch >= 0:
            cut = divergence(row.led, asked)
            if isinstance(cut, ErrorCode):
                return self._refused(row, cut), 0
            if cut is not None:
                data.diverging_epoch, self.has_error = cut, True  # Answer without waiting.
                return data, 0
        budget = min(self._left, asked.partition_max_bytes)
        is_wanted = asked.fetch_offset < limit
        if is_wanted and (budget > 0 or not (self.total_bytes or self._cold_count)):
            return data, self._fill(data, row, limit, budget)
        return data, 0

    def _unled(self, row: Row) -> PartitionData:
        """The row of a partition that is not led here or belongs to an internal topic."""
        if row.error is ErrorCode.NONE and row.request.fetch_offset == 0:
            return empty(row.request.partition, None, self._isolation_level)
        return self._refused(row, row.error or ErrorCode.OFFSET_OUT_OF_RANGE)

    def _fill(self, data: PartitionData, row: Row, limit: int, budget: int) -> int:
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

    def _take(
        self, data: PartitionData, led: Led, told: FoundInLog, found: FoundBatches, budget: int
    ) -> int:
        """Put what is found in the log into the row, if it fits; its bytes."""
        self._aborted_left = max(0, self._aborted_left - told.looked_at)
        is_too_much = found.total_bytes > budget or told.too_many is not None
        if not found.total_bytes or (is_too_much and self.total_bytes > 0):
            return 0
        found = readable_part(led, found)
        if not found.total_bytes:
            data.error_code, self.has_error = self._failure, True
            return 0
        data.aborted_transactions = told.aborted
        data.records = LentBatches(led.log, found.spans, found.total_bytes)
        self.total_bytes += found.total_bytes
        self._left -= found.total_bytes
        if told.too_many is not None:
            self.cold.append(Unread(data, led.log, found, told.too_many, self._failure))
            self._cold_count += 1
        return found.total_bytes

    def _cold_part(self, data: PartitionData, row: Row, limit: int, budget: int) -> ColdPart:
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

    def _refused(self, row: Row, error: ErrorCode) -> PartitionData:
        self.has_error = True
        return refused(row, error, self._isolation_level)
