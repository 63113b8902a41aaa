"""A topic's rows for DuckDB, all of them fetched from its broker: nobody need read the files.

DuckDB scans the records as a data set of Arrow's, as often as a query names the topic. Each scan
fetches them anew, a few at a time, so that a topic may be larger than memory; of the filters that
DuckDB hands on those of partition, offset and time decide what is fetched.
"""

import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.dataset as ds

from smq.client.client import Client
from smq.client.consuming.consumer import Consumer
from smq.client.errors import BatchTooLarge, BrokerUnavailable, UnreadableBatch
from smq.client.kafka.admin import topic_configs
from smq.client.kafka.cluster import Cluster, TopicFacts
from smq.client.kafka.offsets import EARLIEST, OffsetPlace
from smq.client.locate import KAFKA
from smq.client.names import TopicPartition
from smq.model.errors import BrokerError, ErrorCode, PeerError
from smq.model.topic_settings import schema_of
from smq.sealer.typed import Typing, typed_columns
from smq.sql.session import mentioned
from smq.sql.topics import select_arrow, unreadable
from smq.sql.wanted import Range, first_time_ms, wanted_ranges
from smq.tables import live
from smq.tables.plan import Unreadable
from smq.tables.raw_rows import UndecodableRange

PIECE_BYTES = 16 * 1024 * 1024  # Of rows that DuckDB gets at once.
NO_ZONE = pa.timestamp("us")  # DuckDB hands on no filter of a column that it has to cast.


@dataclass(frozen=True, slots=True)
class BrokerTopics:
    """Topics of a broker whose files are not read.

    client    reads records, by Kafka's protocol
    cluster   is asked for topics and their types
    """

    client: Client
    cluster: Cluster

    def __post_init__(self) -> None:
        # What is lent from shared memory is overwritten while DuckDB takes its time.
        assert self.client.transport == KAFKA

    def rows(self, query: str, bytes_max: int) -> tuple[list[str], list["BrokerRows"]]:
        """All topics' names, and the rows of those that the query names.

        Raises QueryRefused, BrokerError.
        """
        # One answer: a topic that is created again meanwhile would have the partitions of another.
        told = self.cluster.retrying(self.cluster.topics)
        topics = {each.name: each for each in told if not each.is_internal}
        found = [self._rows(topics[name], bytes_max) for name in mentioned(query, topics)]
        return list(topics), found

    def schema(self, name: str) -> str:
        """The topic's `smq.schema`; "" without one, and to users who may not see its configs."""
        try:
            configs = self.cluster.retrying(lambda: topic_configs(self.cluster, name))
        except BrokerError as error:
            if error.code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise
            return ""
        return schema_of({each.name: each.value or "" for each in configs})

    def _rows(self, topic: TopicFacts, bytes_max: int) -> "BrokerRows":
        """The rows up to each partition's end as it is now."""
        name = topic.name
        with self.client.consumer(isolation_level=live.ISOLATION_LEVEL) as consumer:
            consumer.assign((name, each) for each in range(len(topic.leaders)))
            ends, starts = consumer.find("latest"), consumer.find("earliest")
        ranges = {each.partition: (start, ends[each]) for each, start in starts.items()}
        types = self.schema(name)
        records = BrokerRecords(self.client, name, topic.topic_id, ranges, types, bytes_max)
        return BrokerRows(name, types, records)


@dataclass(frozen=True, slots=True)
class BrokerRows:
    """The rows of a topic, as `smq.sql.topics.TopicRows` has them of files."""

    name: str
    schema: str
    arrow: "BrokerRecords"

    def paths(self) -> list[str]:
        """The files that DuckDB opens: none."""
        return []

    def select(self, arrow_name: str) -> str:
        """SQL for all rows, keys and values as bytes. `arrow_name` is a view of `arrow`."""
        return select_arrow(arrow_name, self.schema)

    def places(self) -> Sequence[str]:
        """Where the rows come from, in words."""
        return [
            f"from the broker: partition {partition}, offsets {start} to {end - 1}"
            for partition, (start, end) in sorted(self.arrow.ranges.items())
            if start < end
        ]

    @property
    def failure(self) -> BaseException | None:
        """The error that a scan met, which DuckDB tells as one of its own."""
        return self.arrow.failure

    def stop(self) -> None:
        """End scans that wait for the broker."""
        self.arrow.is_stopped.set()


@dataclass(frozen=True, slots=True)
class RecordScan:
    """One scan of records. DuckDB makes a reader of it."""

    records: "BrokerRecords"
    columns: pa.Schema
    wanted: ds.Expression | None

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows that the filter keeps, with these columns."""
        return pa.RecordBatchReader.from_batches(self.columns, self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for rows in self.records.tables(self._needed(), self.wanted):
            kept = rows if self.wanted is None else rows.filter(self.wanted)
            yield from kept.select(self.columns.names).to_batches()

    def _needed(self) -> set[str]:
        """The columns that are selected, and those that the filter names."""
        text = str(self.wanted)
        return {
            name
            for name in self.records.schema.names
            if name in self.columns.names or re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)
        }


class BrokerRecords(ds.Dataset):  # type: ignore[misc]
    """The records [start, end) of a topic's partitions, and the typed columns of its values.

    failure   the error that a scan met
    """

    def __init__(  # noqa: PLR0913, PLR0917  (Arrow's own has no arguments, and makes nothing.)
        self,
        client: Client,
        topic: str,
        topic_id: UUID,
        ranges: Mapping[int, Range],
        types: str,
        bytes_max: int,
    ) -> None:
        self._client, self._topic, self._topic_id = client, topic, topic_id
        self._bytes_max = bytes_max
        self._typing = Typing(types) if types else None
        self._typed = list(typed_columns(types) or ()) if types else []
        plain = [each.with_type(NO_ZONE if each.name == "timestamp" else each.type)
                 for each in live.SCHEMA]  # fmt: skip
        self._schema = pa.schema([*plain, *self._typed])
        self.ranges = ranges
        self.failure: BaseException | None = None
        self.is_stopped = threading.Event()

    @property
    def schema(self) -> pa.Schema:
        """All columns."""
        return self._schema

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: ds.Expression | None = None,  # noqa: A002  (Arrow's)
        **_: Any,  # noqa: ANN401  (Arrow's)
    ) -> RecordScan:
        """What DuckDB asks for a scan of some columns of some rows."""
        names = self._schema.names if columns is None else columns
        return RecordScan(self, pa.schema([self._schema.field(each) for each in names]), filter)

    def tables(self, needed: set[str], wanted: ds.Expression | None) -> Iterator[pa.Table]:
        """All rows that a filter may keep, with the needed columns; keeps the error that it meets.

        Raises Unreadable, TooMuch, BrokerError, PeerError.
        """
        try:
            yield from self._tables(needed, wanted)
        except (BrokerError, PeerError, Unreadable, KeyboardInterrupt) as error:
            self.failure = error
            raise

    def _tables(self, needed: set[str], wanted: ds.Expression | None) -> Iterator[pa.Table]:
        ranges = wanted_ranges(self._schema, wanted, self.ranges)
        if not ranges:
            return
        with self._client.consumer(
            start=0,  # An offset that there is not any more is an error, not a place to go on.
            batch_bytes_max=live.BATCH_BYTES,
            inflated_bytes_max=self._bytes_max,
            isolation_level=live.ISOLATION_LEVEL,
            topic_ids={self._topic: self._topic_id},
        ) as consumer:
            consumer.assign((self._topic, each) for each in ranges)
            ranges = self._from_time(consumer, wanted, ranges)
            for partition, (start, _) in ranges.items():
                consumer.seek(self._topic, partition, start)
            ends = {each: end for each, (_, end) in ranges.items()}
            names = self._lent_names(needed)
            for lent in self._polled(consumer, ends, ["partition", "offset", *names]):
                yield from self._widened(lent, needed, names, ends)

    def _from_time(
        self, consumer: Consumer, wanted: ds.Expression | None, ranges: dict[int, Range]
    ) -> dict[int, Range]:
        """The ranges without what is before the first time that the filter may keep.

        The last offset is read in any case, by which a topic shows that it is still the one. Raises
        Unreadable if records of these ranges have been deleted.
        """
        time_ms = first_time_ms(self._schema, wanted, ranges)
        if time_ms is None or time_ms <= 0:  # Brokers find no time before 1970.
            return ranges
        found = consumer.find(OffsetPlace(timestamp=time_ms))
        earliest, later = consumer.find(EARLIEST), dict[int, Range]()
        for each, (start, end) in ranges.items():
            partition = TopicPartition(self._topic, each)
            if start < earliest[partition]:
                raise Unreadable(
                    f"{self._topic}-{each} has no offset {start}; "
                    "records were deleted while the query ran"
                )
            later[each] = (min(end - 1, max(start, found[partition])), end)
        return later

    def _polled(
        self, consumer: Consumer, ends: Mapping[int, int], names: Iterable[str]
    ) -> Iterator[pa.Table]:
        """Rows up to these ends or slightly beyond, lent until the next, in pieces."""
        columns = list(dict.fromkeys(names))
        clock = consumer.clock
        deadline = clock.monotonic_s() + live.SILENCE_S
        partitions = {TopicPartition(self._topic, each): end for each, end in ends.items()}
        while not live.is_read(consumer, self._topic, ends):
            before = sum(consumer.position(*each) for each in partitions)
            try:
                with consumer.poll_up_to(partitions, live.POLL_S) as batch:
                    if len(batch):
                        yield from _pieces(batch.to_arrow(columns))
            except BrokerError as error:
                raise self._worded(error) from error
            if self.is_stopped.is_set():
                raise Unreadable(f"the rest of {self._topic} was not waited for")
            if sum(consumer.position(*each) for each in partitions) > before:
                deadline = clock.monotonic_s() + live.SILENCE_S
            elif clock.monotonic_s() > deadline:
                raise BrokerUnavailable(
                    f"the rest of {self._topic} did not arrive for {live.SILENCE_S:.0f} s"
                )

    def _worded(self, error: BrokerError) -> Exception:
        if isinstance(error, UnreadableBatch):
            is_too_large = isinstance(error, BatchTooLarge)
            found = UndecodableRange(error.start, error.end, is_too_large=is_too_large)
            return unreadable(f"{self._topic}-{error.partition}", found, self._bytes_max)
        if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return Unreadable(f"{error.message}; they were deleted while the query ran")
        return error

    def _is_typed(self, needed: set[str]) -> bool:
        return self._typing is not None and any(each.name in needed for each in self._typed)

    def _lent_names(self, needed: set[str]) -> list[str]:
        """The records' own columns of which the needed ones are made."""
        typed = self._is_typed(needed)
        return [each for each in live.SCHEMA.names if each in needed or (typed and each == "value")]

    def _widened(
        self, lent: pa.Table, needed: set[str], names: list[str], ends: Mapping[int, int]
    ) -> Iterator[pa.Table]:
        """The needed columns of lent rows before these ends, in memory of their own."""
        owned, is_before = live.owned(lent, names), live.are_before(lent, ends)
        if not is_before.all():
            owned = owned.filter(pa.array(is_before))
        if "timestamp" in names:
            at = names.index("timestamp")
            column = owned["timestamp"]
            plain = pa.chunked_array([each.view(NO_ZONE) for each in column.chunks], NO_ZONE)
            owned = owned.set_column(at, "timestamp", plain)
        if self._is_typed(needed):
            assert self._typing is not None
            yield from (part for part, _ in self._typing.widened(owned, "value"))
        else:
            yield owned


def _pieces(lent: pa.Table) -> Iterator[pa.Table]:
    """Rows in pieces of about PIECE_BYTES."""
    rows = max(1, lent.num_rows * PIECE_BYTES // max(PIECE_BYTES, lent.nbytes))
    for start in range(0, lent.num_rows, rows):
        yield lent.slice(start, rows)
