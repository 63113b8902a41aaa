"""Searches a topic for records, bounded by time, records and bytes; reports how far it got.

    forward    from a place on, until it has enough records or reaches a bound; continues there
    newest     windows of offsets below the ends, newest first, each read whole; continues below

If the first window does not fit into the bounds, it shrinks, down to one offset of each partition.
That much is always read, so a search always makes progress.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from smq.app.front.desk.places import place_of
from smq.client.client import Client
from smq.client.consuming.batch.chunk import Record
from smq.client.consuming.consumer import Consumer
from smq.client.kafka.offsets import OffsetPlace
from smq.client.names import TopicPartition
from smq.front.console.desk import (
    HEADERS_MAX,
    NEWEST,
    PARTITIONS_AT_ONCE,
    PREVIEW_BYTES,
    FoundRecords,
    ShownRecord,
    Wanted,
)
from smq.model.errors import BrokerError, ErrorCode

SECONDS = 2.0  # For one answer.
RECORDS_MAX = 200_000  # Examined for one answer.
LOOKED_BYTES_MAX = 64 * 1024 * 1024
POLL_S = 0.5
SILENT_S = 10.0  # Without any record: a cold read may fetch a segment from S3.
FETCH_BYTES = 1024 * 1024  # Per partition and fetch.
WINDOW = 1000  # The first window of a search for the newest: offsets of each partition.
WINDOW_MAX = 64_000
WHOLE_BYTES_MAX = 8 * 1024 * 1024  # The largest record shown on its own page, or downloaded.

_CONSUMER: dict[str, Any] = {
    "start": "earliest",
    "batch_bytes_max": FETCH_BYTES,
    "isolation_level": "read_committed",
}
"""Records of aborted and of open transactions are not shown."""

Positions = dict[TopicPartition, int]


class _TooMuch(Exception):
    """A window exceeds the bounds."""


@dataclass(slots=True)
class _Bounds:
    """The budget of one answer, and how much of it is used."""

    clock_s: Callable[[], float]
    until_s: float = 0.0
    looked: int = 0
    looked_bytes: int = 0

    def begin(self) -> None:
        """Reset the usage to zero."""
        self.until_s = self.clock_s() + SECONDS
        self.looked = self.looked_bytes = 0

    def add(self, record: Record) -> None:
        """Count a record against the budget."""
        self.looked += 1
        self.looked_bytes += _size(record.key) + _size(record.value)

    @property
    def are_reached(self) -> bool:
        return (
            self.looked >= RECORDS_MAX
            or self.looked_bytes >= LOOKED_BYTES_MAX
            or self.clock_s() >= self.until_s
        )


@dataclass(frozen=True, slots=True)
class Looking:
    """One search, with one consumer."""

    consumer: Consumer
    wanted: Wanted
    bounds: _Bounds
    _matches: Callable[[Record], bool] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_matches", matcher(self.wanted))

    def forward(self, starts: Positions, ends: Positions) -> FoundRecords:
        """Records from `starts` up to `ends`, in arrival order."""
        found: list[ShownRecord] = []
        positions = dict(starts)
        for record in self._records(positions, ends):
            if self._matches(record):
                found.append(seen_of(record, PREVIEW_BYTES))
            if len(found) >= self.wanted.limit or self.bounds.are_reached:
                break
        left = {name: at for name, at in positions.items() if at < ends[name]}
        cursor = {name.partition: at for name, at in positions.items()} if left else {}
        return self._found(found, cursor)

    def newest(self, firsts: Positions, ends: Positions) -> FoundRecords:
        """The newest records below `ends`, newest first."""
        found: list[ShownRecord] = []
        highs = dict(ends)
        window = WINDOW if self.wanted.is_search else self.wanted.limit
        while len(found) < self.wanted.limit and any(highs[x] > firsts[x] for x in highs):
            lows = {name: max(firsts[name], high - window) for name, high in highs.items()}
            try:
                found += self._window(lows, highs, is_least=window == 1)
            except _TooMuch:
                if highs != ends:
                    break
                window = max(1, window // 8)
                self.bounds.begin()
                continue
            highs = lows
            window = min(WINDOW_MAX, window * 2)
            if self.bounds.are_reached:
                break
        found.sort(key=lambda each: (each.timestamp_ms, each.partition, each.offset), reverse=True)
        taken, rest = found[: self.wanted.limit], found[self.wanted.limit :]
        for each in rest:  # A later search continues above them and finds them again.
            name = TopicPartition(each.topic, each.partition)
            highs[name] = max(highs[name], each.offset + 1)
        is_more = any(highs[name] > firsts[name] for name in highs)
        cursor = {name.partition: high for name, high in highs.items()} if is_more else {}
        return self._found(taken, cursor)

    def _window(self, lows: Positions, highs: Positions, *, is_least: bool) -> list[ShownRecord]:
        """All matching records of a window. Raises _TooMuch unless it has the minimum size."""
        found = []
        for record in self._records(dict(lows), highs):
            if self._matches(record):
                found.append(seen_of(record, PREVIEW_BYTES))
            if self.bounds.are_reached and not is_least:
                raise _TooMuch
        return found

    def _records(self, positions: Positions, ends: Positions) -> Iterator[Record]:
        """Records from `positions` up to `ends`; advances `positions`.

        Raises BrokerError if no record arrives for SILENT_S.
        """
        left = {name for name, at in positions.items() if at < ends[name]}
        if not left:
            return
        self.consumer.assign(left)
        for name in left:
            self.consumer.seek(*name, positions[name])
        heard_s = self.bounds.clock_s()
        while left:
            batch = self.consumer.poll(POLL_S)
            if batch:
                heard_s = self.bounds.clock_s()
            elif self.bounds.clock_s() >= heard_s + SILENT_S:
                raise _silent(self.wanted)
            for record in self.consumer.walk(batch, ends):
                self.bounds.add(record)
                positions[TopicPartition(record.topic, record.partition)] = record.offset + 1
                yield record
            positions |= {name: self.consumer.position(*name) for name in left}
            for name in [name for name in left if positions[name] >= ends[name]]:
                left.remove(name)
                self.consumer.pause(*name)

    def _found(self, records: list[ShownRecord], cursor: Mapping[int, int]) -> FoundRecords:
        return FoundRecords(
            records=records,
            cursor=cursor,
            looked=self.bounds.looked,
            looked_bytes=self.bounds.looked_bytes,
        )


def read(client: Client, count: int, wanted: Wanted, clock_s: Callable[[], float]) -> FoundRecords:
    """Search for the wanted records within the bounds; `count` is the topic's number of partitions.

    Raises ValueError, BrokerError.
    """
    bounds = _Bounds(clock_s)
    bounds.begin()
    with client.consumer(**_CONSUMER) as consumer:
        consumer.assign(_names(count, wanted))
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
        for each in consumer.read_until({name: offset + 1}):
            return seen_of(each, WHOLE_BYTES_MAX)
    return None


def _silent(wanted: Wanted) -> BrokerError:
    sentence = f"{wanted.topic} has given no record for {SILENT_S:g} s; try again"
    return BrokerError(ErrorCode.REQUEST_TIMED_OUT, sentence)


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


def matcher(wanted: Wanted) -> Callable[[Record], bool]:
    """A predicate for wanted records. Text is compared as UTF-8, case-sensitively."""
    key, text = wanted.key.encode(), wanted.text.encode()
    name, sign, part = wanted.header.partition("=")
    needle = part.encode()

    def matches(record: Record) -> bool:
        if key and key not in (record.key or b""):
            return False
        if name and not any(
            each == name and (not sign or needle in (value or b""))
            for each, value in record.each_header()
        ):
            return False
        return not text or text in bytes(record.value or b"") or text in (record.key or b"")

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
