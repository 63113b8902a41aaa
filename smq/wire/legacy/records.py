"""Kafka's message formats 0 and 1, which clients from before 0.11 send and read. Pure.

    set      = messages, one after the other
    message  = offset (8), length (4), CRC-32 of what follows (4), magic (1), attributes (1),
               timestamp (8, magic 1 only), key, value (each a length of 4, -1 for null, and bytes)

Compressed messages are the value of a wrapper message, whose attributes name the codec. Inside, a
message of magic 0 has its own offset. One of magic 1 has an offset relative to the set's start, and
the wrapper has the offset of the last one; the timestamp is the wrapper's if that is of type
LogAppendTime.

Snappy may have Java's framing. The LZ4 frames of magic 0 have a wrong header checksum: Kafka's old
clients took it over the frame's magic number too (KAFKA-3160).
"""

import zlib
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from smq.wire.codec import Buffer, Malformed
from smq.wire.compression import Codec, InflatesTooFar, decompress

CODEC_MASK, LOG_APPEND_TIME = 0x07, 0x08
NO_TIMESTAMP = -1
WRAPPER_BYTES_MAX = 1024 * 1024  # Inflated in one step: up to ten milliseconds.
_OVERHEAD = Struct(">qi")  # Offset and length.
_HEADS = (Struct(">Ibb"), Struct(">Ibbq"))  # By magic: CRC, magic, attributes (, timestamp).
_LENGTH, _CRC_BYTES, _MAGIC_AT = Struct(">i"), 4, 16
_LENGTHS_BYTES = 2 * _LENGTH.size
_CODECS = frozenset({Codec.GZIP, Codec.SNAPPY, Codec.LZ4})


class OldMessage(NamedTuple):
    """A message; `codec` is that of the wrapper it came in."""

    magic: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    is_log_append_time: bool = False
    codec: int = Codec.NONE


class _Entry(NamedTuple):
    """A message within its set."""

    magic: int
    offset: int
    attributes: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None

    def message(self, offset: int, wrapper: "_Entry | None" = None) -> OldMessage:
        times, codec = self, 0
        if wrapper is not None:
            codec = wrapper.attributes & CODEC_MASK
            times = wrapper if wrapper.attributes & LOG_APPEND_TIME else self
        is_appended = bool(times.attributes & LOG_APPEND_TIME) and self.magic > 0
        return OldMessage(
            self.magic, offset, times.timestamp_ms, self.key, self.value, is_appended, codec
        )


def read_messages(data: Buffer, bytes_max: int) -> Iterator[OldMessage]:
    """The messages of a set. All its wrappers together may inflate to `bytes_max` bytes, each to
    WRAPPER_BYTES_MAX.

    Raises Malformed, Undecodable or, beyond the limit, InflatesTooFar.
    """
    left = bytes_max
    for entry in _entries(memoryview(data)):
        codec = entry.attributes & CODEC_MASK
        if codec == Codec.NONE:
            yield entry.message(entry.offset)
            continue
        inflated = _inflated(entry, codec, min(left, WRAPPER_BYTES_MAX))
        left -= len(inflated)
        yield from _unwrapped(entry, inflated)


def _unwrapped(wrapper: _Entry, inflated: memoryview) -> Iterator[OldMessage]:
    """The messages in a wrapper."""
    base = wrapper.offset - _last_offset(inflated) if wrapper.magic > 0 else 0
    for inner in _entries(inflated):
        if inner.attributes & CODEC_MASK:
            raise Malformed("a compressed message within a compressed one")
        if inner.magic != wrapper.magic:
            raise Malformed("a message of another format than its wrapper")
        yield inner.message(base + inner.offset, wrapper)


def _last_offset(inflated: memoryview) -> int:
    at, offset = 0, -1
    while at < len(inflated):
        offset, end = _bounds(inflated, at)
        at = end
    if offset < 0:
        raise Malformed("a wrapper without messages")
    return offset


def _inflated(wrapper: _Entry, codec: int, bytes_max: int) -> memoryview:
    if codec not in _CODECS:
        raise Malformed(f"a message of compression {codec}")
    if wrapper.value is None:
        raise Malformed("a wrapper without a value")
    data = wrapper.value
    if codec == Codec.LZ4 and wrapper.magic == 0:
        data = with_header_checksum(data)
    if bytes_max <= 0:
        raise InflatesTooFar("the message set inflates too far")
    return memoryview(decompress(codec, data, bytes_max))


def _bounds(data: memoryview, at: int) -> tuple[int, int]:
    """The offset and the end of the message at `at`."""
    if len(data) - at < _OVERHEAD.size:
        raise Malformed("a message set that is cut")
    offset, length = _OVERHEAD.unpack_from(data, at)
    end = at + _OVERHEAD.size + length
    if not _HEADS[0].size + _LENGTHS_BYTES <= length <= len(data) - at - _OVERHEAD.size:
        raise Malformed(f"a message of {length} bytes")
    return offset, end


def _entries(data: memoryview) -> Iterator[_Entry]:
    at = 0
    while at < len(data):
        offset, end = _bounds(data, at)
        magic = data[at + _MAGIC_AT]
        if magic >= len(_HEADS):
            raise Malformed(f"a message of format {magic}")
        head, start = _HEADS[magic], at + _OVERHEAD.size
        if end - start < head.size + _LENGTHS_BYTES:
            raise Malformed(f"a message of {end - start} bytes")
        crc, _, attributes, *timestamp = head.unpack_from(data, start)
        if crc != zlib.crc32(data[start + _CRC_BYTES : end]):
            raise Malformed(f"the message at offset {offset} has a wrong CRC")
        key, key_end = _field(data, start + head.size, end)
        value, value_end = _field(data, key_end, end)
        if value_end != end:
            raise Malformed("a message that does not fill its length")
        time = timestamp[0] if timestamp else NO_TIMESTAMP
        yield _Entry(magic, offset, attributes, time, key, value)
        at = end


def _field(data: memoryview, at: int, end: int) -> tuple[bytes | None, int]:
    if end - at < _LENGTH.size:
        raise Malformed("a message that is cut")
    [length] = _LENGTH.unpack_from(data, at)
    at += _LENGTH.size
    if length == -1:
        return None, at
    if not 0 <= length <= end - at:
        raise Malformed(f"a field of {length} bytes where {end - at} are left")
    return bytes(data[at : at + length]), at + length


def write_message(message: OldMessage) -> bytes:
    """One message, uncompressed."""
    attributes = LOG_APPEND_TIME if message.is_log_append_time and message.magic > 0 else 0
    times = [message.timestamp_ms] if message.magic > 0 else []
    fields = b"".join((*_written(message.key), *_written(message.value)))
    head = _HEADS[message.magic].pack(0, message.magic, attributes, *times)
    checked = head[_CRC_BYTES:] + fields
    crc = zlib.crc32(checked).to_bytes(_CRC_BYTES)
    return _OVERHEAD.pack(message.offset, _CRC_BYTES + len(checked)) + crc + checked


def _written(data: bytes | None) -> tuple[bytes, bytes]:
    return (_LENGTH.pack(-1), b"") if data is None else (_LENGTH.pack(len(data)), data)


# LZ4's frames: a magic number, flags, block descriptor, maybe the content's size, header checksum.

_LZ4_MAGIC_BYTES, _LZ4_SIZE_BYTES, _LZ4_HAS_SIZE = 4, 8, 0x08
_PRIMES = 2654435761, 2246822519, 3266489917, 668265263, 374761393
_UINT32 = 0xFFFFFFFF


def with_header_checksum(frame: bytes) -> bytes:
    """An LZ4 frame with its header checksum corrected."""
    if len(frame) <= _LZ4_MAGIC_BYTES:
        raise Malformed("an LZ4 frame that is cut")
    has_size = bool(frame[_LZ4_MAGIC_BYTES] & _LZ4_HAS_SIZE)
    at = _LZ4_MAGIC_BYTES + 2 + _LZ4_SIZE_BYTES * has_size
    if len(frame) <= at:
        raise Malformed("an LZ4 frame that is cut")
    checksum = xxh32_of_few(frame[_LZ4_MAGIC_BYTES:at]) >> 8 & 0xFF
    return frame[:at] + bytes([checksum]) + frame[at + 1 :]


def xxh32_of_few(data: bytes) -> int:
    """XXH32 (seed 0) of fewer than 16 bytes."""
    assert len(data) < 16
    prime1, prime2, prime3, prime4, prime5 = _PRIMES
    found, whole = prime5 + len(data), len(data) // 4 * 4
    for at in range(0, whole, 4):
        found = found + int.from_bytes(data[at : at + 4], "little") * prime3 & _UINT32
        found = _rotated(found, 17) * prime4 & _UINT32
    for byte in data[whole:]:
        found = found + byte * prime5 & _UINT32
        found = _rotated(found, 11) * prime1 & _UINT32
    found = (found ^ found >> 15) * prime2 & _UINT32
    found = (found ^ found >> 13) * prime3 & _UINT32
    return found ^ found >> 16


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & _UINT32
