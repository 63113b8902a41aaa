"""Topics as a DataFrame with the columns of Spark's Kafka source, read from sealed segments.

Python plans from the manifest; Spark's own reader gets exact Parquet paths, so it prunes columns
and skips row groups as with any table. `timestamp` is null where it overflows, `headers` is empty
where there are none. The driver decodes `raw` segments: they hold the few records that Parquet
cannot, and header keys that are not UTF-8 are changed. Records that cannot be decoded are an error
that names them, or a warning if the caller asks for that.

A DataFrame reflects the manifest at its creation; read again to see more. Executors read segments
in a bucket themselves, through `format("smq")`. With a directory for copies these are made first
(`smq.tables.staging`), and Spark's reader prunes them. With `tail="live"` records that were not
sealed at its creation come from the broker, through `format("smq")`, when it is evaluated.
"""

import json
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from pathlib import Path
from typing import Literal, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession, functions as f

from smq.filer.location import Location
from smq.filer.store import Store
from smq.model.catalog import NAMESPACE_DEFAULT, Topic
from smq.model.segments import directory_of
from smq.sealer.cold import open_segment
from smq.sealer.parquet import LOG_APPEND_TIME
from smq.store.manifest import Manifest, open_manifest
from smq.store.store import FILE_NAME
from smq.tables.plan import Ending, Part, Starting, Unreadable, find_topic, plan
from smq.tables.raw_rows import Undecodable as Undecoded, raw_rows
from smq.tables.staging import Files

FILE_SCHEMA = (
    "_offset bigint, _ts timestamp, _key binary, _value binary, "
    "_headers array<struct<key:string,value:binary>>, partition int"
)
SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int, headers array<struct<key:string,value:binary>>"
)
CREATE_TIME_TYPE, LOG_APPEND_TIME_TYPE = 0, 1  # The numbers of Spark's Kafka source.
AT_THE_END = -1  # As in Kafka's offset JSON.
Undecodable = Literal["fail", "warn"]
Topics = str | Sequence[str] | re.Pattern[str]


def read_topic(  # noqa: PLR0913  (Options of a reader, all but two by name.)
    spark: SparkSession,
    topic: Topics,
    *,
    data_dir: Path | str,
    starting: Starting = "earliest",
    ending: Ending = "latest",
    undecodable: Undecodable = "fail",
    filer_root: Location | Path | str | None = None,
    staging: Path | str | None = None,
    tail: Literal["sealed", "live"] = "sealed",
    verify: bool = False,
) -> DataFrame:
    """The records of a topic between these offsets (a mapping: by partition).

    `topic` may be several, or a compiled pattern of whole names; offsets then cannot be given.
    `data_dir` is the broker's; it may be running. `filer_root` is its setting of that name, if the
    files are elsewhere. `staging` keeps copies of segments in a bucket. Without it executors read
    the bucket, and `undecodable="warn"` also leaves out what retention deletes until then.
    `tail="live"` also reads what is not sealed yet, from the running broker. `verify` first
    compares every file with its checksum in the manifest: Spark itself does not notice a byte that
    has changed.
    Raises Unreadable, StoreError, ValueError.
    """
    data_dir = Path(data_dir)
    has_offsets = not (isinstance(starting, str) and isinstance(ending, str))
    if has_offsets and not isinstance(topic, str):
        raise ValueError("starting and ending: offsets are of one topic; read each by itself")
    if not isinstance(filer_root, Location):
        filer_root = Location(str(filer_root if filer_root is not None else data_dir / "filer"))
    source = _Source(spark, data_dir, filer_root)
    if reads_bucket := filer_root.is_s3 and staging is None:
        verify = False  # Executors compare each file with its checksum.
    else:
        store = filer_root.open()
        files = Files(store, Path(staging) if staging is not None else None)
    frames: list[DataFrame] = []
    with open_manifest(data_dir / FILE_NAME) as manifest:
        for found in _topics(manifest, topic):
            sealed = _Sealed.of(manifest, found)
            if tail == "live":
                frames.append(source.live(sealed, starting, ending))
                starting_sealed, ending_sealed = sealed.within(starting, ending)
                parts = plan(manifest, found, starting_sealed, ending_sealed)
            else:
                parts = plan(manifest, found, starting, ending)
            if reads_bucket:
                frames.append(source.sealed(sealed, parts, undecodable))
                continue
            parquet = [part for part in parts if part.segment.kind == "parquet"]
            files.fetch([part.segment for part in parquet])
            if verify:
                _verify(store, parquet)
            directory = directory_of(found.namespace, found.name)
            reader = _Reader(spark, store, files, found.name, directory)
            frames.append(reader.parquet(parquet))
            frames += reader.raw(
                [each for each in parts if each.segment.kind == "raw"], undecodable
            )
    return reduce(DataFrame.unionByName, frames or [spark.createDataFrame([], SCHEMA)])


def _verify(store: Store, parts: Iterable[Part]) -> None:
    """Raises Damaged, which names the file."""
    with ThreadPoolExecutor() as threads:
        list(threads.map(lambda part: open_segment(store, part.segment), parts))


def _topics(manifest: Manifest, wanted: Topics) -> list[Topic]:
    if isinstance(wanted, str):
        return [find_topic(manifest, wanted)]
    if isinstance(wanted, re.Pattern):
        topics = manifest.topics()
        return [
            each
            for each in topics
            if each.namespace == NAMESPACE_DEFAULT and wanted.fullmatch(each.name)
        ]
    return [find_topic(manifest, each) for each in dict.fromkeys(wanted)]


class _Sealed(NamedTuple):
    """A topic, and where the sealed part of each partition ends."""

    topic: str
    ends: dict[int, int]

    @classmethod
    def of(cls, manifest: Manifest, topic: Topic) -> "_Sealed":
        ends = {
            partition: max(manifest.sealed_end(number), manifest.log_start(number))
            for partition, number in enumerate(topic.partition_numbers)
        }
        return cls(topic.name, ends)

    def within(self, starting: Starting, ending: Ending) -> tuple[Starting, Ending]:
        """The part of a range that is sealed."""
        starts = {} if isinstance(starting, str) else starting
        ends = {} if isinstance(ending, str) else ending
        return (
            {each: min(start, self.ends.get(each, start)) for each, start in starts.items()},
            {each: min(end, ends.get(each, end)) for each, end in self.ends.items()},
        )


class _Source(NamedTuple):
    """Ranges of a topic through `format("smq")`."""

    spark: SparkSession
    data_dir: Path
    filer: Location

    def live(self, topic: _Sealed, starting: Starting, ending: Ending) -> DataFrame:
        """What is not sealed of a range, from the broker."""
        given = {} if isinstance(starting, str) else starting
        until = {} if isinstance(ending, str) else ending
        ranges: dict[int, tuple[int, int]] = {}
        for partition, sealed_end in topic.ends.items():
            start = max(sealed_end, given.get(partition, 0))
            end = until.get(partition, AT_THE_END)
            ranges[partition] = start, end if end == AT_THE_END else max(start, end)
        return self._frame(topic.topic, ranges, "live", fails_on_loss=True)

    def sealed(self, topic: _Sealed, parts: Sequence[Part], undecodable: Undecodable) -> DataFrame:
        """These parts; executors read them with a client of the filer."""
        ranges = {partition: (end, end) for partition, end in topic.ends.items()}
        for part in parts:
            start = min(part.start, ranges[part.partition][0])
            ranges[part.partition] = start, part.end
        return self._frame(topic.topic, ranges, "sealed", fails_on_loss=undecodable == "fail")

    def _frame(
        self,
        topic: str,
        ranges: Mapping[int, tuple[int, int]],
        tail: Literal["sealed", "live"],
        *,
        fails_on_loss: bool,
    ) -> DataFrame:
        starts = {str(partition): start for partition, (start, _) in ranges.items()}
        ends = {str(partition): end for partition, (_, end) in ranges.items()}
        options = {
            "dataDir": str(self.data_dir),
            "filerRoot": self.filer.root,
            "filerEndpoint": self.filer.s3_endpoint,
            "filerRegion": self.filer.s3_region,
            "filerCredentials": self.filer.s3_credentials,
            "subscribe": topic,
            "includeHeaders": "true",
            "tail": tail,
            "startingOffsets": json.dumps({topic: starts}),
            "endingOffsets": json.dumps({topic: ends}),
            "failOnDataLoss": str(fails_on_loss).lower(),
        }
        rows = self.spark.read.format("smq").options(**options).load()
        nothing = f.array().cast("array<struct<key:string,value:binary>>")
        return rows.withColumn("headers", f.coalesce("headers", nothing))


class _Reader:
    def __init__(
        self, spark: SparkSession, store: Store, files: Files, topic: str, directory: str
    ) -> None:
        self._spark, self._store, self._files, self._topic = spark, store, files, topic
        self._directory = files.root / directory

    def parquet(self, parts: list[Part]) -> DataFrame:
        """The rows of Parquet segments. Filters by offset only segments that are read in part."""
        groups: dict[tuple[int, bool], list[Part]] = {}
        for part in parts:
            groups.setdefault((self._timestamp_type(part), part.is_cut), []).append(part)
        frames = [
            self._frame(group, timestamp_type, is_cut=is_cut)
            for (timestamp_type, is_cut), group in sorted(groups.items())
        ]
        return reduce(DataFrame.unionByName, frames or [self._spark.createDataFrame([], SCHEMA)])

    def raw(self, parts: list[Part], undecodable: Undecodable) -> list[DataFrame]:
        """The rows of raw segments."""
        tables: list[pa.Table] = []
        problems: list[str] = []
        for part in parts:
            tables += self._decoded(part, problems)
        if problems:
            sentence = "these records cannot be decoded: " + "; ".join(problems)
            if undecodable == "fail":
                raise Unreadable(sentence)
            warnings.warn(sentence, stacklevel=3)
        if not tables:
            return []
        return [self._spark.createDataFrame(pa.concat_tables(tables), SCHEMA)]

    def _frame(self, parts: list[Part], timestamp_type: int, *, is_cut: bool) -> DataFrame:
        paths = [str(self._files.root / part.segment.path) for part in parts]
        files = self._spark.read.schema(FILE_SCHEMA).option("basePath", str(self._directory))
        rows = files.parquet(*paths)
        if is_cut:
            rows = rows.where(reduce(Column.__or__, map(_holds, parts)))
        return rows.select(
            f.col("_key").alias("key"),
            f.col("_value").alias("value"),
            f.lit(self._topic).alias("topic"),
            "partition",
            f.col("_offset").alias("offset"),
            f.col("_ts").alias("timestamp"),
            f.lit(timestamp_type).alias("timestampType"),
            f.col("_headers").alias("headers"),
        )

    def _timestamp_type(self, part: Part) -> int:
        """Read the file's footer. Raises Unreadable, naming a file that was not sealed so."""
        path = self._files.path(part.segment)
        try:
            facts = pq.read_metadata(path).metadata or {}
        except (pa.ArrowException, OSError) as reason:
            raise Unreadable(f"{path} cannot be read: {reason}") from reason
        stamped = facts.get(b"smq.timestamp_type") == LOG_APPEND_TIME.encode()
        return LOG_APPEND_TIME_TYPE if stamped else CREATE_TIME_TYPE

    def _decoded(self, part: Part, problems: list[str]) -> Iterable[pa.Table]:
        for found in raw_rows(self._store, part):
            if isinstance(found, Undecoded):
                span = f"{found.start} to {found.end}"
                problems.append(f"offsets {span} in {self._files.root / part.segment.path}")
            else:
                yield self._kafka_columns(found.rows, part, stamped=found.log_append_time)

    def _kafka_columns(self, rows: pa.Table, part: Part, *, stamped: bool) -> pa.Table:
        timestamp_type = LOG_APPEND_TIME_TYPE if stamped else CREATE_TIME_TYPE
        columns = {
            "key": rows["_key"],
            "value": rows["_value"],
            "topic": pa.repeat(self._topic, rows.num_rows),
            "partition": pa.repeat(pa.scalar(part.partition, pa.int32()), rows.num_rows),
            "offset": rows["_offset"],
            "timestamp": rows["_ts"],
            "timestampType": pa.repeat(pa.scalar(timestamp_type, pa.int32()), rows.num_rows),
            "headers": rows["_headers"],
        }
        return pa.table(columns)


def _holds(part: Part) -> Column:
    """Whether a row of a segment that is read in part was requested."""
    offset = f.col("_offset")
    within = (offset >= part.start) & (offset < part.end)
    return (f.col("partition") == part.partition) & within
