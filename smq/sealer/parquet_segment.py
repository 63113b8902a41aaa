"""Reads a Parquet segment (`smq.sealer.parquet`) in bounded steps.

Reading returns Kafka batches: the same records, offsets and timestamps, in new batches. Pages have
no checksums: the manifest has the file's, which is checked before the first page is read. Segments
written since `smq.checks` is among the metadata have CRC-32Cs of row groups too, checked each time
one is decoded: values that are not compressed show no damage by themselves.

A step is a row group; of a group that is large in memory, a slice of its rows.
"""

import base64
import json
from bisect import bisect_right, insort
from collections.abc import Iterator, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from shm.arrow import read_only
from shm.kernels.base.crc32c import crc32c
from shm.kernels.base.words import ATTRIBUTE_LOG_APPEND_TIME, BATCH_HEADER_BYTES
from shm.kernels.record.records import (
    B_AT,
    B_BASE_OFFSET,
    B_END,
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
from shm.kernels.record.records_encode import RECORD_HEAD_BYTES_MAX, RecordRows, Run, encode_batch
from smq.model.segments import ANY_SIZE, BatchLimits
from smq.sealer.large_group import LargeGroup, is_large
from smq.sealer.parquet import FORMAT, LOG_APPEND_TIME, SCHEMA
from smq.sealer.read_back import BatchCollector, ReadBack, fitting

HEADER_HEAD_BYTES_MAX = 10  # Two lengths.
_ENCODED = ["_offset", "_ts_ms", "_key", "_value", "_headers"]


class Span(NamedTuple):
    """Offsets [start, end) of a step, and its row group (-1: none, a gap), from this row on.

    The end of a slice that was not read is that of the rows that were not.
    """

    group: int
    start: int
    end: int
    max_timestamp: int
    row: int = 0


class ParquetSegment:
    """Reads a Parquet segment, a step at a time. Raises ArrowInvalid if it is not one."""

    def __init__(self, data: np.ndarray) -> None:
        self.data = data
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
        self._large: dict[tuple[int, tuple[str, ...]], bool] = {}
        self._slices: dict[int, list[Span]] = {}
        self._places: tuple[int, np.ndarray] | None = None
        self._ahead: tuple[int, int, Iterator[pa.Table]] | None = None

    @property
    def columns(self) -> list[str]:
        """The names of the file's columns: those of SCHEMA, and typed ones."""
        return list(self._file.schema_arrow.names)

    @property
    def value_count(self) -> int:
        """The values of all columns, each item of a list counted."""
        groups = map(self._file.metadata.row_group, range(self._file.metadata.num_row_groups))
        return sum(
            group.column(number).num_values
            for group in groups
            for number in range(group.num_columns)
        )

    def span_of(self, offset: int) -> Span:
        """The step that covers an offset; the first one for offsets before it."""
        span = next((span for span in self.spans if offset < span.end), self.spans[-1])
        is_whole = span.group < 0 or not self._is_large(span.group, _ENCODED)
        return span if is_whole else self._slice_at(span, offset)

    def batches(self, span: Span, limits: BatchLimits = ANY_SIZE) -> ReadBack:
        """The record batches of a step, with the markers between them.

        Of a slice they may end before its end: see `end_of`.
        """
        if span.group < 0:
            return self._encoded(SCHEMA.empty_table(), span, limits)
        if not self._is_large(span.group, _ENCODED):
            return self._encoded(self._group(span.group, _ENCODED), span, limits)
        table, span = self._slice(span)
        return self._encoded(table, span, limits)

    def end_of(self, span: Span, last_record: int) -> int:
        """Where a step ends whose batches were read up to this record."""
        if span.group < 0 or not self._is_large(span.group, _ENCODED):
            return span.end
        offsets = self._offsets(span.group)
        row = int(np.searchsorted(offsets, last_record, "right"))
        return int(offsets[row]) if row < len(offsets) else span.end

    def _encoded(self, table: pa.Table, span: Span, limits: BatchLimits) -> ReadBack:
        rows, made = _rows_of(table), BatchCollector()
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
                begin, first = at, row
                row, at = encode_batch(rows, row, run, limits.shared_bytes, out, at)
                assert row > first, "without room for a record, no reader gets beyond it"
                made.add(fitting(out[begin:at], limits), int(offsets[row - 1]))
        assert row == len(offsets), "the log has these rows no more, and no other reader gets them"
        return made.read_back()

    def tables(self) -> Iterator[pa.Table]:
        """All rows, a step at a time."""
        for group in range(self._file.metadata.num_row_groups):
            for table in self._tables(group, SCHEMA.names):
                yield table.cast(SCHEMA)

    def rows(self, start: int, end: int, columns: Sequence[str]) -> Iterator[pa.Table]:
        """These columns of the rows with start <= _offset < end, by step; skips the others."""
        wanted = list(dict.fromkeys(["_offset", *columns]))
        for span in self.spans:
            if span.group < 0 or span.end <= start or span.start >= end:
                continue
            for table in self._tables(span.group, wanted):
                first, last = np.searchsorted(table["_offset"].to_numpy(), [start, end])
                yield table.slice(first, last - first).select(columns)

    def find_time(self, timestamp: int, from_offset: int = 0) -> tuple[int, int] | None:
        """Offset and time of the first record at or after `from_offset` and this time."""
        for span in self.spans:
            if span.max_timestamp < timestamp or span.end <= from_offset or span.group < 0:
                continue
            offsets, times = self._times(span)
            fits = (times >= timestamp) & (offsets >= from_offset)
            if fits.any():
                row = int(fits.argmax())
                return int(offsets[row]), int(times[row])
        return None

    def newest(self, from_offset: int) -> tuple[int, int] | None:
        """Offset and time of the first record with the largest time, at or after `from_offset`."""
        best: tuple[int, int] | None = None
        for span in sorted(self.spans, key=lambda each: -each.max_timestamp):
            if span.group < 0 or (best is not None and span.max_timestamp <= best[1]):
                break
            offsets, times = self._times(span)
            first = int(np.searchsorted(offsets, from_offset))
            if first < len(times) and (best is None or times[first:].max() > best[1]):
                row = first + int(times[first:].argmax())
                best = int(offsets[row]), int(times[row])
        return best

    def _times(self, span: Span) -> tuple[np.ndarray, np.ndarray]:
        """The offsets and times of a row group's records."""
        table = self._group(span.group, ["_offset", "_ts_ms"])
        return table["_offset"].to_numpy(), table["_ts_ms"].to_numpy()

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

    def _is_large(self, group: int, columns: Sequence[str]) -> bool:
        key = group, tuple(columns)
        if key not in self._large:
            row_group = self._file.metadata.row_group(group)
            self._large[key] = is_large(self.data.data, row_group, columns)
        return self._large[key]

    def _tables(self, group: int, columns: Sequence[str], row: int = 0) -> Iterator[pa.Table]:
        """Rows of a group from a row on: at once, or in slices if they would be large."""
        if not self._is_large(group, columns):
            yield self._group(group, columns).slice(row)
            return
        small = self._group(group, [each for each in columns if each not in LargeGroup.COLUMNS])
        large = LargeGroup(self.data.data, self._file.metadata.row_group(group), columns, row)
        while row < small.num_rows:
            taken = large.take(small.num_rows - row)
            beside = small.slice(row, len(taken[0]))
            row += len(taken[0])
            for name, column in zip(large.columns, taken, strict=True):
                beside = beside.append_column(SCHEMA.field(name), column)
            yield beside.select(list(columns))

    def _slice_at(self, span: Span, offset: int) -> Span:
        """The slice of a large group that covers an offset: a known one, or a new one."""
        known = self._slices.setdefault(span.group, [])
        after = bisect_right(known, offset, key=_START)
        if after and offset < known[after - 1].end:
            return known[after - 1]
        offsets = self._offsets(span.group)
        row = max(0, int(np.searchsorted(offsets, offset, "right")) - 1)
        start = int(offsets[row]) if row else span.start
        end = known[after].start if after < len(known) else span.end
        return Span(span.group, start, end, span.max_timestamp, row)

    def _slice(self, span: Span) -> tuple[pa.Table, Span]:
        """The rows of a slice, as many as are decoded at a time; its end is known from then on."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[:2] == (span.group, span.row):
            tables = ahead[2]
        else:
            tables = self._tables(span.group, _ENCODED, span.row)
        table, offsets = next(tables), self._offsets(span.group)
        behind = span.row + table.num_rows
        if behind < len(offsets) and offsets[behind] <= span.end:
            self._ahead = span.group, behind, tables  # A sequential reader continues there.
            span = span._replace(end=int(offsets[behind]))
        known = self._slices.setdefault(span.group, [])
        if span not in known:
            insort(known, span, key=_START)
        return table.slice(0, int(np.searchsorted(offsets, span.end)) - span.row), span

    def _offsets(self, group: int) -> np.ndarray:
        if self._places is None or self._places[0] != group:
            self._places = group, self._group(group, ["_offset"])["_offset"].to_numpy()
        return self._places[1]

    def _group(self, group: int, columns: Sequence[str]) -> pa.Table:
        """A row group, checked. Raises ArrowInvalid if it is damaged."""
        at = self._file.metadata.row_group(group).column(0).data_page_offset
        row = bisect_right(self._checks, at, key=itemgetter(0))
        if row < len(self._checks):
            start = self._checks[row - 1][0] if row else 0
            end, crc = self._checks[row]
            if not start < end <= len(self.data) or int(crc32c(self.data, start, end)) != crc:
                raise pa.ArrowInvalid(f"row group {group} has changed since it was written")
        return self._file.read_row_group(group, list(columns))

    def _epoch_at(self, offset: int) -> int:
        """The leader epoch at an offset; before the first entry, that of the first."""
        row = bisect_right(self.epochs, offset, key=itemgetter(0)) - 1
        return int(self.epochs[max(row, 0)][1])


_START: Any = itemgetter(1)


def _control_batches(data: bytes) -> dict[int, bytes]:
    facts = new_facts(len(data))
    count = scan_batches(read_only(data), 0, len(data), facts)
    if count < 0:
        raise pa.ArrowInvalid("its markers are damaged")
    places = facts[[B_BASE_OFFSET, B_AT, B_END], :count].T.tolist()
    return {base_offset: data[at:end] for base_offset, at, end in places}


def _encoded_bytes_max(rows: RecordRows) -> int:
    """An upper bound of the bytes of these rows as batches, one batch a row."""
    sizes: int = rows.columns[[C_KEY_LENGTH, C_VALUE_LENGTH]].clip(0).sum()
    sizes += rows.headers[[H_KEY_LENGTH, H_VALUE_LENGTH]].clip(0).sum()
    sizes += rows.headers.shape[1] * HEADER_HEAD_BYTES_MAX
    sizes += rows.columns.shape[1] * (RECORD_HEAD_BYTES_MAX + BATCH_HEADER_BYTES)
    return sizes


def _rows_of(table: pa.Table) -> RecordRows:
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
    return RecordRows(columns, headers, keys, values, header_keys, header_values)


def _chunk(column: pa.ChunkedArray) -> pa.Array:
    assert column.num_chunks <= 1, "a step is far below the 2 GiB at which Arrow begins a chunk"
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)


def _place(array: pa.Array, places: np.ndarray) -> np.ndarray:
    """Fill rows of (position, length or -1) for a binary array; returns its bytes."""
    _, offsets_buffer, data = array.buffers()
    offsets = np.frombuffer(offsets_buffer or b"", np.int32)[array.offset :][: len(array) + 1]
    if len(array):
        places[0], places[1] = offsets[:-1], np.diff(offsets)
        places[1][array.is_null().to_numpy(zero_copy_only=False)] = -1
    return read_only(data) if data is not None and data.size else read_only(b"")
