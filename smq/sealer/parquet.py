"""A Parquet segment: a row for each record, which any engine can read.

    _offset  _ts_ms  _ts  _key  _value  _headers  and the topic's typed columns (smq.sealer.typed)

`_ts` is `_ts_ms` as a timestamp, null where microseconds overflow. The schema avoids types that
Spark cannot read (`timestamp[ns]`, `large_*`, views), and dictionaries on keys and values, which
cost speed and save nothing. The file's metadata holds everything but rows: transaction markers,
leader epochs, the timestamp type, and the segment's first and end offset.

Reading returns Kafka batches: the same records, offsets and timestamps, in new batches. Pages have
no checksums: the manifest has the file's, which is checked before the first page is read. Segments
written since `smq.checks` is among the metadata have CRC-32Cs of row groups too, checked each time
one is decoded: values that are not compressed show no damage by themselves.
"""

import base64
import json
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from shm.arrow import binary_views, read_only
from shm.kernels.base.crc32c import crc32c
from shm.kernels.base.words import ATTRIBUTE_LOG_APPEND_TIME, BATCH_HEADER_BYTES
from shm.kernels.record.records import (
    B_AT,
    B_BASE_OFFSET,
    B_END,
    B_LEADER_EPOCH,
    C_FIELDS,
    C_HEADER_COUNT,
    C_HEADERS_FIRST,
    C_KEY_AT,
    C_KEY_LENGTH,
    C_OFFSET,
    C_TIMESTAMP,
    C_VALUE_AT,
    C_VALUE_LENGTH,
    H_FIELDS,
    H_KEY_AT,
    H_KEY_LENGTH,
    H_VALUE_AT,
    H_VALUE_LENGTH,
    new_facts,
    scan_batches,
)
from shm.kernels.record.records_encode import RECORD_HEAD_BYTES_MAX, Rows, Run, encode_batch
from smq.model.segments import ANY_SIZE, BatchLimits
from smq.sealer.decode import Kind, Piece
from smq.sealer.read_back import Batches, ReadBack, fitting
from smq.sealer.room import Room
from smq.sealer.typed import Typing, leaves

KiB, MiB = 1024, 1024 * 1024
FORMAT = "1"
ROW_GROUP_ROWS = 64 * KiB  # Small, so that a cold read of a few records decodes little.
ROW_GROUP_BYTES = 8 * MiB  # The same, for large records: what stays in a core's cache is quick.
PAGE_BYTES = 256 * KiB  # Fits a core's nearest caches while it is compressed and copied.
SAMPLE_BYTES = 256 * KiB  # Sampled values, which tell whether compressing a segment's values pays.
WORTH = 0.9  # It does if the sample shrinks below this share, of itself or the quicker result.
LEVEL, QUICK_LEVEL = 1, -3  # Zstandard's: the second takes half of the time.
HEADER_HEAD_BYTES_MAX = 10  # Two lengths.
TIMESTAMP_US_MAX = (2**63 - 1) // 1000
CREATE_TIME, LOG_APPEND_TIME = "CreateTime", "LogAppendTime"

_HEADER = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
SCHEMA = pa.schema(
    [
        pa.field("_offset", pa.int64(), nullable=False),
        pa.field("_ts_ms", pa.int64(), nullable=False),
        pa.field("_ts", pa.timestamp("us", tz="UTC")),
        pa.field("_key", pa.binary()),
        pa.field("_value", pa.binary()),
        pa.field(
            "_headers", pa.list_(pa.field("element", _HEADER, nullable=False)), nullable=False
        ),
    ]
)
# The schema for writing: the same columns, but keys and values in place in the batches.
_WRITTEN = pa.schema(
    [
        field.with_type(pa.binary_view()) if field.name in {"_key", "_value"} else field
        for field in SCHEMA
    ]
)
_LEAVES = (
    "_offset",
    "_ts_ms",
    "_ts",
    "_key",
    "_value",
    "_headers.list.element.key",
    "_headers.list.element.value",
)
_DELTA = "DELTA_BINARY_PACKED"
_SETTINGS: dict[str, Any] = {
    "store_schema": False,  # Readers would get views, which few of them know.
    "use_dictionary": ["_headers.list.element.key"],
    "column_encoding": {"_offset": _DELTA, "_ts_ms": _DELTA, "_ts": _DELTA},
    "write_statistics": ["_offset", "_ts_ms", "_ts"],
    "write_page_index": True,
    "data_page_size": PAGE_BYTES,
}


def table_of(piece: Piece) -> pa.Table:
    """The rows of a piece of kind ROWS. Replaces what is not UTF-8 in header keys."""
    return _views_of(piece).cast(SCHEMA)


def _views_of(piece: Piece) -> pa.Table:
    """The same, with keys and values as views into the piece."""
    columns, arena = piece.columns, piece.arena
    times = columns[C_TIMESTAMP]
    arrays = [
        pa.array(columns[C_OFFSET]),
        pa.array(times),
        _micros_of(times).view(SCHEMA.field("_ts").type),
        binary_views(arena, columns[C_KEY_AT], columns[C_KEY_LENGTH]),
        binary_views(arena, columns[C_VALUE_AT], columns[C_VALUE_LENGTH]),
        _headers_of(piece),
    ]
    return pa.Table.from_arrays(arrays, schema=_WRITTEN)


def _micros_of(times: np.ndarray) -> pa.Array:
    if not len(times) or -TIMESTAMP_US_MAX <= times.min() <= times.max() <= TIMESTAMP_US_MAX:
        return pa.array(times * 1000)
    fits = (times <= TIMESTAMP_US_MAX) & (times >= -TIMESTAMP_US_MAX)
    return pa.array(np.where(fits, times, 0) * 1000, mask=~fits)


def _headers_of(piece: Piece) -> pa.Array:
    headers, arena = piece.headers, piece.arena
    if not headers.shape[1]:
        none = pa.array(np.zeros(piece.columns.shape[1] + 1, np.int32))
        return pa.ListArray.from_arrays(
            none, pa.array([], _HEADER), type=SCHEMA.field("_headers").type
        )
    keys = binary_views(arena, headers[H_KEY_AT], headers[H_KEY_LENGTH]).cast(pa.binary())
    values = binary_views(arena, headers[H_VALUE_AT], headers[H_VALUE_LENGTH]).cast(pa.binary())
    try:
        texts = keys.cast(pa.string())
    except pa.ArrowInvalid:
        texts = pa.array([key.as_py().decode(errors="replace") for key in keys], pa.string())
    counts = piece.columns[C_HEADER_COUNT]
    ends = np.concatenate([[0], counts.cumsum()]).astype(np.int32)
    pairs = pa.StructArray.from_arrays([texts, values], fields=list(_HEADER))
    return pa.ListArray.from_arrays(pa.array(ends), pairs, type=SCHEMA.field("_headers").type)


class ParquetWriter:
    """Builds one Parquet segment from records and markers, in memory: in a room of its own, or one
    that other writers have used."""

    def __init__(
        self,
        labels: dict[str, str],
        *,
        log_append_time: bool,
        schema: str = "",
        room: Room | None = None,
    ) -> None:
        self._labels = {
            **labels,
            "timestamp_type": LOG_APPEND_TIME if log_append_time else CREATE_TIME,
        }
        self._file = room or Room()
        self._typing = Typing(schema) if schema else None
        self.untyped_count = 0
        self._file.begin()
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.Table] = []
        self._waiting_bytes = 0
        self._checks: list[list[int]] = []
        self._epochs: list[list[int]] = []
        self._control = bytearray()

    @property
    def size(self) -> int:
        """About how many bytes the segment has."""
        return self._file.tell() + self._waiting_bytes

    def add(self, piece: Piece) -> None:
        """Add records; of markers and aborted batches, keep only the epochs."""
        for offset, epoch in piece.facts[[B_BASE_OFFSET, B_LEADER_EPOCH]].T.tolist():
            self._note_epoch(offset, epoch)
        if piece.kind is Kind.CONTROL:
            return  # Its offsets become a gap.
        assert piece.kind is Kind.ROWS
        self._add(_views_of(piece), len(piece.batches))

    def add_segment(self, segment: "ParquetSegment") -> None:
        """Add all that another segment has, a row group at a time."""
        self.add_marks(segment)
        for table in segment.tables():
            self.add_rows(table)

    def add_marks(self, segment: "ParquetSegment") -> None:
        """Add what another segment has beside its rows: leader epochs, and markers."""
        for offset, epoch in segment.epochs:
            self._note_epoch(offset, epoch)
        self._control += segment.control

    def add_rows(self, rows: pa.Table) -> None:
        """Add rows of SCHEMA."""
        self._add(rows.cast(_WRITTEN), rows.nbytes)

    def _add(self, rows: pa.Table, size: int) -> None:
        self._waiting.append(rows)
        self._waiting_bytes += size
        self._write(everything=False)

    def _note_epoch(self, offset: int, epoch: int) -> None:
        if not self._epochs or self._epochs[-1][1] != epoch:
            self._epochs.append([offset, epoch])

    def finish(self, base_offset: int, end_offset: int) -> memoryview:
        """The segment's bytes, valid until the room has another writer."""
        self._write(everything=True)
        facts = {
            **self._labels,
            "format": FORMAT,
            "base_offset": str(base_offset),
            "end_offset": str(end_offset),
            "leader_epochs": json.dumps(self._epochs),
            "checks": json.dumps(self._checks),
            "control": base64.b64encode(self._control).decode(),
        }
        writer = self._writer or _open(self._file, _WRITTEN.empty_table(), self._typed_columns)
        writer.add_key_value_metadata({f"smq.{key}": fact for key, fact in facts.items()})
        writer.close()
        return self._file.written().data

    def _write(self, *, everything: bool) -> None:
        rows = sum(table.num_rows for table in self._waiting)
        if self._waiting_bytes < ROW_GROUP_BYTES and not everything:
            rows -= rows % ROW_GROUP_ROWS
        if rows == 0:
            return
        table = pa.concat_tables(self._waiting)
        self._writer = self._writer or _open(self._file, table, self._typed_columns)
        self._writer.write_table(self._typed(table[:rows]), row_group_size=ROW_GROUP_ROWS)
        self._check()
        left = table.num_rows - rows
        self._waiting = [table[rows:]] if left else []
        self._waiting_bytes = self._waiting_bytes * left // table.num_rows

    @property
    def _typed_columns(self) -> pa.Schema | None:
        return None if self._typing is None else self._typing.columns

    def _typed(self, rows: pa.Table) -> pa.Table:
        """Rows with their typed columns appended."""
        if self._typing is None:
            return rows
        typed, misfits = self._typing.widened(rows, "_value")
        self.untyped_count += misfits
        return typed

    def _check(self) -> None:
        """Record where the file ends, and the CRC-32C of the bytes since the last record."""
        start = self._checks[-1][0] if self._checks else 0
        written = read_only(self._file.written(start))
        self._checks.append([self._file.tell(), int(crc32c(written, 0, len(written)))])


def _open(file: Room, first: pa.Table, typed: pa.Schema | None) -> pq.ParquetWriter:
    """A writer of a file with these first rows, which decide how it compresses values."""
    more = leaves(typed)
    every = [*_LEAVES, *more]
    codecs, levels = dict.fromkeys(every, "zstd"), dict.fromkeys(every, LEVEL)
    level = _level_for(first["_value"])
    if level is None:
        codecs["_value"] = "none"
        del levels["_value"]
    else:
        levels["_value"] = level
    settings = _SETTINGS | {
        name: [*_SETTINGS[name], *more] for name in ("use_dictionary", "write_statistics")
    }
    schema = pa.schema([*_WRITTEN, *(typed or [])])
    return pq.ParquetWriter(file, schema, compression=codecs, compression_level=levels, **settings)


def _level_for(values: pa.ChunkedArray) -> int | None:
    """The level at which compression pays, by a sample from the middle of these values; None: it
    does not pay."""
    sample = bytearray()
    for value in values[len(values) // 2 :]:
        if value.is_valid:
            sample += memoryview(value.as_buffer())[:SAMPLE_BYTES]
        if len(sample) >= SAMPLE_BYTES:
            break
    size, quick = (len(pa.Codec("zstd", level).compress(sample)) for level in (LEVEL, QUICK_LEVEL))
    if min(size, quick) > WORTH * len(sample):
        return None
    return QUICK_LEVEL if size > WORTH * quick else LEVEL


class Span(NamedTuple):
    """A row group and the offsets [start, end) that it covers."""

    group: int
    start: int
    end: int
    max_timestamp: int


class ParquetSegment:
    """Reads a Parquet segment, a row group at a time. Raises ArrowInvalid if it is not one."""

    def __init__(self, data: np.ndarray) -> None:
        self._data = data
        self._file = pq.ParquetFile(pa.BufferReader(pa.py_buffer(data)))
        facts = self._file.metadata.metadata or {}
        self.facts = {
            key.decode().removeprefix("smq."): value.decode()
            for key, value in facts.items()
            if key.startswith(b"smq.")
        }
        if self.facts.get("format") != FORMAT:
            raise pa.ArrowInvalid("not a segment of this version of SMQ")
        self.spans = self._spans()
        self.epochs: list[list[int]] = json.loads(self.facts["leader_epochs"])
        self._checks: list[list[int]] = json.loads(self.facts.get("checks", "[]"))
        self.is_log_append = self.facts["timestamp_type"] == LOG_APPEND_TIME
        self._attributes = ATTRIBUTE_LOG_APPEND_TIME if self.is_log_append else 0
        self.control = base64.b64decode(self.facts["control"])
        self._control = _control_batches(self.control)

    @property
    def columns(self) -> list[str]:
        """The names of the file's columns: those of SCHEMA, and typed ones."""
        return list(self._file.schema_arrow.names)

    def span_of(self, offset: int) -> Span:
        """The row group that covers an offset; the first one for offsets before it."""
        return next((span for span in self.spans if offset < span.end), self.spans[-1])

    def batches(self, span: Span, limits: BatchLimits = ANY_SIZE) -> ReadBack:
        """The record batches of a row group, with the markers between them."""
        rows, made = self._rows(span), Batches()
        offsets = rows.columns[C_OFFSET]
        control = {
            at: marker for at, marker in self._control.items() if span.start <= at < span.end
        }
        out = np.empty(_encoded_bytes_max(rows), np.uint8)
        # Behind the last row is a gap, which that row's batch covers: no batch begins in it.
        last = max([*offsets[-1:], *control], default=span.start)
        epochs = {start for start, _ in self.epochs if span.start < start <= last}
        row = at = 0
        for start, end in pairwise([*sorted({span.start} | epochs | control.keys()), span.end]):
            if (marker := control.get(start)) is not None:
                made.add(np.frombuffer(marker, np.uint8), start)
            end_row = int(np.searchsorted(offsets, end))
            run = Run(end_row, end, self._attributes, self._epoch_at(start))
            while row < end_row:
                begin = at
                row, at = encode_batch(rows, row, run, limits.shared_bytes, out, at)
                made.add(fitting(out[begin:at], limits), int(offsets[row - 1]))
        return made.read_back()

    def tables(self) -> Iterator[pa.Table]:
        """All rows, a row group at a time."""
        for group in range(self._file.metadata.num_row_groups):
            yield self._group(group, SCHEMA.names).cast(SCHEMA)

    def rows(self, start: int, end: int, columns: Sequence[str]) -> Iterator[pa.Table]:
        """These columns of the rows with start <= _offset < end, by row group; skips the others."""
        wanted = list(dict.fromkeys(["_offset", *columns]))
        for span in self.spans:
            if span.group < 0 or span.end <= start or span.start >= end:
                continue
            table = self._group(span.group, wanted)
            first, last = np.searchsorted(table["_offset"].to_numpy(), [start, end])
            yield table.slice(first, last - first).select(columns)

    def find_time(self, timestamp: int, from_offset: int = 0) -> tuple[int, int] | None:
        """Offset and time of the first record at or after `from_offset` and this time."""
        for span in self.spans:
            if span.max_timestamp < timestamp or span.end <= from_offset or span.group < 0:
                continue
            table = self._group(span.group, ["_offset", "_ts_ms"])
            offsets, times = table["_offset"].to_numpy(), table["_ts_ms"].to_numpy()
            fits = (times >= timestamp) & (offsets >= from_offset)
            if fits.any():
                row = int(fits.argmax())
                return int(offsets[row]), int(times[row])
        return None

    def _spans(self) -> list[Span]:
        start, end = int(self.facts["base_offset"]), int(self.facts["end_offset"])
        metadata, firsts, newest = self._file.metadata, [], []
        for group in range(metadata.num_row_groups):
            offsets, times = (
                metadata.row_group(group).column(place).statistics for place in (0, 1)
            )
            firsts.append(offsets.min)
            newest.append(times.max)
        if not firsts:
            return [Span(-1, start, end, -1)]
        ends = [*firsts[1:], end]
        firsts[0] = start
        return [Span(*each) for each in zip(range(len(ends)), firsts, ends, newest, strict=True)]

    def _rows(self, span: Span) -> Rows:
        if span.group < 0:
            return _rows_of(SCHEMA.empty_table())
        names = ["_offset", "_ts_ms", "_key", "_value", "_headers"]
        return _rows_of(self._group(span.group, names))

    def _group(self, group: int, columns: list[str] | None = None) -> pa.Table:
        """A row group, checked. Raises ArrowInvalid if it is damaged."""
        at = self._file.metadata.row_group(group).column(0).data_page_offset
        row = bisect_right(self._checks, at, key=itemgetter(0))
        if row < len(self._checks):
            start = self._checks[row - 1][0] if row else 0
            end, crc = self._checks[row]
            if not start < end <= len(self._data) or int(crc32c(self._data, start, end)) != crc:
                raise pa.ArrowInvalid(f"row group {group} has changed since it was written")
        return self._file.read_row_group(group, columns)

    def _epoch_at(self, offset: int) -> int:
        """The leader epoch at an offset; before the first entry, that of the first."""
        row = bisect_right(self.epochs, offset, key=itemgetter(0)) - 1
        return int(self.epochs[max(row, 0)][1])


def _control_batches(data: bytes) -> dict[int, bytes]:
    facts = new_facts(len(data))
    count = scan_batches(read_only(data), 0, len(data), facts)
    if count < 0:
        raise pa.ArrowInvalid("its markers are damaged")
    places = facts[[B_BASE_OFFSET, B_AT, B_END], :count].T.tolist()
    return {base_offset: data[at:end] for base_offset, at, end in places}


def _encoded_bytes_max(rows: Rows) -> int:
    """An upper bound of the bytes of these rows as batches, one batch a row."""
    sizes: int = rows.columns[[C_KEY_LENGTH, C_VALUE_LENGTH]].clip(0).sum()
    sizes += rows.headers[[H_KEY_LENGTH, H_VALUE_LENGTH]].clip(0).sum()
    sizes += rows.headers.shape[1] * HEADER_HEAD_BYTES_MAX
    sizes += rows.columns.shape[1] * (RECORD_HEAD_BYTES_MAX + BATCH_HEADER_BYTES)
    return sizes


def _rows_of(table: pa.Table) -> Rows:
    """The encoder's input from a table of SCHEMA, without copying keys, values and headers."""
    table = table.combine_chunks()
    columns = np.zeros((C_FIELDS, table.num_rows), np.int64)
    columns[C_OFFSET], columns[C_TIMESTAMP] = table["_offset"], table["_ts_ms"]
    lists = _chunk(table["_headers"])
    pairs = lists.values
    headers = np.zeros((H_FIELDS, len(pairs)), np.int64)
    places = columns[C_KEY_AT : C_KEY_LENGTH + 1], columns[C_VALUE_AT : C_VALUE_LENGTH + 1]
    pair_places = headers[H_KEY_AT : H_KEY_LENGTH + 1], headers[H_VALUE_AT : H_VALUE_LENGTH + 1]
    keys, values = (
        _place(_chunk(table["_key"]), places[0]),
        _place(_chunk(table["_value"]), places[1]),
    )
    header_keys = _place(pairs.field("key").cast(pa.binary()), pair_places[0])
    header_values = _place(pairs.field("value"), pair_places[1])
    offsets = lists.offsets.to_numpy()
    columns[C_HEADERS_FIRST], columns[C_HEADER_COUNT] = offsets[:-1], np.diff(offsets)
    return Rows(columns, headers, keys, values, header_keys, header_values)


def _chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)


def _place(array: pa.Array, places: np.ndarray) -> np.ndarray:
    """Fill rows of (position, length or -1) for a binary array; returns its bytes."""
    _, offsets_buffer, data = array.buffers()
    offsets = np.frombuffer(offsets_buffer or b"", np.int32)[array.offset :][: len(array) + 1]
    if len(array):
        places[0], places[1] = offsets[:-1], np.diff(offsets)
        places[1][array.is_null().to_numpy(zero_copy_only=False)] = -1
    return read_only(data) if data is not None and data.size else read_only(b"")
