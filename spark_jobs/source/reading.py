"""A batch read, and what a stream's reader has in common with it.

Filters are not pushed down: in Spark 4.3.0 a pushed filter also filters other queries of the same
DataFrame. Options prune instead, and so does a schema with fewer columns.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from smq.client.names import TopicPartition
from spark_jobs.source.options import (
    LATEST,
    Bound,
    ReadOptions,
    WrongOption,
    batch_options,
    include_headers,
    is_plan,
    location,
    typed_topic,
)
from spark_jobs.source.ranges import (
    Edges,
    clamped,
    losses,
    named_offsets,
    native_bytes,
    tasks,
)
from spark_jobs.source.rows import PieceReader
from spark_jobs.source.topics import BrokerPlace, Offsets, Piece, SparkTopics, find_place
from spark_jobs.source.typed import typed_ddl, typed_kinds

logger = logging.getLogger(__name__)

GiB = 1 << 30
LARGE_READ_BYTES = GiB  # So much takes two cores about 8 s longer than with `read_topic`.

COLUMNS = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}
PLAN_COLUMNS = {
    "topic": "string",
    "partition": "int",
    "start": "bigint",
    "end": "bigint",
    "topic_id": "string",
}


class Task(InputPartition):
    """The input of a Spark task."""

    def __init__(self, place: BrokerPlace, pieces: Sequence[Piece]) -> None:
        super().__init__(None)
        self.place, self.pieces = place, pieces


class Ranges(InputPartition):
    """The ranges of a batch of a stream with mode=plan, as rows."""

    def __init__(
        self, ranges: Mapping[TopicPartition, tuple[int, int]], ids: Mapping[str, str]
    ) -> None:
        super().__init__(None)
        self.rows = [[*name, *span, ids.get(name.topic)] for name, span in ranges.items()]


class SmqReader(DataSourceReader):
    """A batch read: planned in the driver, executed in executors."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._read, self._ending = batch_options(options)
        if is_plan(options):
            raise WrongOption("mode is 'plan'; it must be rows, except in streams")
        self._schema = typed_schema(options)
        self._columns = columns_of(schema, all_columns(self._schema))

    def partitions(self) -> list[InputPartition]:
        """The tasks. Raises Unreadable, BrokerError, StoreError, WrongOption."""
        place = find_place(self._read.location)
        with SparkTopics(place, reads_live=self._read.reads_live) as topics:
            names = topics.selected(self._read.selection)
            ids = topics.ids(names) | self._read.topic_ids
            pieces = topics.pieces(planned(topics, names, self._read, self._ending), ids)
        _advise(place, pieces)
        return tasks_of(place, pieces, self._read)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """A task's rows."""
        return read_task(partition, self._columns, self._read, self._schema)


def _advise(place: BrokerPlace, pieces: Sequence[Piece]) -> None:
    """Name the faster way, once a read, if much of it is in files that Spark itself can read."""
    if place.filer is None or place.filer.is_s3:
        return
    if (size := native_bytes(pieces)) >= LARGE_READ_BYTES:
        logger.warning(
            'format("smq") reads %.1f GiB of sealed files through Python workers; '
            "spark_jobs.read_topic and stream_topic read them with Spark's own reader, about three "
            "times as fast",
            size / GiB,
        )


def ddl(options: Mapping[str, str]) -> str:
    """The columns of Spark's Kafka source, and typed ones; with mode=plan, those of a range."""
    if is_plan(options):
        return ", ".join(f"`{name}` {kind}" for name, kind in PLAN_COLUMNS.items())
    with_headers = include_headers(options)
    names = [name for name in COLUMNS if with_headers or name != "headers"]
    kafkas = ", ".join(f"{name} {COLUMNS[name]}" for name in names)
    return kafkas + typed_ddl(typed_schema(options))


def typed_schema(options: Mapping[str, str]) -> str:
    """The `smq.schema` of the topic to read; "" without one or without `typed`.

    Raises WrongOption, Unreadable, BrokerError.
    """
    topic = typed_topic(options)
    if topic is None:
        return ""
    place = find_place(location(options))
    with SparkTopics(place, reads_live=place.data_dir is None) as topics:
        return topics.schema(topic)


def all_columns(schema: str) -> dict[str, str]:
    """The columns of Spark's Kafka source, and the typed ones of a topic's `smq.schema`."""
    return COLUMNS | typed_kinds(schema)


def planned(
    topics: SparkTopics, names: Sequence[TopicPartition], read: ReadOptions, ending: Bound
) -> dict[TopicPartition, tuple[int, int]]:
    """The range of each partition that a batch reads.

    Raises WrongOption, Unreadable, BrokerError, StoreError.
    """
    edges = Edges(topics.starts(names), topics.ends(names))
    starts = resolved(topics, "starting", read.starting, edges, read)
    ends = resolved(topics, "ending", ending, edges, read)
    for name, start in starts.items():
        if start > ends[name] and ending.everywhere != LATEST:
            raise WrongOption(
                f"{name.topic}-{name.partition} starts at offset {start}, after its end "
                f"{ends[name]}"
            )
    return clamped(starts, ends, edges, losses(read.fails_on_loss))


def columns_of(schema: StructType, columns: Mapping[str, str]) -> pa.Schema:
    """The Arrow schema that Spark requires. Raises WrongOption for an unknown column."""
    for field in schema.fields:
        kind = field.dataType.simpleString()
        if columns.get(field.name) != kind:
            allowed = ", ".join(f"{name} {type_}" for name, type_ in columns.items())
            raise WrongOption(f"the schema has {field.name} {kind}; the columns are {allowed}")
    return to_arrow_schema(schema, timezone="UTC")


def resolved(
    topics: SparkTopics, side: str, bound: Bound, edges: Edges, read: ReadOptions
) -> Offsets:
    """The offset of a bound in each partition. Raises WrongOption, BrokerError, StoreError."""
    if bound.offsets is not None:
        return named_offsets(f"{side}Offsets", bound.offsets, edges)
    if bound.everywhere is not None:
        return dict(edges.ends if bound.everywhere == LATEST else edges.starts)
    if bound.times is not None:
        times = named_offsets(f"{side}OffsetsByTimestamp", bound.times, edges)
    else:
        assert bound.time is not None
        times = dict.fromkeys(edges.starts, bound.time)
    found: Offsets = {}
    for name, offset in topics.at_times(times).items():
        if offset is None and side == "starting" and read.late_start == "error":
            raise WrongOption(
                f"No offset matched from request of topic-partition {name.topic}-{name.partition} "
                f"and timestamp {times[name]}. Set startingOffsetsByTimestampStrategy to latest "
                "to start at its end"
            )
        found[name] = edges.ends[name] if offset is None else offset
    return found


def tasks_of(
    place: BrokerPlace, pieces: Sequence[Piece], read: ReadOptions
) -> list[InputPartition]:
    """Tasks for some pieces."""
    packed = tasks(pieces, read.partitions_min, read.records_per_partition_max)
    return [Task(place, each) for each in packed]


def read_task(
    task: InputPartition | None, columns: pa.Schema, read: ReadOptions, schema: str
) -> Iterator[pa.RecordBatch]:
    """The rows of a task; none for the task that Spark makes when there are none.

    `schema` is the topic's `smq.schema`, if typed columns are read.
    """
    if isinstance(task, Ranges):
        spans = [dict(zip(PLAN_COLUMNS, each, strict=True)) for each in task.rows]
        yield pa.RecordBatch.from_pylist(spans, columns)
        return
    if isinstance(task, Task):
        rows = PieceReader(
            task.place,
            columns,
            schema,
            fails_on_loss=read.fails_on_loss,
            silence_ms=read.poll_timeout_ms,
            inflated_bytes_max=read.inflated_bytes_max,
        )
        yield from rows.read(task.pieces)
