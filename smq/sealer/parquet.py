"""A Parquet segment: a row for each record, which any engine can read.

    _offset  _ts_ms  _ts  _key  _value  _headers  and the topic's typed columns (smq.sealer.typed)

`_ts` is `_ts_ms` as a timestamp where there is one (smq.sealer.years). The schema avoids types
that Spark cannot read (`timestamp[ns]`, `large_*`, views), and dictionaries on keys and values,
which cost speed and save nothing. The file's metadata holds everything but rows: transaction
markers, leader epochs, the timestamp type, and the segment's first and end offset.

`smq.sealer.parquet_segment` reads it back.
"""

import base64
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from shm.arrow import binary_views, read_only
from shm.kernels.base.crc32c import crc32c
from shm.kernels.record.records import (
    B_BASE_OFFSET,
    B_LEADER_EPOCH,
    C_HEADER_COUNT,
    C_KEY_AT,
    C_KEY_LENGTH,
    C_OFFSET,
    C_TIMESTAMP,
    C_VALUE_AT,
    C_VALUE_LENGTH,
    H_KEY_AT,
    H_KEY_LENGTH,
    H_VALUE_AT,
    H_VALUE_LENGTH,
)
from smq.sealer.decode import Kind, Piece
from smq.sealer.room import Room
from smq.sealer.typed import Typing, bounded_leaves, leaves
from smq.sealer.years import TIMESTAMP, timestamps

KiB, MiB = 1024, 1024 * 1024
FORMAT = "1"
ROW_GROUP_ROWS = 64 * KiB  # Small, so that a cold read of a few records decodes little.
ROW_GROUP_BYTES = 8 * MiB  # The same, for large records: what stays in a core's cache is quick.
HEADER_BYTES = 32  # Of a header in memory, beside its own.
PAGE_BYTES = 256 * KiB  # Fits a core's nearest caches while it is compressed and copied.
SAMPLE_BYTES = 256 * KiB  # Sampled values, which tell whether compressing a segment's values pays.
WORTH = 0.9  # It does if the sample shrinks below this share, of itself or the quicker result.
LEVEL, QUICK_LEVEL = 1, -3  # Zstandard's: the second takes half of the time.
CREATE_TIME, LOG_APPEND_TIME = "CreateTime", "LogAppendTime"

_HEADER = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
SCHEMA = pa.schema(
    [
        pa.field("_offset", pa.int64(), nullable=False),
        pa.field("_ts_ms", pa.int64(), nullable=False),
        pa.field("_ts", TIMESTAMP),
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
HEADER_KEYS, HEADER_VALUES = "_headers.list.element.key", "_headers.list.element.value"
_LEAVES = ("_offset", "_ts_ms", "_ts", "_key", "_value", HEADER_KEYS, HEADER_VALUES)
_DELTA = "DELTA_BINARY_PACKED"
_SETTINGS: dict[str, Any] = {
    "store_schema": False,  # Readers would get views, which few of them know.
    "use_dictionary": [HEADER_KEYS],
    "column_encoding": {"_offset": _DELTA, "_ts_ms": _DELTA, "_ts": _DELTA},
    "write_statistics": ["_offset", "_ts_ms", "_ts"],
    "write_page_index": True,
    "data_page_size": PAGE_BYTES,
}


def table_of(piece: Piece) -> pa.Table:
    """The rows of a piece of kind ROWS. In header keys, bytes that are not UTF-8 become `\\xff`."""
    return _views_of(piece).cast(SCHEMA)


def _views_of(piece: Piece) -> pa.Table:
    """The same, with keys and values as views into the piece."""
    columns, arena = piece.columns, piece.arena
    times = columns[C_TIMESTAMP]
    arrays = [
        pa.array(columns[C_OFFSET]),
        pa.array(times),
        timestamps(times),
        binary_views(arena, columns[C_KEY_AT], columns[C_KEY_LENGTH]),
        binary_views(arena, columns[C_VALUE_AT], columns[C_VALUE_LENGTH]),
        _headers_of(piece),
    ]
    return pa.Table.from_arrays(arrays, schema=_WRITTEN)


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
        texts = pa.array(
            [key.as_py().decode(errors="backslashreplace") for key in keys], pa.string()
        )
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
        self._waiting_bytes = self._waiting_inflated = 0
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
        inflated = piece.inflated_bytes + HEADER_BYTES * piece.headers.shape[1]
        self._add(_views_of(piece), len(piece.batches), inflated)

    def add_marks(self, epochs: list[list[int]], control: bytes) -> None:
        """Add what another segment has beside its rows: leader epochs, and markers."""
        for offset, epoch in epochs:
            self._note_epoch(offset, epoch)
        self._control += control

    def add_rows(self, rows: pa.Table) -> None:
        """Add rows of SCHEMA. Earlier versions wrote each `_ts` that microseconds can hold."""
        place = SCHEMA.get_field_index("_ts")
        rows = rows.set_column(place, SCHEMA.field(place), timestamps(rows["_ts_ms"].to_numpy()))
        self._add(rows.cast(_WRITTEN), rows.nbytes, rows.nbytes)

    def _add(self, rows: pa.Table, size: int, inflated: int) -> None:
        self._waiting.append(rows)
        self._waiting_bytes += size
        self._waiting_inflated += inflated
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
        if self._waiting_inflated < ROW_GROUP_BYTES and not everything:
            rows -= rows % ROW_GROUP_ROWS
        if rows == 0:
            return
        table = pa.concat_tables(self._waiting)
        self._writer = self._writer or _open(self._file, table, self._typed_columns)
        group_rows = self._group_rows(table)
        for part in self._typed(table[:rows]):
            self._writer.write_table(part, row_group_size=group_rows)
        self._check()
        left = table.num_rows - rows
        self._waiting = [table[rows:]] if left else []
        self._waiting_bytes = self._waiting_bytes * left // table.num_rows
        self._waiting_inflated = self._waiting_inflated * left // table.num_rows

    def _group_rows(self, waiting: pa.Table) -> int:
        """The rows of a group: fewer than usual if they are large."""
        groups = max(1, self._waiting_inflated // ROW_GROUP_BYTES)
        rows: int = -(-waiting.num_rows // groups)
        return min(ROW_GROUP_ROWS, rows)

    @property
    def _typed_columns(self) -> pa.Schema | None:
        return None if self._typing is None else self._typing.columns

    def _typed(self, rows: pa.Table) -> Iterator[pa.Table]:
        """Rows with their typed columns appended, in parts where those would be large."""
        if self._typing is None:
            yield rows
            return
        for widened, misfits in self._typing.widened(rows, "_value"):
            self.untyped_count += misfits
            yield widened

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
    bounded = [*_SETTINGS["write_statistics"], *bounded_leaves(typed)]
    dictionaries = [*_SETTINGS["use_dictionary"], *more]
    settings = _SETTINGS | {"use_dictionary": dictionaries, "write_statistics": bounded}
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
