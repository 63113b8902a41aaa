"""Kafka's record batches (version 2) in plain Python, for clients and tests.

    batch  = header of 61 bytes, records (compressed as a whole if the attributes say so)
    record = length, attributes, timestamp delta, offset delta, key, value, headers

All numbers of a record are zigzag varints; null is the length -1. `shm.kernels.record` does the
same in kernels.
"""

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import NamedTuple

import numpy as np

from shm.kernels.base import words
from shm.kernels.base.crc32c import crc32c, crc32c_update
from smq.wire.codec import Buffer, Malformed
from smq.wire.compression import Codec, compress, decompress

MAGIC = 2
CRC_START = 0xFFFFFFFF  # Initial value of the CRC, which is inverted at the end.
INFLATED_BYTES_MAX = 256 * 1024 * 1024  # Far above any client's batch, far below memory.

_HEADER = Struct(">qiibIhiqqqhii")
_CHECKED = Struct(">hiqqqhii")  # The fields after the CRC in the header.
_LENGTH, _ATTRIBUTES, _CRC = Struct(">i"), Struct(">h"), Struct(">I")
assert _HEADER.size == words.BATCH_HEADER_BYTES
assert _CHECKED.size == words.BATCH_HEADER_BYTES - words.BATCH_ATTRIBUTES_AT

Headers = tuple[tuple[bytes, bytes | None], ...]


class Record(NamedTuple):
    """A record. Header keys are bytes: they may not be UTF-8."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class BatchView(NamedTuple):
    """The header of a batch, and a view of its records' bytes."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    data: memoryview  # The whole batch.

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> int:
        return self.attributes & words.ATTRIBUTE_CODEC_MASK

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & words.ATTRIBUTE_CONTROL)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & words.ATTRIBUTE_TRANSACTIONAL)

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & words.ATTRIBUTE_LOG_APPEND_TIME)

    def records(self, inflated_bytes_max: int = INFLATED_BYTES_MAX) -> Iterator[Record]:
        """The records; checks the CRC. Raises Malformed or Undecodable."""
        if self.crc != crc_of(self.data):
            raise Malformed(f"the batch at offset {self.base_offset} has a wrong CRC")
        payload = self.data[words.BATCH_HEADER_BYTES :]
        inflated = bytes(decompress(self.codec, payload, inflated_bytes_max))
        at = 0
        for _ in range(self.record_count):
            try:
                record, at = self.read_record(inflated, at)
            except IndexError as error:
                raise Malformed(f"the batch at offset {self.base_offset} is truncated") from error
            yield record
        if at != len(inflated):
            raise Malformed(f"the batch at offset {self.base_offset} has bytes after its records")

    def read_record(self, data: bytes, at: int) -> tuple[Record, int]:
        """The record at a place of the inflated records, and where it ends.

        Raises Malformed, IndexError.
        """
        length, at = read_varint(data, at)
        end = at + length
        if not 0 <= length <= len(data) - at:
            raise Malformed(f"a record of {length} bytes where {len(data) - at} are left")
        timestamp_delta, at = read_varint(data, at + 1, VARLONG_BYTES_MAX)
        offset_delta, at = read_varint(data, at)
        key, at = _read_field(data, at)
        value, at = _read_field(data, at)
        headers, at = _read_headers(data, at)
        if at != end:
            raise Malformed("a record that does not fill its length")
        timestamp = self.base_timestamp + timestamp_delta
        if self.is_log_append_time:
            timestamp = self.max_timestamp
        if not -INT63_END <= timestamp < INT63_END:
            raise Malformed(f"a record at {timestamp} ms")
        return Record(self.base_offset + offset_delta, timestamp, key, value, headers), at


HEADERS_MAX = 1 << 20  # Of a record: two bytes each, and 70 once they are read.
INT63_END = 2**63
VARINT_BYTES_MAX = 5
VARLONG_BYTES_MAX = 10


def read_batches(buffer: Buffer) -> Iterator[BatchView]:
    """The batches in a `records` field, without a truncated last one. Raises Malformed."""
    view, at = memoryview(buffer), 0
    while at + words.BATCH_HEADER_BYTES <= len(view):
        (length,) = _LENGTH.unpack_from(view, at + words.BATCH_LENGTH_AT)
        if length < words.BATCH_HEADER_BYTES - words.BATCH_OVERHEAD_BYTES:
            raise Malformed(f"a batch of {length} bytes")
        if view[at + words.BATCH_MAGIC_AT] != MAGIC:
            raise Malformed(f"a batch of format {view[at + words.BATCH_MAGIC_AT]}")
        end = at + words.BATCH_OVERHEAD_BYTES + length
        if end > len(view):
            return
        yield BatchView._make((*_HEADER.unpack_from(view, at), view[at:end]))
        at = end


def write_batch(
    records: Sequence[Record],
    *,
    compression: int = Codec.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """One batch of these records, with the base offset and timestamp of the first."""
    assert records
    body = BatchBody(records[0])
    for record in records:
        body.add(record)
    return body.batch(compression, (producer_id, producer_epoch, base_sequence))


class BatchBody:
    """A batch in the making, record by record."""

    def __init__(self, first: Record) -> None:
        """It has the base offset and timestamp of the record that is added first."""
        self._base_offset, self._base_timestamp = first.offset, first.timestamp_ms
        self._last_offset, self._max_timestamp = first.offset, first.timestamp_ms
        self._count = 0
        self._records = bytearray()

    def __len__(self) -> int:
        return len(self._records)

    def add(self, record: Record) -> None:
        """Add the next record."""
        encoded = _write_record(record, self._base_offset, self._base_timestamp)
        self._records += _varint(len(encoded))
        self._records += encoded
        self._last_offset = record.offset
        self._max_timestamp = max(self._max_timestamp, record.timestamp_ms)
        self._count += 1

    def batch(self, compression: int, producer: tuple[int, int, int] = (-1, -1, -1)) -> bytes:
        """The whole batch; `producer`: id, epoch and base sequence."""
        payload = compress(compression, bytes(self._records))
        checked = _CHECKED.pack(
            compression,
            self._last_offset - self._base_offset,
            self._base_timestamp,
            self._max_timestamp,
            *producer,
            self._count,
        )
        length = words.BATCH_HEADER_BYTES - words.BATCH_OVERHEAD_BYTES + len(payload)
        batch = bytearray(words.BATCH_ATTRIBUTES_AT) + checked + payload
        _HEAD.pack_into(batch, 0, self._base_offset, length, -1, MAGIC, crc_of(batch))
        return bytes(batch)


def with_payload(batch: Buffer, codec: int, payload: bytes) -> bytearray:
    """A batch with its records as this payload, compressed by this codec."""
    made = bytearray(batch[: words.BATCH_HEADER_BYTES]) + payload
    [attributes] = _ATTRIBUTES.unpack_from(batch, words.BATCH_ATTRIBUTES_AT)
    _LENGTH.pack_into(made, words.BATCH_LENGTH_AT, len(made) - words.BATCH_OVERHEAD_BYTES)
    attributes = attributes & ~words.ATTRIBUTE_CODEC_MASK | codec
    _ATTRIBUTES.pack_into(made, words.BATCH_ATTRIBUTES_AT, attributes)
    _CRC.pack_into(made, words.BATCH_CRC_AT, crc_of(made))
    return made


_HEAD = Struct(">qiibI")
assert _HEAD.size == words.BATCH_ATTRIBUTES_AT == words.BATCH_CRC_AT + 4


def batch_pieces(records: Sequence[Record], like: BatchView, last_offset: int) -> list[Buffer]:
    """An uncompressed batch of some records of another batch, without a producer, without copies.

    Otherwise its header equals the original's; the last offset may be beyond the last record's.
    """
    assert records
    base_offset, base_timestamp = records[0].offset, records[0].timestamp_ms
    body: list[Buffer] = []
    for record in records:
        parts = _record_parts(record, base_offset, base_timestamp)
        body += [_varint(sum(map(len, parts))), *parts]
    max_timestamp = max(record.timestamp_ms for record in records)
    checked = _CHECKED.pack(
        like.attributes & words.ATTRIBUTE_LOG_APPEND_TIME,
        last_offset - base_offset,
        base_timestamp,
        max_timestamp,
        -1,
        -1,
        -1,
        len(records),
    )
    crc = CRC_START
    for piece in (checked, *body):
        crc = int(crc32c_update(np.frombuffer(piece, np.uint8), 0, len(piece), crc))
    length = words.BATCH_HEADER_BYTES - words.BATCH_OVERHEAD_BYTES + sum(map(len, body))
    head = _HEAD.pack(base_offset, length, like.leader_epoch, MAGIC, crc ^ CRC_START)
    return [head, checked, *body]


def crc_of(batch: Buffer | bytearray) -> int:
    """The CRC-32C that a whole batch should have."""
    return int(crc32c(np.frombuffer(batch, np.uint8), words.BATCH_ATTRIBUTES_AT, len(batch)))


def read_varint(data: bytes, at: int, bytes_max: int = VARINT_BYTES_MAX) -> tuple[int, int]:
    """A signed number in zigzag, and where it ends. Raises Malformed, IndexError."""
    byte = data[at]
    bits, at, shift = byte & 0x7F, at + 1, 7
    while byte >= 0x80:
        if shift == 7 * bytes_max:
            raise Malformed("an unterminated varint")
        byte = data[at]
        bits |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return (bits >> 1) ^ -(bits & 1), at


def _read_field(data: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = read_varint(data, at)
    if length == -1:
        return None, at
    if not 0 <= length <= len(data) - at:
        raise Malformed(f"a field of {length} bytes where {len(data) - at} are left")
    return data[at : at + length], at + length


def _read_headers(data: bytes, at: int) -> tuple[Headers, int]:
    count, at = read_varint(data, at)
    if not 0 <= count <= min(len(data) - at, HEADERS_MAX):
        raise Malformed(f"{count} headers where {len(data) - at} bytes are left")
    headers = []
    for _ in range(count):
        key, at = _read_field(data, at)
        if key is None:
            raise Malformed("a header without a key")
        value, at = _read_field(data, at)
        headers.append((key, value))
    return tuple(headers), at


def _write_record(record: Record, base_offset: int, base_timestamp: int) -> bytes:
    return b"".join(_record_parts(record, base_offset, base_timestamp))


def _record_parts(record: Record, base_offset: int, base_timestamp: int) -> list[bytes]:
    parts = [
        b"\0",
        _varint(record.timestamp_ms - base_timestamp),
        _varint(record.offset - base_offset),
        *_field(record.key),
        *_field(record.value),
    ]
    return parts + _headers_parts(record.headers)


def _headers_parts(headers: Headers) -> list[bytes]:
    parts = [_varint(len(headers))]
    for key, value in headers:
        parts += _field(key)
        parts += _field(value)
    return parts


def write_headers(headers: Headers) -> bytes:
    """A record's encoded headers with their count."""
    return b"".join(_headers_parts(headers)) if headers else _NO_HEADERS


def _field(data: bytes | None) -> tuple[bytes, bytes]:
    return (_varint(-1), b"") if data is None else (_varint(len(data)), data)


def _varint(value: int) -> bytes:
    bits = value << 1 if value >= 0 else ~(value << 1)
    if bits < 0x80:
        return _SHORT_VARINTS[bits]
    out = bytearray()
    while bits >= 0x80:
        out.append(bits & 0x7F | 0x80)
        bits >>= 7
    out.append(bits)
    return bytes(out)


_NO_HEADERS = b"\0"
_SHORT_VARINTS = [bytes([value]) for value in range(0x80)]
