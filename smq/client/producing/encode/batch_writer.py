"""Writes rows as one Kafka batch of an idempotent producer into memory of a channel.

The kernel writes uncompressed batches in place. A compressed one is first written into a scratch
buffer; then its records are compressed and its header is adapted.
"""

from struct import Struct
from typing import NamedTuple

import numpy as np

from shm.kernels.base.crc32c import crc32c
from shm.kernels.base.words import (
    ATTRIBUTE_TRANSACTIONAL,
    BATCH_ATTRIBUTES_AT,
    BATCH_BASE_OFFSET_AT,
    BATCH_CRC_AT,
    BATCH_HEADER_BYTES,
    BATCH_LENGTH_AT,
    BATCH_OVERHEAD_BYTES,
)
from shm.kernels.record.records_encode import (
    RECORD_HEAD_BYTES_MAX,
    One,
    RecordRows,
    Run,
    ValueRows,
    encode_batch,
    encode_one,
    encode_values,
)
from shm.kernels.record.references import find_key
from smq.wire.compression import Codec, compress

NO_LEADER_EPOCH = -1  # The broker fills it in.

_INT32 = Struct(">i")
_UINT32 = Struct(">I")
_INT64 = Struct(">q")


class Stamp(NamedTuple):
    """Which producer sends a batch, and the batch's place in its sequence."""

    producer_id: int
    epoch: int
    sequence: int


class Written(NamedTuple):
    """The row after the batch, its end in `out`, and its size before compression."""

    row: int
    end: int
    size_bytes: int


class BatchWriter:
    """Writes batches of one compression. One thread at a time may use it."""

    def __init__(self, codec: Codec, *, is_transactional: bool = False) -> None:
        self._codec = codec
        self._kind = ATTRIBUTE_TRANSACTIONAL if is_transactional else 0
        self._scratch = np.zeros(0, np.uint8)

    @property
    def is_plain(self) -> bool:
        """Whether it does not compress."""
        return self._codec is Codec.NONE

    @staticmethod
    def least_bytes(bound: int) -> int:
        """The least size of a batch of one record, given the bytes that suffice for it."""
        return bound - RECORD_HEAD_BYTES_MAX + BATCH_HEADER_BYTES

    def room(self, bound: int, one_record: int, bytes_max: int) -> int:
        """The bytes that suffice for a batch of rows that have room in `bound` bytes.

        It has at most `bytes_max` bytes, or one record, the first one.
        """
        size = BATCH_HEADER_BYTES + max(min(bound, bytes_max - BATCH_HEADER_BYTES), one_record)
        # Incompressible records grow: Snappy's bound is a sixth, the others' are lower.
        return size if self._codec is Codec.NONE else size + size // 6 + 1024

    def bytes_max_in(self, room_bytes: int) -> int:
        """The largest batch, before compression, that fits into this many bytes in any case."""
        return room_bytes if self.is_plain else (room_bytes - 1024) * 6 // 7

    def write(  # noqa: PLR0913, PLR0917  (as a kernel)
        self,
        rows: RecordRows | ValueRows | One,
        part: tuple[int, int],
        stamp: Stamp,
        bytes_max: int,
        out: np.ndarray,
        at: int,
    ) -> Written:
        """Write a batch of rows [first, end) to out[at:], as many as fit into `bytes_max`."""
        if self._codec is Codec.NONE:
            row, after = _encode(rows, part, self._kind, stamp, bytes_max, out, at)
            return Written(row, after, after - at)
        if len(self._scratch) < len(out):
            self._scratch = np.zeros(len(out), np.uint8)
        row, size = _encode(
            rows, part, self._kind | int(self._codec), stamp, bytes_max, self._scratch, 0
        )
        if find_key(self._scratch, BATCH_HEADER_BYTES, size) >= 0:
            # The broker does not check compressed batches, so handles are sent uncompressed.
            row, after = _encode(rows, part, self._kind, stamp, bytes_max, out, at)
            return Written(row, after, after - at)
        return Written(row, self._compress(size, out, at), size)

    def _compress(self, size: int, out: np.ndarray, at: int) -> int:
        """Write the batch in the scratch buffer to out[at:], compressed; returns its end."""
        records = compress(self._codec, self._scratch[BATCH_HEADER_BYTES:size].tobytes())
        records_at = at + BATCH_HEADER_BYTES
        after = records_at + len(records)
        out[at:records_at] = self._scratch[:BATCH_HEADER_BYTES]
        out[records_at:after] = np.frombuffer(records, np.uint8)
        _INT32.pack_into(out.data, at + BATCH_LENGTH_AT, after - at - BATCH_OVERHEAD_BYTES)
        check = crc32c(out, at + BATCH_ATTRIBUTES_AT, after)
        _UINT32.pack_into(out.data, at + BATCH_CRC_AT, int(check))
        return after


def _encode(  # noqa: PLR0913, PLR0917  (as a kernel)
    rows: RecordRows | ValueRows | One,
    part: tuple[int, int],
    attributes: int,
    stamp: Stamp,
    bytes_max: int,
    out: np.ndarray,
    at: int,
) -> tuple[int, int]:
    """Write a batch, not compressed, whatever its attributes say: the row after it, its end."""
    if isinstance(rows, One):
        return 1, encode_one(*rows, attributes, *stamp, out, at)
    first, end = part
    run = Run(end, end, attributes, NO_LEADER_EPOCH, *stamp)
    encode = encode_values if isinstance(rows, ValueRows) else encode_batch
    row, after = encode(rows, first, run, bytes_max, out, at)
    assert row > first
    _INT64.pack_into(out.data, at + BATCH_BASE_OFFSET_AT, 0)
    return row, after
