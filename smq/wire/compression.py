"""The compressions of record batches, by the number that a batch's attributes give them.

Nothing is inflated past a limit: a batch of a few kilobytes may stand for gigabytes, so output is
made in pieces (gzip, lz4), measured first (snappy) or written into a buffer that grows up to the
limit (zstd). Snappy comes in two framings: raw blocks, and those of Java's snappy-java ("xerial"),
a magic, two versions, then blocks behind their lengths. We write raw blocks, as librdkafka does.
LZ4 frames are written with independent blocks, the only ones that Kafka's Java reader takes.
"""

import zlib
from collections.abc import Callable
from enum import IntEnum
from struct import Struct, error as struct_error
from typing import Any, NoReturn

import cramjam
import lz4.frame

from smq.model.errors import PeerError
from smq.wire.codec import Buffer

GZIP_LEVEL = 6  # zlib's default and Kafka's.
ZSTD_LEVEL = 3  # Kafka's default.
ZSTD_FIRST_GUESS_BYTES_MIN = 64 * 1024
ZSTD_GROWTH = 4  # Work done in vain is at most a third of what is done in the end.

XERIAL_MAGIC = b"\x82SNAPPY\0"
_XERIAL_HEADER_BYTES = 16  # The magic, and two versions of 32 bits that nobody looks at.
_INT32 = Struct(">i")
_GZIP_WINDOW = 16 + zlib.MAX_WBITS
_ZSTD_TOO_SMALL = "failed to write whole buffer"  # What cramjam says of an output buffer.


class Undecodable(PeerError):
    """These bytes are not what their compression says, or inflate beyond the limit."""


class Codec(IntEnum):
    """The three lowest bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: int, data: bytes) -> bytes:
    """The records of a batch, compressed."""
    match Codec(codec):
        case Codec.NONE:
            return data
        case Codec.GZIP:
            return zlib.compress(data, GZIP_LEVEL, wbits=_GZIP_WINDOW)
        case Codec.SNAPPY:
            return bytes(cramjam.snappy.compress_raw(data))
        case Codec.LZ4:
            return bytes(lz4.frame.compress(data, block_linked=False))
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data, ZSTD_LEVEL))


def decompress(codec: int, data: Buffer, bytes_max: int) -> Buffer:
    """The records of a batch, inflated: `bytes_max` at most. Raises Undecodable."""
    if codec == Codec.NONE:
        return data if len(data) <= bytes_max else _too_large(bytes_max)
    inflate = _INFLATE.get(codec)
    if inflate is None:
        raise Undecodable(f"there is no compression {codec}")
    try:
        return inflate(data, bytes_max)
    except (zlib.error, RuntimeError, EOFError, struct_error, cramjam.DecompressionError) as error:
        raise Undecodable(f"these bytes are not {Codec(codec).name.lower()}: {error}") from error


def _too_large(bytes_max: int) -> NoReturn:
    raise Undecodable(f"a batch that inflates beyond {bytes_max} bytes")


def _inflate_gzip(data: Buffer, bytes_max: int) -> bytes:
    return _inflate_frames(data, bytes_max, lambda: zlib.decompressobj(_GZIP_WINDOW))


def _inflate_lz4(data: Buffer, bytes_max: int) -> bytes:
    return _inflate_frames(data, bytes_max, lz4.frame.LZ4FrameDecompressor)


def _inflate_frames(data: Buffer, bytes_max: int, new: Callable[[], Any]) -> bytes:
    """Any number of frames, one after the other; `new()` is a decompressor as those of zlib are."""
    inflated, left = [], bytes_max
    while data:
        frame = new()
        inflated.append(frame.decompress(data, left + 1))
        left -= len(inflated[-1])
        if left < 0:
            _too_large(bytes_max)
        if not frame.eof:
            raise EOFError("the end is missing")
        data = frame.unused_data or b""
    return b"".join(inflated)


def _inflate_zstd(data: Buffer, bytes_max: int) -> Buffer:
    """Frames need not say how large they are: guess, and try again with more room."""
    room = min(bytes_max, max(ZSTD_FIRST_GUESS_BYTES_MIN, ZSTD_GROWTH * len(data)))
    while True:
        output = bytearray(room)
        try:
            return memoryview(output)[: cramjam.zstd.decompress_into(data, output)]
        except cramjam.DecompressionError as error:
            if str(error) != _ZSTD_TOO_SMALL:
                raise
        if room == bytes_max:
            _too_large(bytes_max)
        room = min(bytes_max, ZSTD_GROWTH * room)


def _inflate_snappy(data: Buffer, bytes_max: int) -> bytes:
    if bytes(data[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        return _inflate_snappy_block(data, bytes_max, bytes_max)
    inflated, left, at = [], bytes_max, _XERIAL_HEADER_BYTES
    while at < len(data):
        (length,) = _INT32.unpack_from(data, at)
        at += _INT32.size
        if not 0 <= length <= len(data) - at:
            raise EOFError("a block that is cut")
        inflated.append(_inflate_snappy_block(data[at : at + length], left, bytes_max))
        left -= len(inflated[-1])
        at += length
    return b"".join(inflated)


def _inflate_snappy_block(block: Buffer, left: int, bytes_max: int) -> bytes:
    if not block:
        raise EOFError("an empty block")
    if cramjam.snappy.decompress_raw_len(block) > left:
        _too_large(bytes_max)
    return bytes(cramjam.snappy.decompress_raw(block))


_INFLATE: dict[int, Callable[[Buffer, int], Buffer]] = {
    Codec.GZIP: _inflate_gzip,
    Codec.SNAPPY: _inflate_snappy,
    Codec.LZ4: _inflate_lz4,
    Codec.ZSTD: _inflate_zstd,
}
