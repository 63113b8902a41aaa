"""The records of a batch, read while it inflates: one piece and one record are in memory.

A few kilobytes may inflate to gigabytes, in one record or in millions. What lies before the asked
offset is passed over as it comes; a record is refused before it is collected.
"""

from collections.abc import Iterator
from typing import NamedTuple

from shm.kernels.base.words import BATCH_HEADER_BYTES
from smq.wire.codec import Buffer, Malformed
from smq.wire.compression import Codec, InflatesTooFar, inflate_pieces
from smq.wire.records import (
    VARLONG_BYTES_MAX,
    BatchView,
    Record,
    crc_of,
    read_varint,
)

RECORDS_A_STEP = 256  # That are passed over without a word.


class InflationLimits(NamedTuple):
    """How many bytes are inflated, and how many of them a record may have."""

    inflated_bytes: int
    record_bytes: int


def records_from(batch: BatchView, start: int, limits: InflationLimits) -> Iterator[Record | None]:
    """The records from an offset on. None: a piece of the batch has ended, or some records were
    passed over.

    Raises Malformed, Undecodable or, beyond the limits, InflatesTooFar, behind the good records.
    """
    if batch.crc != crc_of(batch.data):
        raise Malformed(f"the batch at offset {batch.base_offset} has a wrong CRC")
    reader = _Reader(batch, start, limits.record_bytes)
    payload = batch.data[BATCH_HEADER_BYTES:]
    whole: Iterator[Buffer] = iter((payload,))
    if batch.codec != Codec.NONE:
        whole = inflate_pieces(batch.codec, payload, limits.inflated_bytes)
    for piece in whole:
        yield from reader.read(piece)
        yield None
    if not reader.is_done:
        raise Malformed(f"the batch at offset {batch.base_offset} is truncated")


class _Reader:
    """Takes a batch's records piece by piece."""

    def __init__(self, batch: BatchView, start: int, record_bytes_max: int) -> None:
        self._batch, self._start, self._bytes_max = batch, start, record_bytes_max
        self._rest = bytearray()  # The beginning of a record, or nothing.
        self._wanted = 0  # Bytes that `_rest` needs before it is worth another look.
        self._passing = 0  # Bytes still to come of a record that is passed over.
        self._left = batch.record_count

    @property
    def is_done(self) -> bool:
        return self._left <= 0 and not self._rest and not self._passing

    def read(self, piece: Buffer) -> Iterator[Record | None]:
        """The records that end in this piece. Pieces may be as small as a byte."""
        passed = min(self._passing, len(piece))
        self._passing -= passed
        self._rest += piece[passed:]
        if len(self._rest) < self._wanted:
            return
        data, at = bytes(self._rest), 0
        self._wanted = 0
        while self._left > 0 and at < len(data):
            offset, end = self._head(data, at)
            if offset >= self._start and end - at > self._bytes_max:
                raise InflatesTooFar(f"the record at offset {offset} has {end - at} bytes")
            if end < 0 or (offset >= self._start and end > len(data)):
                self._wanted = end - at  # The rest is to come.
                break
            self._left -= 1
            if offset >= self._start:
                record, at = self._whole(data, at)
                yield record
            else:
                self._passing, at = max(0, end - len(data)), min(end, len(data))
                if self._left % RECORDS_A_STEP == 0:
                    yield None
        if self._left <= 0 and at < len(data):
            raise Malformed(f"the batch at offset {self._batch.base_offset} has more than it says")
        self._rest = bytearray(data[at:])

    def _whole(self, data: bytes, at: int) -> tuple[Record, int]:
        try:
            return self._batch.read_record(data, at)
        except IndexError as error:
            raise Malformed("a record that does not fill its length") from error

    def _head(self, data: bytes, at: int) -> tuple[int, int]:
        """A record's offset and where it ends; end -1: its head is not all there."""
        try:
            length, after = read_varint(data, at)
            _, offset_at = read_varint(data, after + 1, VARLONG_BYTES_MAX)
            delta, head_end = read_varint(data, offset_at)
        except IndexError:
            return 0, -1
        if length < head_end - after:
            raise Malformed(f"a record of {length} bytes")
        return self._batch.base_offset + delta, after + length
