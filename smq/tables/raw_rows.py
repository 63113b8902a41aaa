"""The rows of raw segments: they hold the few records that Parquet cannot."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shm.arrow import read_only
from shm.kernels.reader.cut import records_announced
from shm.kernels.record.records import (
    C_HEADER_COUNT,
    new_columns,
    new_facts,
    scan_batches,
    walk_batches,
)
from smq.filer.store import Store
from smq.sealer.cold import open_segment
from smq.sealer.decode import READER, Kind, cut
from smq.sealer.parquet import table_of
from smq.sealer.raw import RawSegment
from smq.tables.plan import SegmentPart
from smq.wire.inflate import HEADER_COLUMN_BYTES, RECORD_COLUMN_BYTES, inflate


class RawRows(NamedTuple):
    """Rows with the columns of a Parquet segment; `log_append_time` is their timestamps' type."""

    rows: pa.Table
    log_append_time: bool


class UndecodableRange(NamedTuple):
    """Records of a raw segment that cannot be decoded: the offsets start to end (exclusive).

    `is_too_large`: a batch of them, or its columns, inflates further than the reader allows.
    """

    start: int
    end: int
    is_too_large: bool = False


def raw_rows(
    store: Store, part: SegmentPart, inflated_bytes_max: int
) -> Iterator[RawRows | UndecodableRange]:
    """Decode the records of a part of a raw segment, in order, from batches that inflate to
    `inflated_bytes_max` at most, as do the columns of their records and headers.

    In header keys, bytes that are not UTF-8 become `\\xff`. Raises Damaged, StoreError.
    """
    segment = open_segment(store, part.segment)
    assert isinstance(segment, RawSegment)
    bounds = READER._replace(
        field_bytes=inflated_bytes_max,
        batch_records=inflated_bytes_max // RECORD_COLUMN_BYTES,
        headers=inflated_bytes_max // HEADER_COLUMN_BYTES,
        batch_bytes=inflated_bytes_max,
    )
    for piece in cut(segment.body, lossy=True, bounds=bounds):
        if piece.base_offset >= part.end or piece.end_offset <= part.start:
            continue
        if piece.kind is Kind.RAW:
            is_too_large = _is_one_beyond(piece.batches, inflated_bytes_max)
            yield UndecodableRange(piece.base_offset, piece.end_offset, is_too_large)
        if piece.kind is Kind.ROWS:
            rows = table_of(piece)
            offsets = rows["_offset"]
            inside = pc.and_(pc.greater_equal(offsets, part.start), pc.less(offsets, part.end))
            yield RawRows(rows.filter(inside), piece.log_append_time)


def _is_one_beyond(batches: memoryview, bytes_max: int) -> bool:
    """Whether one of these batches, or its columns, inflates to more."""
    array = read_only(batches)
    facts = new_facts(len(array))
    count = scan_batches(array, 0, len(array), facts)
    return any(_is_beyond(array, facts[:, each : each + 1], bytes_max) for each in range(count))


def _is_beyond(array: np.ndarray, batch: np.ndarray, bytes_max: int) -> bool:
    memory, batch, is_beyond = inflate(array, batch, bytes_max)
    records = records_announced(batch)
    if is_beyond or RECORD_COLUMN_BYTES * records > bytes_max:
        return True
    columns = new_columns(records)
    rows = walk_batches(memory, batch, 0, 1, columns)
    return rows > 0 and HEADER_COLUMN_BYTES * int(columns[C_HEADER_COUNT].sum()) > bytes_max
