"""The rows of raw segments: they hold the few records that Parquet cannot."""

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from shm.kernels.base.words import BATCH_HEADER_BYTES
from smq.filer.store import Store
from smq.model.errors import PeerError
from smq.sealer.cold import open_segment
from smq.sealer.decode import READER, Kind, cut
from smq.sealer.parquet import table_of
from smq.sealer.raw import RawSegment
from smq.tables.plan import SegmentPart
from smq.wire.compression import InflatesTooFar, decompress
from smq.wire.records import read_batches


class RawRows(NamedTuple):
    """Rows with the columns of a Parquet segment; `log_append_time` is their timestamps' type."""

    rows: pa.Table
    log_append_time: bool


class UndecodableRange(NamedTuple):
    """Records of a raw segment that cannot be decoded: the offsets start to end (exclusive).

    `is_too_large`: a batch of them inflates further than the reader allows.
    """

    start: int
    end: int
    is_too_large: bool = False


def raw_rows(
    store: Store, part: SegmentPart, inflated_bytes_max: int
) -> Iterator[RawRows | UndecodableRange]:
    """Decode the records of a part of a raw segment, in order, from batches that inflate to
    `inflated_bytes_max` at most.

    In header keys, bytes that are not UTF-8 become `\\xff`. Raises Damaged, StoreError.
    """
    segment = open_segment(store, part.segment)
    assert isinstance(segment, RawSegment)
    bounds = READER._replace(field_bytes=inflated_bytes_max, batch_bytes=inflated_bytes_max)
    for piece in cut(segment.body, lossy=True, bounds=bounds):
        if piece.base_offset >= part.end or piece.end_offset <= part.start:
            continue
        if piece.kind is Kind.RAW:
            is_too_large = _inflates_beyond(piece.batches, inflated_bytes_max)
            yield UndecodableRange(piece.base_offset, piece.end_offset, is_too_large)
        if piece.kind is Kind.ROWS:
            rows = table_of(piece)
            offsets = rows["_offset"]
            inside = pc.and_(pc.greater_equal(offsets, part.start), pc.less(offsets, part.end))
            yield RawRows(rows.filter(inside), piece.log_append_time)


def _inflates_beyond(batches: memoryview, bytes_max: int) -> bool:
    """Whether one of these batches does."""
    for batch in read_batches(batches):
        try:
            decompress(batch.codec, batch.data[BATCH_HEADER_BYTES:], bytes_max)
        except InflatesTooFar:
            return True
        except PeerError:
            continue
    return False
