"""Batches that are made from a segment: what each holds, and how large they may be.

A batch covers the gap behind its last record by `lastOffsetDelta`. A reader that asks for an offset
in such a gap gets the next batch: without a later record many clients repeat the fetch forever.
"""

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

import numpy as np

from shm.arrow import read_only
from shm.kernels.base.words import (
    BATCH_BASE_OFFSET_AT,
    BATCH_HEADER_BYTES,
    BATCH_LAST_OFFSET_DELTA_AT,
)
from smq.model.segments import BatchLimits
from smq.wire.codec import Buffer
from smq.wire.compression import Codec, compress
from smq.wire.records import with_payload

PLACE = np.dtype([("last_record", "<i8"), ("last_offset", "<i8"), ("at", "<i8"), ("end", "<i8")])
"""A batch in a file: its last record's offset, the last that it covers, and its bytes."""
_INT32, _INT64 = Struct(">i"), Struct(">q")
# Each client reads the first; the other saves more, and who sent such a record reads it.
_CODECS = Codec.GZIP, Codec.ZSTD


class ReadBack(NamedTuple):
    """Batches as pieces to write one after another, and their places (PLACE) in what is written."""

    pieces: Sequence[Buffer]
    places: np.ndarray


class BatchCollector:
    """Collects batches in order, each with its last record's offset."""

    def __init__(self) -> None:
        self._batches: list[memoryview] = []
        self._last_records: list[int] = []

    def add(self, batch: np.ndarray, last_record: int) -> None:
        """Add a batch."""
        self._batches.append(read_only(batch).data)
        self._last_records.append(last_record)

    def read_back(self) -> ReadBack:
        """All of them."""
        places = np.empty(len(self._batches), PLACE)
        lengths = [len(each) for each in self._batches]
        places["last_record"] = self._last_records
        places["last_offset"] = [_last_offset(each) for each in self._batches]
        places["end"] = np.cumsum(lengths)
        places["at"] = places["end"] - lengths
        return ReadBack(self._batches, places)


def _last_offset(batch: Buffer) -> int:
    [base_offset] = _INT64.unpack_from(batch, BATCH_BASE_OFFSET_AT)
    [delta] = _INT32.unpack_from(batch, BATCH_LAST_OFFSET_DELTA_AT)
    return int(base_offset + delta)


def fitting(batch: np.ndarray, limits: BatchLimits) -> np.ndarray:
    """A batch, compressed if it is larger than the topic allows: it was sent so."""
    best = batch
    for codec in _CODECS:
        if len(best) <= limits.alone_bytes:
            break
        records = bytes(batch[BATCH_HEADER_BYTES:].data)
        made = np.frombuffer(with_payload(batch.data, codec, compress(codec, records)), np.uint8)
        best = min(best, made, key=len)
    return best
