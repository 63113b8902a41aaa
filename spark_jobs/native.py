"""Reads pieces of topics as a DataFrame: Python plans, Spark's own Parquet reader reads.

Spark gets the exact files of the manifest, so it prunes columns and skips row groups as with any
table. `timestamp` is null outside the years 1 to 9999, `headers` is empty where there are none.
Executors read what Spark's reader cannot through `format("smq")`: raw segments, segments in a
bucket, and unsealed records.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession, functions as f

from smq.client.names import TopicPartition
from smq.filer.location import Location as Filer
from smq.model.catalog import NAMESPACE_DEFAULT
from smq.model.segments import directory_of
from smq.sealer.cold import open_segment
from smq.sealer.parquet import LOG_APPEND_TIME
from smq.tables.plan import SegmentPart, Unreadable
from smq.tables.staging import Files
from spark_jobs.source.topics import BrokerPlace, Piece
from spark_jobs.source.typed import typed_ddl, typed_kinds

FILE_SCHEMA = (
    "_offset bigint, _ts timestamp, _key binary, _value binary, "
    "_headers array<struct<key:string,value:binary>>, partition int"
)
SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int, headers array<struct<key:string,value:binary>>"
)
CREATE_TIME_TYPE, LOG_APPEND_TIME_TYPE = 0, 1  # The numbers of Spark's Kafka source.
LABEL = b"smq.timestamp_type"
TAIL_BYTES = 16 * 1024  # The end of a file's footer, which has our labels.
LABEL_END_BYTES = 32  # From the label's name to the end of its value.

Range = tuple[int, int]


class PieceReading(NamedTuple):
    """How to read pieces.

    staging        a directory for copies of segments in a bucket; None: executors read the bucket
    verifies       checks each file's checksum first, as executors always do: Spark's own reader
                   does not notice a changed byte
    schema         the topic's `smq.schema`, which adds its typed columns to Kafka's
    fails_on_loss  whether missing or undecodable records are an error; otherwise they are left out
    """

    spark: SparkSession
    place: BrokerPlace
    staging: Path | None = None
    verifies: bool = False
    fails_on_loss: bool = True
    schema: str = ""

    def frame(self, pieces: Sequence[Piece]) -> DataFrame:
        """The rows of pieces: SCHEMA, and typed columns.

        Raises Unreadable, StoreError, Damaged.
        """
        filer = self.place.filer
        is_native = filer is not None and (not filer.is_s3 or self.staging is not None)
        native: dict[str, list[SegmentPart]] = {}
        sealed: list[Piece] = []
        live = [each for each in pieces if each.part is None]
        for piece in pieces:
            if piece.part is None:
                continue
            if is_native and piece.part.segment.kind == "parquet":
                part = piece.part._replace(start=piece.start, end=piece.end)
                native.setdefault(piece.topic, []).append(part)
            else:
                sealed.append(piece)
        frames = [each for topic, parts in native.items() for each in self._native(topic, parts)]
        ids = {each.topic: each.topic_id.hex for each in pieces if each.topic_id.int}
        frames += [self._rows(ranges, "sealed", ids) for ranges in layers(sealed)]
        frames += [self._rows(ranges, "live", ids) for ranges in layers(live)]
        if not frames:
            return self.spark.createDataFrame([], SCHEMA + typed_ddl(self.schema))
        return reduce(DataFrame.unionByName, frames)

    def _native(self, topic: str, parts: Sequence[SegmentPart]) -> Iterable[DataFrame]:
        """Spark's frames; filters by offset only the segments that are read in part.

        Expressions are SQL text, since each Column object is a few calls to the JVM, which a stream
        repeats for each batch. A topic's name has no quotes.
        """
        assert self.place.filer is not None
        store = self.place.filer.open()
        files = Files(store, self.staging)
        files.fetch([part.segment for part in parts])
        if self.verifies:
            with ThreadPoolExecutor() as threads:
                list(threads.map(lambda part: open_segment(store, part.segment), parts))
        groups: dict[tuple[int, bool], list[SegmentPart]] = {}
        for part in parts:
            kind = timestamp_type(files.path(part.segment))
            groups.setdefault((kind, part.is_cut), []).append(part)
        for (kind, is_cut), group in sorted(groups.items()):
            rows = self._parquet(files.root, topic, group)
            if is_cut:
                rows = rows.where(" or ".join(map(_holds, group)))
            yield rows.selectExpr(
                "_key as key",
                "_value as value",
                f"'{topic}' as topic",
                "partition",
                "_offset as `offset`",  # A reserved word where Spark enforces those of ANSI.
                "_ts as timestamp",
                f"{kind} as timestampType",
                "_headers as headers",
                *(f"`{name}`" for name in typed_kinds(self.schema)),
            )

    def _parquet(self, root: Path, topic: str, parts: Sequence[SegmentPart]) -> DataFrame:
        directory = str(root / directory_of(NAMESPACE_DEFAULT, topic))
        files = self.spark.read.schema(FILE_SCHEMA + typed_ddl(self.schema)).option(
            "basePath", directory
        )
        return files.parquet(*(str(root / part.segment.path) for part in parts))

    def _rows(
        self, ranges: Mapping[TopicPartition, Range], tail: str, ids: Mapping[str, str]
    ) -> DataFrame:
        """Read ranges through `format("smq")`."""
        partitions: dict[str, list[int]] = {}
        starts: dict[str, dict[str, int]] = {}
        ends: dict[str, dict[str, int]] = {}
        for (topic, partition), (start, end) in ranges.items():
            partitions.setdefault(topic, []).append(partition)
            starts.setdefault(topic, {})[str(partition)] = start
            ends.setdefault(topic, {})[str(partition)] = end
        options = {
            **location_options(self.place),
            "assign": json.dumps(partitions),
            "includeHeaders": "true",
            "tail": tail,
            "startingOffsets": json.dumps(starts),
            "endingOffsets": json.dumps(ends),
            "failOnDataLoss": str(self.fails_on_loss).lower(),
            "topicIds": json.dumps({topic: ids[topic] for topic in partitions if topic in ids}),
        }
        reader = self.spark.read.format("smq").options(**options)
        if self.schema:
            reader = reader.option("typed", "true").schema(SCHEMA + typed_ddl(self.schema))
        rows = reader.load()
        nothing = f.array().cast("array<struct<key:string,value:binary>>")
        return rows.withColumn("headers", f.coalesce("headers", nothing))


def location_options(place: BrokerPlace) -> dict[str, str]:
    """The options of `format("smq")` that describe a place."""
    connects = {"transport": place.transport}
    if place.config is not None:
        connects["clientConfig"] = place.config
    if place.data_dir is None:
        return {"kafka.bootstrap.servers": str(place.bootstrap), **connects}
    assert place.filer is not None
    return {"dataDir": str(place.data_dir), **_filer_options(place.filer), **connects}


def _filer_options(filer: Filer) -> dict[str, str]:
    return {
        "filerRoot": filer.root,
        "filerEndpoint": filer.s3_endpoint,
        "filerRegion": filer.s3_region,
        "filerCredentials": filer.s3_credentials,
    }


def layers(pieces: Iterable[Piece]) -> list[dict[TopicPartition, Range]]:
    """Merge adjacent ranges of pieces into layers with at most one range per partition."""
    found: list[dict[TopicPartition, Range]] = []
    depth: dict[TopicPartition, int] = {}
    for piece in sorted(pieces, key=lambda each: (each.topic, each.partition, each.start)):
        name = TopicPartition(piece.topic, piece.partition)
        layer = depth.get(name, -1)
        if layer >= 0 and found[layer][name][1] == piece.start:
            found[layer][name] = found[layer][name][0], piece.end
            continue
        depth[name] = layer + 1
        if layer + 1 == len(found):
            found.append({})
        found[layer + 1][name] = piece.start, piece.end
    return found


def timestamp_type(path: Path) -> int:
    """The timestamps' type in a segment, from its footer. Raises Unreadable, naming the file.

    The footer has its labels as plain text near its end. Searching only there takes a tenth of the
    time of parsing it, which matters when planning thousands of segments.
    """
    try:
        with path.open("rb", buffering=0) as file:
            file.seek(max(0, file.seek(0, 2) - TAIL_BYTES))
            tail = file.read(TAIL_BYTES)
        at = tail.rfind(LABEL)
        if at >= 0 and tail.endswith(b"PAR1"):
            label = tail[at : at + len(LABEL) + LABEL_END_BYTES]
            is_stamped = LOG_APPEND_TIME.encode() in label
        else:
            facts = pq.read_metadata(path).metadata or {}
            is_stamped = facts.get(LABEL) == LOG_APPEND_TIME.encode()
    except (pa.ArrowException, OSError) as reason:
        raise Unreadable(f"{path} cannot be read: {reason}") from reason
    return LOG_APPEND_TIME_TYPE if is_stamped else CREATE_TIME_TYPE


def _holds(part: SegmentPart) -> str:
    """SQL: whether the read requested a row of a partially read segment."""
    return f"(partition = {part.partition} and _offset >= {part.start} and _offset < {part.end})"
