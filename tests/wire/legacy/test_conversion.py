"""Message sets become batches and batches message sets, in steps and within bounds."""

from collections.abc import Generator
from typing import Any

import pytest

from smq.model.errors import ErrorCode
from smq.wire.compression import Codec
from smq.wire.legacy.conversion import (
    BYTES_MAX,
    COMPRESSED_BYTES_MAX,
    MESSAGES_A_STEP,
    Conversion,
    to_batch,
    to_messages,
)
from smq.wire.legacy.records import read_messages, write_message
from smq.wire.markers import Marker, write_marker
from smq.wire.records import Record, read_batches, write_batch
from tests.wire.legacy.test_records import NOW, plain, wrapped

MiB = 1024 * 1024


def run(conversion: Generator[None, None, Conversion]) -> tuple[Conversion, int]:
    """What it has made, and in how many steps."""
    steps = 1
    while True:
        try:
            next(conversion)
        except StopIteration as made:
            return made.value, steps
        steps += 1


def records(values: list[bytes], first: int = 0, **how: Any) -> bytes:
    return write_batch([Record(first + i, NOW, b"k", v) for i, v in enumerate(values)], **how)


def test_wrappers_and_plain_messages_of_one_set_become_one_batch() -> None:
    data = write_message(plain(1, 0)) + wrapped(Codec.GZIP, [plain(1, 0), plain(1, 1)])
    made, _ = run(to_batch(data, BYTES_MAX))
    [batch] = read_batches(made.data)
    assert batch.codec == Codec.GZIP
    assert [each.offset for each in batch.records()] == [0, 1, 2]


def test_a_batch_that_is_long_to_compress_is_not_compressed() -> None:
    sizes = COMPRESSED_BYTES_MAX[Codec.GZIP]
    made, _ = run(to_batch(wrapped(Codec.GZIP, [plain(1, 0, bytes(sizes))]), BYTES_MAX))
    [batch] = read_batches(made.data)
    assert batch.codec == Codec.NONE


def test_each_direction_takes_steps() -> None:
    count = 4 * MESSAGES_A_STEP
    made, steps = run(to_batch(b"".join(write_message(plain(0, i)) for i in range(count)), MiB))
    assert steps > 4
    back, steps = run(to_messages(made.data, 0, 0, MiB))
    assert steps > 4
    assert len(list(read_messages(back.data, MiB))) == count


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (bytes(BYTES_MAX + 1), ErrorCode.MESSAGE_TOO_LARGE),
        (wrapped(Codec.GZIP, [plain(1, 0, bytes(BYTES_MAX))]), ErrorCode.MESSAGE_TOO_LARGE),
        (b"garbage", ErrorCode.CORRUPT_MESSAGE),
        (b"", ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_a_message_set_that_cannot_become_a_batch_gives_an_error(
    data: bytes, error: ErrorCode
) -> None:
    made, _ = run(to_batch(data, BYTES_MAX))
    assert (made.data, made.error) == (b"", error)


def test_an_answer_ends_behind_the_record_that_fills_it_and_has_one_at_least() -> None:
    batches = records([b"a" * 500] * 2) + records([b"b"], 2)
    offsets = {}
    for limit in (1, 2000, 0):
        made, _ = run(to_messages(batches, 1, 0, limit))
        offsets[limit] = [each.offset for each in read_messages(made.data, MiB)]
    assert offsets == {1: [0], 2000: [0, 1, 2], 0: []}


def test_markers_and_what_lies_before_the_offset_are_left_out() -> None:
    batches = records([b"a", b"b"]) + write_marker(Marker(1, 0, True, 0), NOW)
    made, _ = run(to_messages(batches + records([b"c"], 3), 0, 1, MiB))
    assert [each.offset for each in read_messages(made.data, MiB)] == [1, 3]
    assert made.end_offset == 4


def test_many_markers_take_steps() -> None:
    markers = write_marker(Marker(1, 0, True, 0), NOW) * 10_000
    made, steps = run(to_messages(markers, 0, 1, MiB))
    assert made.data == b""
    assert steps > 30


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_batch_that_inflates_far_is_answered_part_by_part(codec: Codec) -> None:
    """Data fault 16: it was too large for old clients at each fetch."""
    count = 7 if codec == Codec.ZSTD else 60
    batch = records([bytes(MiB)] * count, compression=codec)
    assert len(batch) < MiB
    found: list[int] = []
    while len(found) < count:
        made, steps = run(to_messages(batch, 1, len(found), BYTES_MAX))
        assert made.error == ErrorCode.NONE
        assert len(made.data) <= BYTES_MAX + MiB
        assert codec == Codec.ZSTD or steps > 4 * 4
        found += [each.offset for each in read_messages(made.data, MiB)]
    assert found == list(range(count))


def test_records_beside_one_that_is_too_large_are_read() -> None:
    """Data fault 16."""
    batch = records([b"a", bytes(BYTES_MAX + 1), b"c"], compression=Codec.GZIP)
    made, _ = run(to_messages(batch, 1, 0, BYTES_MAX))
    assert [each.offset for each in read_messages(made.data, MiB)] == [0]
    made, _ = run(to_messages(batch, 1, 1, BYTES_MAX))
    assert (made.data, made.error) == (b"", ErrorCode.MESSAGE_TOO_LARGE)
    made, _ = run(to_messages(batch, 1, 2, BYTES_MAX))
    assert [each.offset for each in read_messages(made.data, MiB)] == [2]


def test_a_batch_that_inflates_too_far_is_an_error_once_it_is_the_first() -> None:
    huge = records([bytes(BYTES_MAX + 1)], 1, compression=Codec.ZSTD)
    made, _ = run(to_messages(records([b"a"]) + huge, 1, 0, MiB))
    assert made.error == ErrorCode.NONE
    assert [each.offset for each in read_messages(made.data, MiB)] == [0]
    made, _ = run(to_messages(huge, 1, 1, MiB))
    assert (made.data, made.error) == (b"", ErrorCode.MESSAGE_TOO_LARGE)


def test_a_damaged_batch_is_an_error() -> None:
    batch = bytearray(records([b"a"]))
    batch[-1] ^= 1
    made, _ = run(to_messages(bytes(batch), 1, 0, MiB))
    assert made.error == ErrorCode.CORRUPT_MESSAGE
