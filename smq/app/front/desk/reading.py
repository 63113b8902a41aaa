"""Searches a topic for records, bounded by time, records and bytes; reports how far it got.

    forward    from a place on, until it has enough records or reaches a bound; continues there
    newest     windows of offsets below the ends, newest first, each read whole; continues below

An answer has one budget. A first window that exceeds half of what is left of it shrinks, down to
one offset of each partition. Of these at least one is always read, so a search always makes
progress. A batch that inflates too far is passed over, and said.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from smq.app.front.desk.places import place_of
from smq.client.client import Client
from smq.client.consuming.batch.batch import Batch
from smq.client.consuming.batch.chunk import Record
from smq.client.consuming.consumer import Consumer
from smq.client.errors import BatchTooLarge
from smq.client.kafka.offsets import OffsetPlace
from smq.client.names import TopicPartition
from smq.front.console.desk import (
    HEADERS_MAX,
    NEWEST,
    PARTITIONS_AT_ONCE,
    PREVIEW_BYTES,
    FoundRecords,
    PassedOver,
    ShownRecord,
    Wanted,
)
from smq.model.errors import BrokerError, ErrorCode

SECONDS = 2.0  # For one answer.
RECORDS_MAX = 200_000  # Examined for one answer.
LOOKED_BYTES_MAX = 64 * 1024 * 1024
POLL_S = 0.5
SILENT_S = 10.0  # Without any record: a cold read may fetch a segment from S3.
FETCH_BYTES = 2 * 1024 * 1024  # A fetch, of all partitions: it may have 300,000 records.
WINDOW = 1000  # The first window of a search for the newest: offsets of each partition.
WINDOW_MAX = 64_000
WHOLE_BYTES_MAX = 8 * 1024 * 1024  # The largest record shown on its own page, or downloaded.
PIECE_BYTES = 64 * 1024  # Of a value, looked into at once: two milliseconds at worst.
INFLATED_BYTES_MAX = 16 * 1024 * 1024  # Of a batch, and of its columns: the front holds several.

_CONSUMER: dict[str, Any] = {
    "start": "earliest",
    "batch_bytes_max": FETCH_BYTES,
    "inflated_bytes_max": INFLATED_BYTES_MAX,
    "isolation_level": "read_committed",
}
"""Records of aborted and of open transactions are not shown."""

Positions = dict[TopicPartition, int]
Headers = Iterable[tuple[str, bytes | None]]


class _Limits(NamedTuple):
    """Where a budget ends."""

    until_s: float
    looked: int
    looked_bytes: int


class _Bounds:
    """The budget of one answer, and how much of it is used.

    looked, looked_bytes   records examined, and their keys, values and headers, as reported
    aside, aside_bytes     the same of windows that were given up: used, but not reported
    """

    __slots__ = ("_clock_s", "_limits", "aside", "aside_bytes", "looked", "looked_bytes")

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._limits = _Limits(clock_s() + SECONDS, RECORDS_MAX, LOOKED_BYTES_MAX)
        self.looked = self.looked_bytes = self.aside = self.aside_bytes = 0

    def now_s(self) -> float:
        return self._clock_s()

    def add(self, record: Record) -> None:
        """Count a record against the budget."""
        self.looked += 1
        self.looked_bytes += _size(record.key) + _size(record.value)

    def add_headers(self, headers: Headers) -> None:
        """Count headers against the budget."""
        self.looked_bytes += sum(len(name) + _size(value) for name, value in headers)

    def counted(self, headers: Headers) -> Iterator[tuple[str, bytes | None]]:
        """The same headers, counted as they are looked at."""
        for each in headers:
            self.add_headers([each])
            yield each

    def set_aside(self, looked: int, looked_bytes: int) -> None:
        """Report no more than this, which was looked at before a window that is given up."""
        self.aside += self.looked - looked
        self.aside_bytes += self.looked_bytes - looked_bytes
        self.looked, self.looked_bytes = looked, looked_bytes

    def half(self) -> _Limits:
        """Where half of what is left is used."""
        until_s, records, size = self._limits
        return _Limits(
            (until_s + self._clock_s()) / 2,
            (records + self.looked + self.aside) // 2,
            (size + self.looked_bytes + self.aside_bytes) // 2,
        )

    def are_reached(self, limits: _Limits | None = None) -> bool:
        """Whether the budget, or a part of it, is used up."""
        until_s, records, size = limits or self._limits
        return (
            self.looked + self.aside >= records
            or self.looked_bytes + self.aside_bytes >= size
            or self._clock_s() >= until_s
        )


class _Newest:
    """The newest of the records that were added.

    records   them, and the times as which they count
    times     the greatest time of each partition, by number
    passed    where those that did not fit end, by partition

    It keeps the upper end of each partition, so a later search goes on below it. Times need not
    grow with offsets: a record counts as no older than those below it in its partition. So neither
    a late event nor one that is dated into the future holds a search up.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.records: list[tuple[int, ShownRecord]] = []
        self.passed: Positions = {}
        self.times: dict[int, int] = {}

    def add(self, seen: ShownRecord) -> None:
        """Add a record, above all others of its partition."""
        time = max(seen.timestamp_ms, self.times.get(seen.partition, seen.timestamp_ms))
        self.times[seen.partition] = time
        self.records.append((time, seen))
        if len(self.records) >= 2 * self.limit:
            self.cut()

    def add_below(self, other: "_Newest") -> None:
        """Add all of another, which are below those here, of which none was passed."""
        self.records = [
            (max(time, other.times.get(seen.partition, time)), seen) for time, seen in self.records
        ]
        self.records += other.records
        self.passed |= other.passed

    def cut(self) -> None:
        """Keep as many as fit."""
        self.records.sort(reverse=True)
        for _, each in self.records[self.limit :]:
            name = TopicPartition(each.topic, each.partition)
            self.passed[name] = max(self.passed.get(name, 0), each.offset + 1)
        del self.records[self.limit :]

    def by_time(self) -> list[ShownRecord]:
        """The records, newest first."""
        seen = [each for _, each in self.records]
        return sorted(
            seen, key=lambda each: (each.timestamp_ms, each.partition, each.offset), reverse=True
        )


@dataclass(frozen=True, slots=True)
class Looking:
    """One search, with one consumer. `beyond`: offsets of batches that inflate too far."""

    consumer: Consumer
    wanted: Wanted
    bounds: _Bounds
    beyond: dict[TopicPartition, dict[int, int]] = field(default_factory=dict)
    _matches: Callable[[Record], bool] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_matches", matcher(self.wanted, self.bounds.counted))

    def forward(self, starts: Positions, ends: Positions) -> FoundRecords:
        """Records from `starts` up to `ends`, in arrival order."""
        found: list[ShownRecord] = []
        positions = dict(starts)
        for seen in self._matching(positions, ends):
            found.append(seen)
            if len(found) >= self.wanted.limit:
                break
        left = {name: at for name, at in positions.items() if at < ends[name]}
        cursor = {name.partition: at for name, at in positions.items()} if left else {}
        return self._found(found, cursor)

    def newest(self, firsts: Positions, ends: Positions) -> FoundRecords:
        """The newest records below `ends`, newest first."""
        newest = _Newest(self.wanted.limit)
        highs = dict(ends)
        window = WINDOW if self.wanted.is_search else self.wanted.limit
        while len(newest.records) < newest.limit and any(highs[x] > firsts[x] for x in highs):
            is_first = highs == ends
            lows = {name: max(firsts[name], high - window) for name, high in highs.items()}
            before = self.bounds.looked, self.bounds.looked_bytes
            limits = self.bounds.half() if is_first and window > 1 else None
            found, left = self._window(lows, highs, limits)
            if left and window > 1:
                read = self.bounds.looked - before[0]
                self.bounds.set_aside(*before)
                if not is_first:
                    break
                window = min(window // 8, read // (3 * len(highs))) or 1
                continue
            newest.add_below(found)
            highs |= {name: self._below(name, low, firsts) for name, low in lows.items() - left}
            window = min(WINDOW_MAX, window * 2)
            if left or self.bounds.are_reached():
                break
        newest.cut()
        for name, end in newest.passed.items():  # A later search finds those above again.
            highs[name] = max(highs[name], end)
        is_more = any(highs[name] > firsts[name] for name in highs)
        cursor = {name.partition: high for name, high in highs.items()} if is_more else {}
        return self._found(newest.by_time(), cursor)

    def _window(
        self, lows: Positions, highs: Positions, limits: _Limits | None
    ) -> tuple[_Newest, set[tuple[TopicPartition, int]]]:
        """The newest matching records of a window, and the lows of partitions that are not read
        whole."""
        found, positions = _Newest(self.wanted.limit), dict(lows)
        for seen in self._matching(positions, highs, limits):
            found.add(seen)
        return found, {(name, lows[name]) for name, at in positions.items() if at < highs[name]}

    def _below(self, name: TopicPartition, low: int, firsts: Positions) -> int:
        """Where a window at `low` goes on below: a batch that inflates too far is left at once."""
        starts = (first for first, end in self.beyond.get(name, {}).items() if first < low < end)
        return max(firsts[name], next(starts, low))

    def _matching(
        self, positions: Positions, ends: Positions, limits: _Limits | None = None
    ) -> Iterator[ShownRecord]:
        for record in self._records(positions, ends, limits):
            if self._matches(record):
                seen = seen_of(record, PREVIEW_BYTES)
                self.bounds.add_headers(seen.headers)  # They are kept.
                yield seen

    def _records(
        self, positions: Positions, ends: Positions, limits: _Limits | None
    ) -> Iterator[Record]:
        """Records from `positions` up to `ends`, or to the limits; advances `positions`.

        At least one position moves. Raises BrokerError if no record arrives for SILENT_S.
        """
        starts = dict(positions)
        left = self._begin(positions, ends)
        heard_s = self.bounds.now_s()
        while left:
            batch = self._poll(ends)
            heard_s = self._heard_s(batch, heard_s)
            for record in self.consumer.walk(batch, ends):
                self.bounds.add(record)
                positions[TopicPartition(record.topic, record.partition)] = record.offset + 1
                yield record
                if self.bounds.are_reached(limits):
                    return
            positions |= {name: self.consumer.position(*name) for name in left}
            if positions != starts and self.bounds.are_reached(limits):
                return  # Records of aborted transactions move positions only.
            for name in [name for name in left if positions[name] >= ends[name]]:
                left.remove(name)
                self.consumer.pause(*name)

    def _begin(self, positions: Positions, ends: Positions) -> set[TopicPartition]:
        """Stand at these positions; returns the partitions that are not at their ends."""
        left = {name for name, at in positions.items() if at < ends[name]}
        if left:
            self.consumer.assign(left)
        for name in left:
            self.consumer.seek(*name, positions[name])
        return left

    def _poll(self, ends: Positions) -> Batch:
        """The next records; none, if it passes over a batch that inflates too far."""
        try:
            return self.consumer.poll(POLL_S)
        except BatchTooLarge as error:
            name = TopicPartition(error.topic, error.partition)
            if error.start < ends[name]:
                self.beyond.setdefault(name, {})[error.start] = error.end
            self.bounds.looked_bytes += INFLATED_BYTES_MAX
            self.consumer.seek(*name, error.end)
            return Batch([])

    def _heard_s(self, batch: Batch, heard_s: float) -> float:
        """When the last record came. Raises BrokerError if that is SILENT_S ago."""
        now_s = self.bounds.now_s()
        if not batch and now_s >= heard_s + SILENT_S:
            sentence = f"{self.wanted.topic} has given no record for {SILENT_S:g} s; try again"
            raise BrokerError(ErrorCode.REQUEST_TIMED_OUT, sentence)
        return now_s if batch else heard_s

    def _found(self, records: list[ShownRecord], cursor: Mapping[int, int]) -> FoundRecords:
        return FoundRecords(
            records=records,
            cursor=cursor,
            looked=self.bounds.looked,
            looked_bytes=self.bounds.looked_bytes,
            beyond=[
                PassedOver(name.partition, *offsets)
                for name, batches in sorted(self.beyond.items())
                for offsets in sorted(batches.items())
            ],
        )


def read(client: Client, count: int, wanted: Wanted, clock_s: Callable[[], float]) -> FoundRecords:
    """Search for the wanted records within the bounds; `count` is the topic's number of partitions.

    Raises ValueError, BrokerError.
    """
    bounds, names = _Bounds(clock_s), _names(count, wanted)
    share = {"batch_bytes_max": FETCH_BYTES // max(1, len(names))}
    with client.consumer(**_CONSUMER | share) as consumer:
        consumer.assign(names)
        firsts, ends = consumer.find("earliest"), consumer.find("latest")
        if wanted.until:
            until = _clamped(consumer, place_of(wanted.until), firsts, ends)
            ends = {name: min(until[name], end) for name, end in ends.items()}
        looking = Looking(consumer, wanted, bounds)
        at = {
            name: min(max(wanted.cursor.get(name.partition, end), firsts[name]), end)
            for name, end in ends.items()
        }
        if wanted.start == NEWEST:
            return looking.newest(firsts, at)
        if not wanted.cursor:
            at = _clamped(consumer, place_of(wanted.start), firsts, ends)
        return looking.forward(at, ends)


def record(client: Client, name: TopicPartition, offset: int) -> ShownRecord | None:
    """A record, whole up to WHOLE_BYTES_MAX; None if the offset has no record."""
    with client.consumer(**_CONSUMER) as consumer:
        consumer.assign([name])
        if not consumer.find("earliest")[name] <= offset < consumer.find("latest")[name]:
            return None
        consumer.seek(*name, offset)
        try:
            for each in consumer.read_until({name: offset + 1}, silence_s=SILENT_S):
                return seen_of(each, WHOLE_BYTES_MAX)
        except BatchTooLarge as error:
            sentence = f"{error.fact}; the console shows none of its records, consumers read them"
            raise BrokerError(ErrorCode.MESSAGE_TOO_LARGE, sentence) from None
    return None


def _names(count: int, wanted: Wanted) -> list[TopicPartition]:
    if wanted.partition is not None:
        if wanted.partition >= count:
            raise ValueError(f"{wanted.topic} has no partition {wanted.partition}")
        return [TopicPartition(wanted.topic, wanted.partition)]
    if count > PARTITIONS_AT_ONCE:
        raise ValueError(f"{wanted.topic} has {count} partitions: choose one of them")
    return [TopicPartition(wanted.topic, each) for each in range(count)]


def _clamped(
    consumer: Consumer, place: OffsetPlace, firsts: Positions, ends: Positions
) -> Positions:
    found = consumer.find(place)
    return {name: min(max(found[name], firsts[name]), ends[name]) for name in firsts}


def contains(data: bytes | memoryview | None, part: bytes) -> bool:
    """Whether the bytes contain these. Nothing else runs while Python looks for some bytes: it
    looks into a piece at a time, and into no copy of the whole."""
    data, behind = data or b"", max(0, len(part) - 1)
    ends = range(PIECE_BYTES, len(data) - behind + PIECE_BYTES, PIECE_BYTES)
    return not part or any(part in bytes(data[end - PIECE_BYTES : end + behind]) for end in ends)


def matcher(wanted: Wanted, counted: Callable[[Headers], Headers]) -> Callable[[Record], bool]:
    """A predicate for wanted records. Text is compared as UTF-8, case-sensitively.

    It looks at the first HEADERS_MAX headers, through `counted`: a record may have millions.
    """
    key, text = wanted.key.encode(), wanted.text.encode()
    name, sign, part = wanted.header.partition("=")
    needle = part.encode()

    def matches(record: Record) -> bool:
        if key and not contains(record.key, key):
            return False
        if name and not any(
            each == name and (not sign or contains(value, needle))
            for each, value in counted(islice(record.each_header(), HEADERS_MAX))
        ):
            return False
        return not text or contains(record.value, text) or contains(record.key, text)

    return matches


def seen_of(record: Record, bytes_max: int) -> ShownRecord:
    """A copy of a record; key, value and each header are cut to `bytes_max`."""
    key, value = record.key, record.value
    first = [*islice(record.each_header(), HEADERS_MAX + 1)]
    headers = tuple(
        (name[:PREVIEW_BYTES], None if each is None else each[:PREVIEW_BYTES])
        for name, each in first[:HEADERS_MAX]
    )
    return ShownRecord(
        record.topic,
        record.partition,
        record.offset,
        record.timestamp_ms,
        None if key is None else key[:bytes_max],
        None if value is None else bytes(value[:bytes_max]),
        headers,
        _size(key),
        _size(value),
        are_headers_cut=headers != tuple(first),
    )


def _size(data: bytes | memoryview | None) -> int:
    return 0 if data is None else len(data)
