"""The compressions of record batches, by their number in a batch's attributes.

Nothing is inflated past a limit, since a few kilobytes may inflate to gigabytes: output comes in
pieces (gzip, lz4), is measured first (snappy) or goes to a buffer that grows up to the limit
(zstd). Snappy has two framings: raw blocks, and those of Java's snappy-java ("xerial"): a magic,
two versions, then blocks with their lengths. SMQ writes raw blocks, as librdkafka does, and LZ4
frames with independent blocks, the only ones that Kafka's Java reader accepts.
"""

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from struct import Struct, error as struct_error
from typing import Any, NoReturn

import cramjam
import lz4.frame
import numpy as np

from smq.model.errors import PeerError
from smq.wire.codec import Buffer

# Kafka's defaults. zlib's -1 is 6; that of LZ4 is the fast compressor, not level 9 of the slow one.
GZIP_LEVEL, LZ4_LEVEL, ZSTD_LEVEL = -1, 9, 3
_LZ4_SLOW_FROM = 3  # Of lz4.frame: what is below is fast.
ZSTD_FIRST_GUESS_BYTES_MIN = 64 * 1024
PIECE_BYTES = 256 * 1024  # Of output that is inflated in pieces.
INPUT_BYTES = 16 * 1024  # Input given to a decompressor at a time: it copies what it does not use.
ZSTD_GROWTH = 4  # Wasted work is at most a third of the final work.

XERIAL_MAGIC = b"\x82SNAPPY\0"
_XERIAL_HEADER_BYTES = 16  # The magic, and two 32-bit versions that readers ignore.
_INT32 = Struct(">i")
_GZIP_WINDOW = 16 + zlib.MAX_WBITS
_ZSTD_TOO_SMALL = "failed to write whole buffer"  # cramjam's error for a full output buffer.


class Undecodable(PeerError):
    """These bytes are not valid for their compression, or inflate beyond the limit."""


class InflatesTooFar(Undecodable):
    """These bytes inflate beyond the limit."""


class Codec(IntEnum):
    """The three lowest bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: int, data: bytes, level: int | None = None) -> bytes:
    """The records of a batch, compressed, at a level of Kafka's or the default one (KIP-390)."""
    match Codec(codec):
        case Codec.NONE:
            return data
        case Codec.GZIP:
            return zlib.compress(data, GZIP_LEVEL if level is None else level, wbits=_GZIP_WINDOW)
        case Codec.SNAPPY:
            return bytes(cramjam.snappy.compress_raw(data))
        case Codec.LZ4:
            wanted = LZ4_LEVEL if level is None else level
            own = 0 if wanted == LZ4_LEVEL else max(_LZ4_SLOW_FROM, wanted)
            return bytes(lz4.frame.compress(data, compression_level=own, block_linked=False))
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data, ZSTD_LEVEL if level is None else level))


def decompress(codec: int, data: Buffer, bytes_max: int) -> Buffer:
    """The inflated records of a batch, at most `bytes_max`. Raises Undecodable."""
    if codec == Codec.NONE:
        return data if len(data) <= bytes_max else _too_large(bytes_max)
    inflate = _INFLATE.get(codec)
    if inflate is None:
        raise Undecodable(f"unknown compression {codec}")
    with _named(codec):
        return inflate(data, bytes_max)


def inflate_pieces(codec: int, data: Buffer, bytes_max: int) -> Iterator[Buffer]:
    """Like decompress(), in pieces: a caller that stops early inflates no more. Raises Undecodable.

    For gzip, lz4 and snappy-java one piece is in memory at a time. A piece is valid until the next.
    """
    pieces, left = _PIECES.get(codec, _in_one_piece), bytes_max
    with _named(codec):
        for piece in pieces(codec, data, bytes_max):
            left -= len(piece)
            if left < 0:
                _too_large(bytes_max)
            yield piece


@contextmanager
def _named(codec: int) -> Iterator[None]:
    """Turns errors of the decompressors into Undecodable."""
    try:
        yield
    except (zlib.error, RuntimeError, EOFError, struct_error, cramjam.DecompressionError) as error:
        raise Undecodable(f"invalid {Codec(codec).name.lower()} data: {error}") from error


def _too_large(bytes_max: int) -> NoReturn:
    raise InflatesTooFar(f"the batch inflates beyond {bytes_max} bytes")


def _inflate_gzip(data: Buffer, bytes_max: int) -> bytes:
    return _inflate_frames(data, bytes_max, zlib.decompressobj(_GZIP_WINDOW), _gzip_pieces)


def _inflate_lz4(data: Buffer, bytes_max: int) -> bytes:
    return _inflate_frames(data, bytes_max, lz4.frame.LZ4FrameDecompressor(), _lz4_pieces)


def _inflate_frames(
    data: Buffer,
    bytes_max: int,
    frame: Any,  # noqa: ANN401  (like zlib's)
    pieces: Callable[[int, Buffer, int], Iterator[bytes]],
) -> bytes:
    """Inflates consecutive frames: the first, mostly the only one, at once by `frame`, the others
    in pieces, as a decompressor copies all that lies behind its frame."""
    if not data:
        return b""
    inflated, left = [frame.decompress(data, bytes_max + 1)], bytes_max
    left -= len(inflated[0])
    if left >= 0 and not frame.eof:
        raise EOFError("the end is missing")
    for piece in pieces(0, frame.unused_data or b"", bytes_max) if left >= 0 else ():
        if piece:
            inflated.append(piece)
        left -= len(piece)
        if left < 0:
            break
    return b"".join(inflated) if left >= 0 else _too_large(bytes_max)


def _in_one_piece(codec: int, data: Buffer, bytes_max: int) -> Iterator[Buffer]:
    yield decompress(codec, data, bytes_max)


def _gzip_pieces(_codec: int, data: Buffer, _bytes_max: int) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        frame, has_ended = zlib.decompressobj(_GZIP_WINDOW), False
        while not has_ended:
            if at >= len(data):
                raise EOFError("the end is missing")
            given: Buffer = data[at : at + INPUT_BYTES]
            at += len(given)
            piece = frame.decompress(given, PIECE_BYTES)
            yield piece
            has_ended = frame.eof
            # At the end of a frame the rest of the input stays there.
            while not has_ended and (frame.unconsumed_tail or len(piece) == PIECE_BYTES):
                piece = frame.decompress(frame.unconsumed_tail, PIECE_BYTES)
                yield piece
                has_ended = frame.eof
        at -= len(frame.unused_data)


def _lz4_pieces(_codec: int, data: Buffer, _bytes_max: int) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        frame = lz4.frame.LZ4FrameDecompressor()
        while not frame.eof:
            given: Buffer = b""
            if frame.needs_input:
                if at >= len(data):
                    raise EOFError("the end is missing")
                given = data[at : at + INPUT_BYTES]
                at += len(given)
            yield frame.decompress(given, PIECE_BYTES)
        at -= len(frame.unused_data or b"")


def _zstd_pieces(_codec: int, data: Buffer, bytes_max: int) -> Iterator[Buffer]:
    """Inflates into a buffer; output that fills it is retried with a larger one."""
    room, given = min(bytes_max, ZSTD_FIRST_GUESS_BYTES_MIN), 0
    while True:
        output, end = np.empty(room, np.uint8).data, room
        try:
            end, is_whole = cramjam.zstd.decompress_into(data, output), True
        except cramjam.DecompressionError as error:
            if str(error) != _ZSTD_TOO_SMALL:
                raise
            is_whole = False
        yield output[given:end].toreadonly()
        if is_whole:
            return
        if room == bytes_max:
            _too_large(bytes_max)
        given, room = room, min(bytes_max, ZSTD_GROWTH * room)


def _snappy_pieces(_codec: int, data: Buffer, bytes_max: int) -> Iterator[bytes]:
    if bytes(data[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        yield _inflate_snappy_block(data, bytes_max, bytes_max)
    else:
        yield from _xerial_blocks(data, bytes_max)


def _inflate_zstd(data: Buffer, bytes_max: int) -> Buffer:
    """Frames may omit their size: guess it, and retry with a larger buffer."""
    room = min(bytes_max, max(ZSTD_FIRST_GUESS_BYTES_MIN, ZSTD_GROWTH * len(data)))
    while True:
        output = np.empty(room, np.uint8).data  # A bytearray's zeros would hold all threads up.
        try:
            return output[: cramjam.zstd.decompress_into(data, output)]
        except cramjam.DecompressionError as error:
            if str(error) != _ZSTD_TOO_SMALL:
                raise
        if room == bytes_max:
            _too_large(bytes_max)
        room = min(bytes_max, ZSTD_GROWTH * room)


def _inflate_snappy(data: Buffer, bytes_max: int) -> bytes:
    if bytes(data[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        return _inflate_snappy_block(data, bytes_max, bytes_max)
    inflated = bytearray()  # Blocks may be thousands of times smaller than their objects.
    for block in _xerial_blocks(data, bytes_max):
        inflated += block
    return bytes(inflated)


def _xerial_blocks(data: Buffer, bytes_max: int) -> Iterator[bytes]:
    left, at = bytes_max, _XERIAL_HEADER_BYTES
    while at < len(data):
        (length,) = _INT32.unpack_from(data, at)
        at += _INT32.size
        if not 0 <= length <= len(data) - at:
            raise EOFError("a truncated block")
        block = _inflate_snappy_block(data[at : at + length], left, bytes_max)
        yield block
        left -= len(block)
        at += length


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
_PIECES: dict[int, Callable[[int, Buffer, int], Iterator[Buffer]]] = {
    Codec.GZIP: _gzip_pieces,
    Codec.SNAPPY: _snappy_pieces,
    Codec.LZ4: _lz4_pieces,
    Codec.ZSTD: _zstd_pieces,
}
