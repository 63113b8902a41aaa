"""No content of a batch makes a step of its conversion long: compressed, repeated, of tiny parts.

Left out: one uncompressed record of many megabytes, which is copied in one step.
"""

import time
from collections.abc import Callable

import pytest

from smq.wire.compression import XERIAL_MAGIC, Codec, compress
from smq.wire.legacy.conversion import to_messages
from smq.wire.records import Record, crc_of, write_batch

KiB, MiB = 1024, 1024 * 1024
MAGIC_1, BYTES_MAX = 1, 4 * MiB
STEP_SECONDS_MAX, TRIES = 0.010, 4  # Of the thread; the best of some tries.
SLOWED_TIMES = 3  # What else the machine does slows the thread too.
COMPRESSED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]


def steps_of(data: bytes, start: int) -> list[float]:
    """The seconds that each step takes."""
    steps, seconds = to_messages(data, MAGIC_1, start, BYTES_MAX), []
    is_done = False
    while not is_done:
        began = time.thread_time()
        is_done = next(steps, True) is True
        seconds.append(time.thread_time() - began)
    return seconds


def check(data: bytes, start: int = 0) -> None:
    tries = [steps_of(data, start) for _ in range(TRIES)]
    longest = max(map(min, zip(*tries, strict=True)))
    assert longest <= SLOWED_TIMES * STEP_SECONDS_MAX, (
        f"{longest:.4f} s in one of {len(tries[0])} steps"
    )


def tiny(codec: Codec) -> bytes:
    return write_batch([Record(i, 0, b"k", b"") for i in range(20_000)], compression=codec)


def zeros(codec: Codec) -> bytes:
    return write_batch([Record(0, 0, b"k", bytes(7 * MiB))], compression=codec)


def many_zeros(codec: Codec) -> bytes:
    values = [Record(i, 0, b"k", bytes(60_000)) for i in range(100)]
    return write_batch(values, compression=codec)


@pytest.mark.slow
@pytest.mark.parametrize("codec", COMPRESSED, ids=lambda codec: codec.name)
@pytest.mark.parametrize("make", [tiny, zeros, many_zeros])
def test_no_compressed_batch_holds_a_shard(codec: Codec, make: Callable[[Codec], bytes]) -> None:
    """data fault 11, of clients of old formats."""
    check(make(codec) * 3)
    check(make(codec) * 3, 19_999)


def holding(codec: Codec, payload: bytes) -> bytes:
    """A batch that claims a record and has these bytes, with a good CRC."""
    made = bytearray(write_batch([Record(0, 0, b"k", b"v")]))[:61] + payload
    made[8:12], made[22] = (len(made) - 12).to_bytes(4), codec
    made[17:21] = crc_of(made).to_bytes(4)
    return bytes(made)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD], ids=lambda codec: codec.name)
def test_no_empty_frames_hold_a_shard(codec: Codec) -> None:
    frame = compress(codec, b"")
    check(holding(codec, frame * (256 * KiB // len(frame))))


def test_no_empty_blocks_hold_a_shard() -> None:
    blocks = XERIAL_MAGIC + bytes(8) + b"\0\0\0\1\0" * 20_000
    check(holding(Codec.SNAPPY, blocks))
