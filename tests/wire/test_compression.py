"""Compressions: other writers' output, malformed input, and bombs."""

import gzip
import os
import resource
import time
import tracemalloc
import zlib
from struct import pack

import cramjam
import lz4.frame
import pytest
from aiokafka.codec import lz4_encode, snappy_encode
from hypothesis import given, settings, strategies as st

from smq.wire.compression import (
    XERIAL_MAGIC,
    Codec,
    Undecodable,
    compress,
    decompress,
    inflate_pieces,
)

MiB = 1024 * 1024
DATA = b"the same bytes again and again " * 1000
COMPRESSED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
each_codec = pytest.mark.parametrize("codec", COMPRESSED, ids=lambda codec: codec.name)


@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.name)
@pytest.mark.parametrize("data", [b"", b"a", DATA], ids=["empty", "short", "long"])
def test_compressed_data_is_inflated_unchanged(codec: Codec, data: bytes) -> None:
    assert decompress(codec, compress(codec, data), len(data)) == data


@each_codec
def test_a_view_is_inflated_like_bytes(codec: Codec) -> None:
    assert decompress(codec, memoryview(compress(codec, DATA)), len(DATA)) == DATA


@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.name)
def test_nothing_is_inflated_past_the_limit(codec: Codec) -> None:
    with pytest.raises(Undecodable, match="beyond"):
        decompress(codec, compress(codec, DATA), len(DATA) - 1)


@each_codec
def test_a_bomb_is_refused_without_being_inflated(codec: Codec) -> None:
    with pytest.raises(Undecodable, match="beyond 65536 bytes"):
        decompress(codec, compress(codec, bytes(64 * MiB)), 65536)


@each_codec
@settings(deadline=None)
@given(garbage=st.binary(max_size=100))
def test_garbage_is_undecodable_or_inflates_to_something(codec: Codec, garbage: bytes) -> None:
    try:
        assert len(decompress(codec, garbage, MiB)) <= MiB
    except Undecodable:
        return


@each_codec
@settings(deadline=None)
@given(place=st.integers(0, 2**16))
def test_truncated_data_raises_undecodable(codec: Codec, place: int) -> None:
    data = compress(codec, DATA)
    with pytest.raises(Undecodable):
        decompress(codec, data[: 1 + place % (len(data) - 1)], len(DATA))


def test_an_unknown_compression_is_undecodable() -> None:
    with pytest.raises(Undecodable, match="unknown compression 5"):
        decompress(5, b"abc", 100)


def test_snappy_of_java_is_read() -> None:
    framed = snappy_encode(DATA, xerial_compatible=True, xerial_blocksize=1000)
    assert framed.startswith(XERIAL_MAGIC)
    assert decompress(Codec.SNAPPY, framed, len(DATA)) == DATA
    with pytest.raises(Undecodable, match="beyond"):
        decompress(Codec.SNAPPY, framed, len(DATA) - 1)


def test_snappy_of_librdkafka_is_read() -> None:
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(DATA)), len(DATA)) == DATA


def test_a_snappy_block_that_lies_about_its_length_is_undecodable() -> None:
    for length in (-1, 2**31 - 1):
        with pytest.raises(Undecodable):
            decompress(Codec.SNAPPY, XERIAL_MAGIC + bytes(8) + pack(">i", length) + b"abc", 100)


def test_zstd_frames_need_not_say_how_large_they_are() -> None:
    compressor = cramjam.zstd.Compressor()
    compressor.compress(DATA)
    streamed = bytes(compressor.finish())
    assert decompress(Codec.ZSTD, streamed, len(DATA)) == DATA
    assert decompress(Codec.ZSTD, streamed + streamed, 2 * len(DATA)) == DATA + DATA


def test_zstd_makes_more_room_until_it_is_enough() -> None:
    data = bytes(3 * MiB)
    assert decompress(Codec.ZSTD, compress(Codec.ZSTD, data), 4 * MiB) == data


def test_zstd_touches_no_room_that_it_does_not_fill() -> None:
    """To clear it takes all threads' time: 0.3 s of 100 MiB."""
    data = os.urandom(8 * MiB)
    compressed = compress(Codec.ZSTD, data)
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    inflated = decompress(Codec.ZSTD, compressed, 64 * MiB)
    faults = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before
    assert inflated == data
    assert faults * resource.getpagesize() < 2 * len(data)


def test_lz4_frames_are_written_with_independent_blocks() -> None:
    assert compress(Codec.LZ4, DATA)[4] & 0x20  # Java's reader refuses linked blocks.


def test_lz4_frames_of_others_are_read() -> None:
    linked = bytes(lz4.frame.compress(DATA, block_linked=True))
    for data in (linked, lz4_encode(DATA), bytes(cramjam.lz4.compress(DATA))):
        assert decompress(Codec.LZ4, data, len(DATA)) == DATA
    assert decompress(Codec.LZ4, linked + linked, 2 * len(DATA)) == DATA + DATA


def test_gzip_of_several_members_is_read() -> None:
    members = gzip.compress(DATA) + gzip.compress(b"more")
    assert decompress(Codec.GZIP, members, 2 * len(DATA)) == DATA + b"more"
    assert zlib.decompress(compress(Codec.GZIP, DATA), wbits=31) == DATA


def pieces(codec: int, data: bytes, bytes_max: int = 64 * MiB) -> list[bytes]:
    """What is inflated, as it comes."""
    return [bytes(piece) for piece in inflate_pieces(codec, data, bytes_max)]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4], ids=lambda codec: codec.name)
def test_many_frames_take_time_by_their_bytes(codec: Codec) -> None:
    """data fault 11: each frame copied all that lay behind it, 0.7 s for a megabyte."""
    empty = compress(codec, b"")

    def seconds(count: int) -> float:
        began = time.thread_time()
        assert decompress(codec, empty * count, 0) == b""
        return time.thread_time() - began

    few, many = (min(seconds(count) for _ in range(5)) for count in (2000, 32_000))
    assert many < 3 * 16 * few


def test_tiny_blocks_take_little_memory() -> None:
    """data fault 11: each took a hundred bytes until all were inflated."""
    empty, count = pack(">i", 1) + bytes(1), 200_000
    framed = XERIAL_MAGIC + bytes(8) + empty * count
    tracemalloc.start()
    assert decompress(Codec.SNAPPY, framed, MiB) == b""
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < MiB


LONG = bytes(range(256)) * 8192 + bytes(3 * MiB)


@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.name)
@pytest.mark.parametrize("data", [b"", b"a", DATA, LONG], ids=["empty", "short", "long", "longer"])
def test_pieces_are_what_is_inflated_at_once(codec: Codec, data: bytes) -> None:
    compressed = compress(codec, data)
    assert b"".join(pieces(codec, compressed)) == data
    assert b"".join(pieces(codec, compressed, len(data))) == data


def test_pieces_of_several_frames_and_of_snappy_of_java_follow_each_other() -> None:
    for codec in (Codec.GZIP, Codec.LZ4):
        assert b"".join(pieces(codec, compress(codec, LONG) + compress(codec, DATA))) == LONG + DATA
    framed = snappy_encode(DATA * 4, xerial_compatible=True)
    assert b"".join(pieces(Codec.SNAPPY, framed)) == DATA * 4
    assert max(map(len, pieces(Codec.SNAPPY, framed))) <= MiB // 4


@each_codec
def test_a_reader_that_stops_early_inflates_no_more(codec: Codec) -> None:
    bomb = compress(codec, bytes(16 * MiB if codec != Codec.SNAPPY else MiB))
    first = next(inflate_pieces(codec, bomb, 16 * MiB))
    assert len(first) <= (MiB // 4 if codec != Codec.SNAPPY else MiB)


@each_codec
def test_no_piece_goes_past_the_limit(codec: Codec) -> None:
    compressed, given = compress(codec, LONG), 0
    with pytest.raises(Undecodable, match="beyond"):  # noqa: PT012
        for piece in inflate_pieces(codec, compressed, len(LONG) - 1):
            given += len(piece)
    assert given < len(LONG)


@each_codec
@settings(deadline=None)
@given(garbage=st.binary(max_size=100), place=st.integers(1, 2**16))
def test_pieces_of_garbage_and_of_what_is_cut_are_undecodable(
    codec: Codec, garbage: bytes, place: int
) -> None:
    try:
        whole = bytes(decompress(codec, garbage, MiB))
    except Undecodable:
        with pytest.raises(Undecodable):
            pieces(codec, garbage, MiB)
    else:
        assert b"".join(pieces(codec, garbage, MiB)) == whole
    data = compress(codec, DATA)
    with pytest.raises(Undecodable):
        pieces(codec, data[: 1 + place % (len(data) - 1)])
