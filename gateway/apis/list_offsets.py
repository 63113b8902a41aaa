"""ListOffsets (key 2), versions 1-11.

- -1 latest: the high watermark, or the last stable offset when reading committed; -2 earliest.
- -3 (7, KIP-734) the offset and timestamp of the record with the largest timestamp, of those that
  are left.
- -4 earliest local (8, KIP-405): the log start; sealed segments count as local.
- -5 latest tiered (9, KIP-1005) and -6 earliest pending upload (11, KIP-1023): -1, nothing is
  tiered in Kafka's sense.
- A time: the first record at or after it; none: offset and timestamp -1, and no error.
- A special timestamp that the version lacks: UNSUPPORTED_VERSION.
- A topic named twice is one row; a partition named twice is INVALID_REQUEST, once.

A large request has few of its partitions answered per turn of the loop. The index finds the batch
of a time in a few steps, in the loop; a background thread searches batches for the record, one
after another. The bytes that a request may inflate are limited: beyond that the answer comes from
the batch's header.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from gateway.context import Ask, Later, Result, ShardContext, Step
from shm.kernels.record.records import INT64_MIN
from smq.log.files.background import JobLane
from smq.log.reading import DamagedFrame
from smq.log.record_search import Done, search_batch
from smq.log.times import first_batch_at, largest_time
from smq.model.catalog import InternalPartition
from smq.model.errors import ErrorCode
from smq.security.acls import Operation
from smq.shard.led import Led, Offsets
from smq.shard.shard import Shard
from smq.wire.batch_search import Searched, WantedRecord
from smq.wire.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from smq.wire.internal.form import Failed
from smq.wire.internal.reads import NewestRecord, OffsetForTime, RecordTime
from smq.wire.portions import Portion

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = range(-1, -7, -1)
_ENDS = {LATEST, EARLIEST, EARLIEST_LOCAL}
_FROM_VERSION = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING: 11,
}
_READ_UNCOMMITTED, _READ_COMMITTED = 0, 1


PARTITIONS_A_TURN = 100  # Microseconds each; some dozen with many full segments.
INFLATED_BYTES_MAX = 1024 * 1024 * 1024  # Per request: a second or two in the background.
SEARCH_BYTES = 64 * 1024  # The least that a search is charged, in inflated bytes.


class _Sealed(NamedTuple):
    """An answer that waits for the sealer, which searches from `offset` to `sealed_end`."""

    answer: ListOffsetsPartitionResponse
    led: Led
    offset: int
    sealed_end: int
    timestamp: int
    isolation_level: int

    def asks(self) -> OffsetForTime | NewestRecord:
        offsets = self.led.offsets()
        offset, limit = max(self.offset, offsets.log_start), _limit(offsets, self.isolation_level)
        if self.timestamp == MAX_TIMESTAMP:
            return NewestRecord(self.led.number, offset, limit)
        return OffsetForTime(self.led.number, self.timestamp, offset, limit)

    def take(self, said: RecordTime | Failed | None, shard: Shard) -> "_Sealed | _Search | None":
        """Fill the answer from the sealer's; returns what to ask or search then."""
        answer, led = self.answer, self.led
        if shard.by_number(led.number) is None:  # Deleted meanwhile.
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif isinstance(said, Failed):
            answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        else:
            return self._go_on(said)
        return None

    def _go_on(self, said: RecordTime | None) -> "_Sealed | _Search | None":
        answer, led, offsets = self.answer, self.led, self.led.offsets()
        if said is not None and said.offset < offsets.log_start:
            return self  # Deleted meanwhile.
        if self.timestamp == MAX_TIMESTAMP:
            if said is not None:
                _set_newer(answer, led, said.offset, said.timestamp)
            return _newest(self)
        if said is not None:
            _set(answer, led, said.offset, said.timestamp)
            return None
        unsealed = max(self.sealed_end, offsets.log_start)
        if offsets.sealed_end > unsealed:  # The log may have lost what was sealed meanwhile.
            return self._replace(offset=unsealed, sealed_end=offsets.sealed_end)
        limit = _limit(offsets, self.isolation_level)
        return _Search(
            answer, led, WantedRecord(self.timestamp, unsealed, limit), self.isolation_level
        )


class _Search(NamedTuple):
    """An answer that waits for a search of ring or WAL."""

    answer: ListOffsetsPartitionResponse
    led: Led
    wanted: WantedRecord
    isolation_level: int

    def sealed(self, shard: Shard) -> _Sealed | None:
        """The sealer's part, if what is still to be searched has been sealed meanwhile: the log may
        lose it at any time."""
        if shard.by_number(self.led.number) is None:
            return None
        end, wanted = self.led.offsets().sealed_end, self.wanted
        if wanted.offset >= end:
            return None
        timestamp = MAX_TIMESTAMP if wanted.newest else wanted.timestamp
        return _Sealed(self.answer, self.led, wanted.offset, end, timestamp, self.isolation_level)

    def asks(self, shard: Shard, bytes_max: int) -> Later | None:
        """The search of the next batch that may have the record; None: there is none."""
        log, number = self.led.log, self.led.number
        if shard.by_number(number) is None:  # Deleted meanwhile.
            self.answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return None
        wanted = self._newest() if self.wanted.newest else self.wanted
        if wanted is None:
            return None
        place = first_batch_at(log, number, wanted.offset, wanted.limit, wanted.timestamp)
        if place is None:
            return None

        def begin(done: Done) -> None:
            search_batch(log, place, wanted, bytes_max, done)

        return Later(begin)

    def _newest(self) -> WantedRecord | None:
        """With the largest time that is left; None: it is not above the answer's."""
        log, number, (at_most, offset, limit, _) = self.led.log, self.led.number, self.wanted
        least = INT64_MIN if self.answer.offset < 0 else self.answer.timestamp + 1
        if first_batch_at(log, number, offset, limit, least) is None:
            return None
        newest = largest_time(log, number, offset, limit, at_most)
        return None if newest is None else self.wanted._replace(timestamp=newest)

    def take(self, searched: Searched | DamagedFrame, shard: Shard) -> "_Search | None":
        """Fill the answer, or return the next search if this batch had no such record."""
        if shard.by_number(self.led.number) is None:
            self.answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif isinstance(searched, DamagedFrame):
            self.answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        else:
            assert searched.end_offset > self.wanted.offset, "it would look for ever"
            if searched.found is not None:
                _set_newer(self.answer, self.led, *searched.found)
            if searched.found is None or self.wanted.newest:
                return self._replace(wanted=self.wanted._replace(offset=searched.end_offset))
        return None


class _Budget:
    """The bytes that a request may still inflate, over all its portions."""

    def __init__(self) -> None:
        self.bytes_left = INFLATED_BYTES_MAX

    def spend(self, count: int) -> None:
        self.bytes_left = max(0, self.bytes_left - count)


class _Request:
    """A request in progress, or a portion of one.

    Invariant: an unfinished answer is in `_searches` or waits for the sealer; there are at most
    PARTITIONS_A_TURN.
    """

    def __init__(self, request: ListOffsetsRequest, context: ShardContext, budget: _Budget) -> None:
        self._context, self._isolation = context, request.isolation_level
        self._topics: list[ListOffsetsTopicResponse] = []
        named: dict[str, list[ListOffsetsPartition]] = {}
        for topic in request.topics:
            named.setdefault(topic.name, []).extend(topic.partitions)
        once = {
            name: {each.partition_index: each for each in partitions}
            for name, partitions in named.items()
            if partitions
        }
        self._count, self._answered = sum(map(len, once.values())), 0
        self._left = self._each(named, once)
        self._searches: deque[_Search] = deque()
        self._budget = budget

    def _each(
        self,
        named: dict[str, list[ListOffsetsPartition]],
        once: dict[str, dict[int, ListOffsetsPartition]],
    ) -> Iterator[tuple[str, list[ListOffsetsPartitionResponse], ListOffsetsPartition, bool]]:
        """Each partition with its topic's name and answers, and whether it was named only once."""
        for name, partitions in once.items():
            counts = Counter(each.partition_index for each in named[name])
            answers: list[ListOffsetsPartitionResponse] = []
            self._topics.append(ListOffsetsTopicResponse(name=name, partitions=answers))
            for index, each in partitions.items():
                yield name, answers, each, counts[index] == 1

    def go_on(self, _: object = None) -> ListOffsetsResponse | Ask:
        """Answer some partitions; the response, or what they wait for."""
        assert not self._searches, "those before are answered"
        sealed = self._answer_some()
        return self._ask_sealer(sealed) if sealed else self._search_on()

    def _ask_sealer(self, sealed: list[_Sealed]) -> Ask:
        return Ask([each.asks() for each in sealed], partial(self._take_said, sealed))

    def _answer_some(self) -> list[_Sealed]:
        """Answer as many as one turn may; returns those to ask the sealer for."""
        sealed = []
        for name, answers, asked, is_once in islice(self._left, PARTITIONS_A_TURN):
            answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
            answers.append(answer)
            self._answered += 1
            waits = self._fill(answer, name, asked, is_once=is_once)
            if isinstance(waits, _Sealed):
                sealed.append(waits)
            elif waits is not None:
                self._searches.append(waits)
        return sealed

    def _fill(
        self,
        answer: ListOffsetsPartitionResponse,
        name: str,
        asked: ListOffsetsPartition,
        *,
        is_once: bool,
    ) -> _Sealed | _Search | None:
        """Fill the answer for one partition, or return what it waits for."""
        version = self._context.header.api_version
        led = _find(name, asked, self._context) if is_once else ErrorCode.INVALID_REQUEST
        if isinstance(led, ErrorCode):
            answer.error_code = led
            return None
        answer.error_code = _refusal(asked.timestamp, self._isolation, version)
        if answer.error_code != ErrorCode.NONE:
            return None
        if isinstance(led, InternalPartition):
            if asked.timestamp in _ENDS:
                answer.offset, answer.leader_epoch = 0, led.epoch
            return None
        return _fill(answer, led, asked.timestamp, self._isolation)

    def _take_said(
        self, sealed: list[_Sealed], answers: list[RecordTime | Failed | None]
    ) -> ListOffsetsResponse | Ask:
        """The sealer has answered."""
        again: list[_Sealed] = []
        for each, said in zip(sealed, answers, strict=True):
            waits = each.take(said, self._context.shard)
            if isinstance(waits, _Sealed):
                again.append(waits)
            elif waits is not None:
                self._searches.append(waits)
        assert len(self._searches) <= PARTITIONS_A_TURN
        return self._ask_sealer(again) if again else self._search_on()

    def _search_on(self) -> ListOffsetsResponse | Ask:
        """Search one more batch, or continue with the next turn's partitions."""
        while self._searches:
            sealed = self._searches[0].sealed(self._context.shard)
            if sealed is not None:
                self._searches.popleft()
                return self._ask_sealer([sealed])
            later = self._searches[0].asks(self._context.shard, self._budget.bytes_left)
            if later is not None:
                return Ask([later], self._take_searched)
            self._searches.popleft()
        if self._answered == self._count:
            return ListOffsetsResponse(topics=self._topics)
        return Ask([Later(self._next_turn)], self.go_on)

    def _take_searched(self, answers: list[Any]) -> ListOffsetsResponse | Ask:
        """A batch was searched."""
        [searched] = answers
        search = self._searches.popleft().take(searched, self._context.shard)
        if search is not None:
            self._searches.appendleft(search)
        if isinstance(searched, Searched):
            self._budget.spend(searched.bytes_looked_at + SEARCH_BYTES)
        return self._search_on()

    def _next_turn(self, done: Callable[[Any], None]) -> None:
        log = next(iter(self._context.shard.logs.values()))
        log.background.submit(JobLane.SEARCHES, lambda: None, done)


def handle(request: ListOffsetsRequest, context: ShardContext) -> Result:
    """Answer, or ask for what the loop does not know."""
    return _Request(request, context, _Budget()).go_on()


def steps(portions: Callable[[], Iterator[Portion]], context: ShardContext) -> Iterator[Step]:
    """The steps of a request that is too large to be handled whole: its portions share a budget."""
    budget = _Budget()
    for message, continues in portions():
        assert isinstance(message, ListOffsetsRequest)
        yield Step(_Request(message, context, budget).go_on(), continues)


def _find(
    name: str, asked: ListOffsetsPartition, context: ShardContext
) -> Led | InternalPartition | ErrorCode:
    led = context.find(Operation.DESCRIBE, name, asked.partition_index)
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
) -> _Sealed | _Search | None:
    """Fill the answer, or return what it waits for."""
    offsets = led.offsets()
    if timestamp == LATEST:
        _set(answer, led, _limit(offsets, isolation), -1)
    elif timestamp in {EARLIEST, EARLIEST_LOCAL}:
        _set(answer, led, offsets.log_start, -1)
    elif timestamp in {LATEST_TIERED, EARLIEST_PENDING} or (
        timestamp == MAX_TIMESTAMP and offsets.log_start == offsets.log_end
    ):
        return None
    else:
        sealed = _Sealed(answer, led, offsets.log_start, offsets.sealed_end, timestamp, isolation)
        if offsets.sealed_end > offsets.log_start:
            return sealed
        if timestamp == MAX_TIMESTAMP:
            return _newest(sealed)
        wanted = WantedRecord(timestamp, offsets.log_start, _limit(offsets, isolation))
        return _Search(answer, led, wanted, isolation)
    return None


def _newest(sealed: _Sealed) -> _Sealed | _Search:
    """The search of the log for a larger time than the sealed ones.

    Records that were deleted, compacted away or aborted are not in the log's index behind the
    sealed end, nor in segments: the largest time is that of what is left.
    """
    offsets = sealed.led.offsets()
    start = max(sealed.sealed_end, offsets.log_start)
    if offsets.sealed_end > start:  # The log may have lost what was sealed meanwhile.
        return sealed._replace(sealed_end=offsets.sealed_end)
    limit = _limit(offsets, sealed.isolation_level)
    wanted = WantedRecord(offsets.max_timestamp, start, limit, newest=True)
    return _Search(sealed.answer, sealed.led, wanted, sealed.isolation_level)


def _set_newer(answer: ListOffsetsPartitionResponse, led: Led, offset: int, timestamp: int) -> None:
    """Set an answer, unless it has one with a larger time or, of the same time, an earlier one."""
    if answer.offset < 0 or timestamp > answer.timestamp:
        _set(answer, led, offset, timestamp)


def _set(answer: ListOffsetsPartitionResponse, led: Led, offset: int, timestamp: int) -> None:
    answer.offset, answer.timestamp = offset, timestamp
    answer.leader_epoch = led.log.partitions.epoch_at(led.number, offset)
