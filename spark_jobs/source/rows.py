"""Reads the rows of a task, as Arrow batches with the columns of Spark's Kafka source.

Sealed segments are read in place through their store: local files, or bucket objects by each
executor. Unsealed records come from the broker, and all of them where files are not read.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from smq.client.client import Client, connect
from smq.client.consuming.consumer import Consumer
from smq.client.consuming.consumer_settings import INFLATED_BYTES_MAX
from smq.client.errors import (
    BatchTooLarge,
    BrokerUnavailable,
    TopicReplaced,
    UnreadableBatch,
)
from smq.client.names import TopicPartition
from smq.filer.location import Location as Filer
from smq.filer.store import Store
from smq.model.errors import BrokerError, ErrorCode, StoreError
from smq.sealer.cold import Damaged, open_segment
from smq.sealer.parquet_segment import ParquetSegment
from smq.sealer.typed import Typing, typed_columns
from smq.tables.live import BATCH_BYTES, ISOLATION_LEVEL, POLL_S, owned
from smq.tables.plan import SegmentPart, Unreadable
from smq.tables.raw_rows import UndecodableRange, raw_rows
from spark_jobs.source.topics import BrokerPlace, Piece, may_read

logger = logging.getLogger(__name__)

CREATE_TIME, LOG_APPEND_TIME = 0, 1  # The numbers of Spark's Kafka source.
BATCH_ROWS = 64 * 1024
SEALED_COLUMN = {
    "key": "_key",
    "value": "_value",
    "offset": "_offset",
    "timestamp": "_ts",
    "headers": "_headers",
}


class PieceReader:
    """Reads pieces, in order.

    columns             the fields that Spark wants, in its order and with its types
    schema              the topic's `smq.schema`, if typed columns are among them
    fails_on_loss       whether undecodable records are an error; otherwise they are left out
    silence_ms          how long to wait for a silent broker
    inflated_bytes_max  how far a batch may inflate; otherwise its records are undecodable
    """

    def __init__(  # noqa: PLR0913  (each is an option)
        self,
        place: BrokerPlace,
        columns: pa.Schema,
        schema: str = "",
        *,
        fails_on_loss: bool,
        silence_ms: int,
        inflated_bytes_max: int = INFLATED_BYTES_MAX,
    ) -> None:
        self._place, self._columns = place, columns
        typed = typed_columns(schema) or pa.schema([])
        self._typed = [field for field in typed if field.name in columns.names]
        self._typing = Typing(schema) if self._typed else None
        wanted = {"offset", *columns.names, *(["value"] if self._typed else [])}
        self._lent = [each for each in SEALED_COLUMN if each in wanted]
        self._fails_on_loss, self._silence_s = fails_on_loss, silence_ms / 1000
        self._inflated_bytes_max = inflated_bytes_max

    def read(self, pieces: Sequence[Piece]) -> Iterator[pa.RecordBatch]:
        """The rows of pieces. Raises Unreadable, Damaged, BrokerError."""
        with ExitStack() as stack:
            store: Store | None = None
            client: Client | None = None
            for piece in pieces:
                if piece.part is None:
                    if client is None:
                        place = self._place
                        assert place.bootstrap is not None
                        opened = connect(
                            place.bootstrap, config=place.config, transport=place.transport
                        )
                        client = stack.enter_context(opened)
                    tables = self._from_broker(client, piece)
                else:
                    filer = self._place.filer
                    assert filer is not None
                    store = store or filer.open()
                    part = piece.part._replace(start=piece.start, end=piece.end)
                    tables = _or_advise(self._sealed(store, piece, part), filer)
                for table in tables:
                    yield from table.combine_chunks().to_batches(BATCH_ROWS)

    def _sealed(self, store: Store, piece: Piece, part: SegmentPart) -> Iterator[pa.Table]:
        if part.segment.kind == "raw":
            yield from self._raw(store, piece, part)
            return
        segment = open_segment(store, part.segment)
        assert isinstance(segment, ParquetSegment)
        names = [SEALED_COLUMN[each] for each in self._columns.names if each in SEALED_COLUMN]
        kind = LOG_APPEND_TIME if segment.is_log_append else CREATE_TIME
        there = set(segment.columns)
        names += [each.name for each in self._typed if each.name in there]
        lacking = [each for each in self._typed if each.name not in there]
        for rows in segment.rows(part.start, part.end, names or ["_offset"]):
            for field in lacking:  # The file is older than this column of the topic.
                rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))  # noqa: PLW2901
            yield self._named(rows, piece, kind)

    def _raw(self, store: Store, piece: Piece, part: SegmentPart) -> Iterator[pa.Table]:
        for found in raw_rows(store, part, self._inflated_bytes_max):
            if isinstance(found, UndecodableRange):
                self._pass_over(
                    f"{piece.topic}-{piece.partition}: the records at offsets {found.start} to "
                    f"{found.end - 1} {self._fault(is_too_large=found.is_too_large)}"
                )
                continue
            kind = LOG_APPEND_TIME if found.log_append_time else CREATE_TIME
            for rows in self._widened(found.rows):
                yield self._named(rows, piece, kind)

    def _fault(self, *, is_too_large: bool) -> str:
        if is_too_large:
            bytes_max = f"{self._inflated_bytes_max} bytes (inflatedBytesMax)"
            return f"inflate to more than {bytes_max}, or their columns do"
        return "cannot be decoded"

    def _pass_over(self, sentence: str) -> None:
        """Warn of records that are left out. Raises Unreadable if that is not wanted."""
        if self._fails_on_loss:
            raise Unreadable(f"{sentence}. To leave them out set failOnDataLoss to false")
        logger.warning(sentence)

    def _from_broker(self, client: Client, piece: Piece) -> Iterator[pa.Table]:
        with client.consumer(
            start=piece.start,  # Where there is none any more, that is told.
            batch_bytes_max=BATCH_BYTES,
            inflated_bytes_max=self._inflated_bytes_max,
            isolation_level=ISOLATION_LEVEL,
            topic_ids={piece.topic: piece.topic_id},
        ) as consumer:
            consumer.assign([(piece.topic, piece.partition)])
            for rows, kinds in self._polled(consumer, piece):
                found = rows.rename_columns(
                    [SEALED_COLUMN.get(each, each) for each in rows.column_names]
                )
                inside = pc.less(found["_offset"], piece.end)
                kinds = kinds.filter(inside)  # noqa: PLW2901
                for part in self._widened(found.filter(inside)):
                    yield self._named(part, piece, kinds[: len(part)])
                    kinds = kinds[len(part) :]  # noqa: PLW2901

    def _polled(self, consumer: Consumer, piece: Piece) -> Iterator[tuple[pa.Table, pa.Array]]:
        """Rows up to the piece's end or slightly beyond, with their timestamps' types."""
        clock = consumer.clock
        deadline = clock.monotonic_s() + self._silence_s
        ends = {TopicPartition(piece.topic, piece.partition): piece.end}
        while (before := consumer.position(piece.topic, piece.partition)) < piece.end:
            try:
                with consumer.poll_up_to(ends, POLL_S) as batch:
                    rows = owned(batch.to_arrow(self._lent), self._lent)
                    kinds = pa.array(batch.are_append_times().astype(np.int32))
            except BrokerError as error:
                if not self._goes_on(consumer, piece, error):
                    return
                continue
            if consumer.position(piece.topic, piece.partition) > before:
                deadline = clock.monotonic_s() + self._silence_s
            if rows.num_rows:
                yield rows, kinds
            elif clock.monotonic_s() > deadline:
                raise BrokerUnavailable(
                    f"offsets of {piece.topic}-{piece.partition} up to {piece.end} did not arrive "
                    f"for {self._silence_s:.0f} s (kafkaConsumer.pollTimeoutMs)"
                )

    def _goes_on(self, consumer: Consumer, piece: Piece, error: BrokerError) -> bool:
        """Seek to the records behind those that cannot be read; False if there are none.

        Raises Unreadable if that is not wanted, and the error if it is no such one.
        """
        place = f"{piece.topic}-{piece.partition}"
        if isinstance(error, UnreadableBatch):
            fault = self._fault(is_too_large=isinstance(error, BatchTooLarge))
            behind = error.end
            self._pass_over(
                f"{place}: the records at offsets {error.start} to {behind - 1} {fault}"
            )
        elif isinstance(error, TopicReplaced):
            self._pass_over(f"{error.message}, and its records are gone")
            return False
        elif error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._pass_over(error.message or f"{place} has not all offsets up to {piece.end}")
            before = consumer.position(piece.topic, piece.partition)
            behind = consumer.find("earliest")[TopicPartition(piece.topic, piece.partition)]
            if behind <= before:  # It is the end that is before it.
                return False
        else:
            raise error
        consumer.seek(piece.topic, piece.partition, behind)
        return True

    def _widened(self, rows: pa.Table) -> Iterator[pa.Table]:
        """Rows that lack the typed columns with these, in parts."""
        if self._typing is None:
            yield rows
        else:
            yield from (part for part, _ in self._typing.widened(rows, "_value"))

    def _named(self, rows: pa.Table, piece: Piece, kinds: int | pa.Array) -> pa.Table:
        """Spark's columns from rows with a segment's columns."""
        return pa.table(
            [self._column(field.name, rows, piece, kinds) for field in self._columns],
            names=self._columns.names,
        ).cast(self._columns)

    def _column(
        self, name: str, rows: pa.Table, piece: Piece, kinds: int | pa.Array
    ) -> pa.ChunkedArray | pa.Array:
        if name == "topic":
            return pa.repeat(piece.topic, rows.num_rows)
        if name == "partition":
            return pa.repeat(pa.scalar(piece.partition, pa.int32()), rows.num_rows)
        if name == "timestampType":
            if isinstance(kinds, int):
                return pa.repeat(pa.scalar(kinds, pa.int32()), rows.num_rows)
            return kinds
        column = rows[SEALED_COLUMN.get(name, name)]
        return _headers(column) if name == "headers" else column


def _or_advise(tables: Iterator[pa.Table], filer: Filer) -> Iterator[pa.Table]:
    """Say what helps where the driver may read files, and this node may not.

    Raises Unreadable, Damaged.
    """
    try:
        yield from tables
    except StoreError as error:
        if isinstance(error, Damaged) and may_read(filer):
            raise
        raise Unreadable(
            f"{error}; if this node has not the broker's files, or may not read them, set the "
            "option transport=kafka: all records come from the broker then"
        ) from error


def _headers(column: pa.ChunkedArray) -> pa.Array:
    """Null where there are none, as Spark's Kafka source gives them.

    A list array with a mask: Arrow's `if_else` copies lists item by item, at a tenth of the speed.
    """
    lists = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    if not pc.any(pc.greater(pc.list_value_length(lists), 0)).as_py():
        return pa.nulls(len(lists), column.type)
    ends = pa.array(lists.offsets.to_numpy())  # A mask needs offsets that start at zero.
    is_empty = pc.fill_null(pc.equal(pc.list_value_length(lists), 0), fill_value=True)
    return pa.ListArray.from_arrays(ends, lists.values, type=column.type, mask=is_empty)
