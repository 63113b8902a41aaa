"""The plain twins of `records`, `records_encode` and `views`: read them first.

    record = length, attributes, timestamp delta, offset delta, key, value, headers

Lengths and deltas are zigzag varints: 0, -1, 1, -2 … become 0, 1, 2, 3 …, seven bits a byte, the
lowest first, the top bit set on all but the last. A field is its length and its bytes; -1 is null.
"""

import struct
from functools import partial
from typing import NamedTuple

from shm.kernels.base import words

_HEADER = struct.Struct(">qiibIhiqqqhii")
assert _HEADER.size == 61

Field = bytes | None


class MalformedRecord(Exception):
    """These bytes are no record."""


class PlainRecord(NamedTuple):
    """A record, with its fields' bytes."""

    offset: int
    timestamp: int
    key: Field
    value: Field
    headers: tuple[tuple[bytes, Field], ...] = ()


class FieldReader:
    """Takes fields off the front of some bytes."""

    def __init__(self, data: bytes) -> None:
        self.left = data

    def take(self, length: int) -> bytes:
        if not 0 <= length <= len(self.left):
            raise MalformedRecord
        taken, self.left = self.left[:length], self.left[length:]
        return taken

    def varint(self, bits: int) -> int:
        value = 0
        for place in range(-(-bits // 7)):
            byte = self.take(1)[0]
            value |= (byte & 127) << 7 * place
            if byte < 128:
                if value >= 1 << bits:
                    break
                return (value >> 1) ^ -(value & 1)
        raise MalformedRecord

    def field(self) -> Field:
        length = self.varint(32)
        return None if length == -1 else self.take(length)

    def record(self, base_offset: int, base_timestamp: int) -> PlainRecord:
        inside = FieldReader(self.take(self.varint(32)))
        inside.take(1)
        timestamp = base_timestamp + inside.varint(64)
        offset = base_offset + inside.varint(32)
        key, value = inside.field(), inside.field()
        headers = tuple(inside.header() for _ in range(inside.count()))
        if inside.left or not -(2**63) <= timestamp < 2**63:
            raise MalformedRecord
        return PlainRecord(offset, timestamp, key, value, headers)

    def count(self) -> int:
        count = self.varint(32)
        if count < 0:
            raise MalformedRecord
        return count

    def header(self) -> tuple[bytes, Field]:
        key = self.field()
        if key is None:
            raise MalformedRecord
        return key, self.field()


def records(data: bytes, base_offset: int, base_timestamp: int, count: int) -> list[PlainRecord]:
    """The records that fill `data`. Raises MalformedRecord."""
    if count < 0:
        raise MalformedRecord
    reader, read = FieldReader(data), list[PlainRecord]()
    for _ in range(count):
        read.append(reader.record(base_offset, base_timestamp))
        if read[-1].offset <= (read[-2].offset if len(read) > 1 else base_offset - 1):
            raise MalformedRecord
    if reader.left:
        raise MalformedRecord
    return read


class RecordLimits(NamedTuple):
    """What a topic requires of its records; times in ms."""

    needs_key: bool
    first_ms: int
    last_ms: int


def refused(read: list[PlainRecord], limits: RecordLimits) -> tuple[list[int], list[int]]:
    """The places of records that must have a key and have none, and of those out of time."""
    keyless = [i for i, each in enumerate(read) if limits.needs_key and each.key is None]
    late = [
        i
        for i, each in enumerate(read)
        if each.timestamp > limits.last_ms
        or (each.timestamp < limits.first_ms and each.timestamp != -1)
    ]
    return keyless, late


def varint(value: int) -> bytes:
    """A zigzag varint."""
    bits = value << 1 if value >= 0 else ~(value << 1)
    out = bytearray()
    while bits > 127:
        out.append(bits & 127 | 128)
        bits >>= 7
    return bytes([*out, bits])


def field(data: Field) -> bytes:
    """A length and bytes."""
    return varint(-1) if data is None else varint(len(data)) + data


def record_body(record: PlainRecord, base_offset: int, base_timestamp: int) -> bytes:
    """A record behind its length."""
    parts = [b"\0", varint(record.timestamp - base_timestamp), varint(record.offset - base_offset)]
    parts += [field(record.key), field(record.value), varint(len(record.headers))]
    parts += [field(each) for header in record.headers for each in header]
    return b"".join(parts)


def crc32c(data: bytes) -> int:
    """Castagnoli's check, a bit at a time (RFC 3720, appendix B.4)."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def batch(
    records: list[PlainRecord],
    *,
    end_offset: int,
    attributes: int = 0,
    leader_epoch: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    inflated: bytes | None = None,
) -> bytes:
    """One batch of these records, up to the record at `end_offset`.

    `inflated` stands in for the records' bytes, to make batches that are wrong or compressed.
    """
    base_offset, base_timestamp = records[0].offset, records[0].timestamp
    bodies = [record_body(record, base_offset, base_timestamp) for record in records]
    payload = b"".join(varint(len(body)) + body for body in bodies)
    payload = payload if inflated is None else inflated
    newest = max(record.timestamp for record in records)
    last_delta = min(end_offset - 1 - base_offset, 2**31 - 1)
    checked = struct.pack(
        ">hiqqqhii",
        attributes,
        last_delta,
        base_timestamp,
        newest,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    checked += payload
    head = struct.pack(">qiibI", base_offset, 9 + len(checked), leader_epoch, 2, crc32c(checked))
    return head + checked


def encode(
    records: list[PlainRecord],
    *,
    end_offset: int,
    bytes_max: int,
    attributes: int,
    leader_epoch: int,
) -> list[bytes]:
    """Batches of at most `bytes_max` bytes, or one record, up to the record at `end_offset`."""
    make = partial(batch, attributes=attributes, leader_epoch=leader_epoch)
    batches, first = list[bytes](), 0
    while first < len(records):
        row = first + 1
        while row < len(records) and _may_share(records[first], records[row], attributes):
            if len(make(records[first : row + 1], end_offset=0)) > bytes_max:
                break
            row += 1
        next_offset = records[row].offset if row < len(records) else end_offset
        batches.append(make(records[first:row], end_offset=next_offset))
        first = row
    return batches


def _may_share(first: PlainRecord, record: PlainRecord, attributes: int) -> bool:
    if record.offset - first.offset >= 2**31:
        return False
    if attributes & words.ATTRIBUTE_LOG_APPEND_TIME:
        return first.timestamp == record.timestamp
    return -(2**63) <= record.timestamp - first.timestamp < 2**63


def utf8(data: bytes) -> bool:
    """Whether these bytes are UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def view(data: bytes, at: int, length: int) -> bytes:
    """The binary view of data[at:at + length]; of null (-1) it is all zeros."""
    if length < 0:
        return bytes(16)
    if length <= 12:
        return struct.pack("<i12s", length, data[at : at + length])
    return struct.pack("<i4sii", length, data[at : at + 4], 0, at)
