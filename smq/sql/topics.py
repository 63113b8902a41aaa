"""Provides a topic's rows to DuckDB: its sealed files, read in place, and its live rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pyarrow as pa

from smq.client.client import Client
from smq.filer.location import Location
from smq.model.catalog import NAMESPACE_DEFAULT, Topic
from smq.model.topic_settings import schema_of
from smq.sealer.years import TIME_MS_MAX, TIME_MS_MIN
from smq.sql.typed import quoted, typed_names, widened, with_typed
from smq.store.manifest import Manifest
from smq.tables import live
from smq.tables.plan import SegmentPart, Unreadable, plan
from smq.tables.raw_rows import UndecodableRange, raw_rows
from smq.tables.staging import Files

# UTC without a zone: DuckDB would download its time zone extension.
_SEALED = (
    'partition::INTEGER AS partition, _offset AS "offset", {0}::TIMESTAMP AS timestamp, '
    "_key AS key, _value AS value, _headers AS headers"
)
# Files of earlier versions have timestamps outside the years 1 to 9999.
_WITHIN = f"CASE WHEN _ts_ms BETWEEN {TIME_MS_MIN} AND {TIME_MS_MAX} THEN _ts END"
_LIVE = 'partition, "offset", timestamp::TIMESTAMP AS timestamp, key, value, headers'
# As SeaweedMQ calls them: records of Parquet segments, and all others.
_PARQUET_SOURCE, _LIVE_SOURCE = "'parquet_archive' AS _source", "'live_log' AS _source"
# A record's time in nanoseconds; null beyond those of 64 bits.
_TS_NS = "try_cast(epoch_us(timestamp)::HUGEINT * 1000 AS BIGINT) AS _ts_ns"
_SEAWEEDMQ = (
    '* EXCLUDE ("offset", timestamp, key, value, headers, _source), "offset" AS _index, '
    f'"offset" AS _offset, {_TS_NS}, key AS _key, value AS _value, _source'
)
_TEXT = "coalesce(try(decode({0})), {0}::VARCHAR) AS {0}"


@dataclass(frozen=True, slots=True)
class TopicRows:
    """The files and records that a query of a topic reads.

    parts        parts of sealed segments, in order
    arrow        rows of raw segments and unsealed records, as one Arrow table
    live_ranges  by partition: the first and the end offset of unsealed records
    """

    topic: Topic
    root: Path
    parts: Sequence[SegmentPart]
    arrow: pa.Table
    live_ranges: Mapping[int, tuple[int, int]]

    def __post_init__(self) -> None:
        ends: dict[int, int] = {}
        for part in self.parts:
            # A record in two parts would count twice.
            assert ends.get(part.partition, 0) <= part.start
            ends[part.partition] = part.end
        for partition, (start, _) in self.live_ranges.items():
            assert ends.get(partition, 0) <= start  # Likewise.

    @property
    def name(self) -> str:
        """The topic's name."""
        return self.topic.name

    @property
    def failure(self) -> BaseException | None:
        """None: what is read of a broker is here before a query runs."""
        return None

    def stop(self) -> None:
        """Nothing waits for a broker."""

    def places(self) -> Sequence[str]:
        """Where the rows come from, in words."""
        lines = [
            f"{part.segment.path}: offsets {part.start} to {part.end - 1}, "
            f"{part.segment.bytes} bytes"
            for part in self.parts
        ]
        lines += [
            f"not sealed, from the broker: partition {partition}, offsets {start} to {end - 1}"
            for partition, (start, end) in sorted(self.live_ranges.items())
        ]
        return lines

    @property
    def schema(self) -> str:
        """The topic's `smq.schema`, the types of its values."""
        return schema_of(self.topic.configs)

    def paths(self) -> list[str]:
        """The Parquet files."""
        return [str(self.root / each.segment.path) for each in self._parquet()]

    def _parquet(self) -> list[SegmentPart]:
        return [each for each in self.parts if each.segment.kind == "parquet"]

    def select(self, arrow_name: str) -> str:
        """SQL for all rows, keys and values as bytes, and each one's `_source`. `arrow_name` is a
        view of `arrow`."""
        selects = [select_arrow(arrow_name, self.schema)]
        for is_cut, is_within in product((False, True), repeat=2):
            group = [
                each
                for each in self._parquet()
                if (each.is_cut, _is_within(each)) == (is_cut, is_within)
            ]
            if group:
                time = "_ts" if is_within else _WITHIN
                selects.append(_read(self.root, group, self.schema, time, is_cut=is_cut))
        return " UNION ALL ".join(selects)


def select_arrow(name: str, schema: str) -> str:
    """SQL for the rows of an Arrow table, with its typed columns (`with_typed`)."""
    return f"SELECT {_LIVE}, {_LIVE_SOURCE}{typed_names(schema)} FROM {quoted(name)}"


def bytes_select(select: str) -> str:
    """SQL for rows as they are, without their `_source`."""
    return f"SELECT * EXCLUDE (_source) FROM ({select})"


def seaweedmq_select(select: str) -> str:
    """SQL for rows as SeaweedMQ's own SQL has them: the typed columns, and its system columns."""
    return f"SELECT {_SEAWEEDMQ} FROM ({select})"


def text_select(view: str) -> str:
    """SQL for the rows of a view with keys and values as text; invalid UTF-8 is escaped."""
    key, value = _TEXT.format("key"), _TEXT.format("value")
    return f"SELECT * REPLACE ({key}, {value}) FROM {view}"


def topic_rows(
    manifest: Manifest, location: Location, topic: Topic, client: Client | None, bytes_max: int
) -> TopicRows:
    """Find the rows of a topic; read those that are in no Parquet file.

    Without a client: the sealed ones. Raises Unreadable, TooMuch, StoreError, BrokerError.
    """
    store = location.open()
    parts = plan(manifest, topic, "earliest", "latest")
    files = Files(store)
    files.fetch([each.segment for each in parts if each.segment.kind == "parquet"])
    tables = [live.SCHEMA.empty_table()]
    for part in parts:
        if part.segment.kind == "raw":
            for found in raw_rows(store, part, bytes_max):
                if isinstance(found, UndecodableRange):
                    raise unreadable(f"{topic.name}-{part.partition}", found, bytes_max)
                tables.append(_live_columns(found.rows, part.partition))
    ranges: dict[int, tuple[int, int]] = {}
    if client is not None:
        # From where the parts end: what is sealed meanwhile the broker reads for us.
        starts = dict.fromkeys(range(topic.partition_count), 0)
        starts |= {part.partition: part.end for part in parts}
        rows, ends = live.live_rows(client, topic.name, topic.id, starts, bytes_max=bytes_max)
        tables.append(rows)
        ranges = {each: (starts[each], end) for each, end in ends.items() if end > starts[each]}
    arrow = with_typed(pa.concat_tables(tables), schema_of(topic.configs), bytes_max)
    return TopicRows(topic, files.root, parts, arrow, ranges)


def unreadable(partition: str, found: UndecodableRange, bytes_max: int) -> Unreadable:
    """The error of a query that would have to leave records out."""
    where = f"{partition}: the records at offsets {found.start} to {found.end - 1}"
    if found.is_too_large:
        return Unreadable(
            f"{where} inflate to more than {bytes_max} bytes, or their columns do: half of the "
            "query's memory"
        )
    return Unreadable(f"{where} cannot be decoded")


def topics_of(manifest: Manifest) -> dict[str, Topic]:
    """All user topics by name."""
    return {each.name: each for each in manifest.topics() if each.namespace == NAMESPACE_DEFAULT}


def _live_columns(rows: pa.Table, partition: int) -> pa.Table:
    columns = {
        "partition": pa.repeat(pa.scalar(partition, pa.int32()), rows.num_rows),
        "offset": rows["_offset"],
        "timestamp": rows["_ts"],
        "key": rows["_key"],
        "value": rows["_value"],
        "headers": rows["_headers"],
    }
    return pa.table(columns).cast(live.SCHEMA)


def _is_within(part: SegmentPart) -> bool:
    """Whether all times of its segment are of the years 1 to 9999."""
    segment = part.segment
    return TIME_MS_MIN <= segment.min_timestamp_ms <= segment.max_timestamp_ms <= TIME_MS_MAX


def _read(root: Path, parts: Sequence[SegmentPart], schema: str, time: str, *, is_cut: bool) -> str:
    files = ", ".join(_literal(str(root / each.segment.path)) for each in parts)
    by_name = ", union_by_name=true" if schema else ""  # Older files lack columns.
    source = (
        f"read_parquet([{files}], hive_partitioning=true, hive_types={{'partition': INTEGER}}"
        f"{by_name})"
    )
    columns = f"{_SEALED.format(time)}, {_PARQUET_SOURCE}{typed_names(schema)}"
    select = f"SELECT {columns} FROM {widened(source, schema)}"
    if not is_cut:
        return select
    kept = (
        f"(partition = {each.partition} AND _offset >= {each.start} AND _offset < {each.end})"
        for each in parts
    )
    return f"{select} WHERE {' OR '.join(kept)}"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
