"""The rows of raw segments: they hold the few records that Parquet cannot."""

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from smq.filer.store import Store
from smq.sealer.cold import open_segment
from smq.sealer.decode import READER, Kind, cut
from smq.sealer.parquet import table_of
from smq.sealer.raw import RawSegment
from smq.tables.plan import Part


class RawRows(NamedTuple):
    """Rows with the columns of a Parquet segment; `log_append_time` is their timestamps' type."""

    rows: pa.Table
    log_append_time: bool


class Undecodable(NamedTuple):
    """Records of a raw segment that cannot be decoded: the offsets start to end (exclusive)."""

    start: int
    end: int


def raw_rows(store: Store, part: Part) -> Iterator[RawRows | Undecodable]:
    """Decode the records of a part of a raw segment, in order.

    Header keys that are not UTF-8 are changed. Raises Damaged, StoreError.
    """
    segment = open_segment(store, part.segment)
    assert isinstance(segment, RawSegment)
    for piece in cut(segment.body, lossy=True, bounds=READER):
        if piece.base_offset >= part.end or piece.end_offset <= part.start:
            continue
        if piece.kind is Kind.RAW:
            yield Undecodable(piece.base_offset, piece.end_offset)
        if piece.kind is Kind.ROWS:
            rows = table_of(piece)
            offsets = rows["_offset"]
            inside = pc.and_(pc.greater_equal(offsets, part.start), pc.less(offsets, part.end))
            yield RawRows(rows.filter(inside), piece.log_append_time)
