"""Batches made from rows: their places, and those that fit a topic only compressed."""

from random import Random

import numpy as np
import pytest

from shm.kernels.twin import records as plain
from smq.model.segments import BatchLimits
from smq.sealer.read_back import BatchCollector, fitting
from smq.wire.compression import Codec
from smq.wire.records import read_batches


def _batch(offset: int, value: bytes, end: int) -> np.ndarray:
    record = plain.PlainRecord(offset, 5, b"k", value)
    return np.frombuffer(plain.batch([record], end_offset=end), np.uint8)


def test_places_tell_the_last_record_and_the_gap_behind_it() -> None:
    batches, sizes = BatchCollector(), []
    for offset, end in ((3, 7), (9, 10)):
        batches.add(_batch(offset, b"v", end), offset)
        sizes.append(len(_batch(offset, b"v", end)))
    pieces, places = batches.read_back()
    assert [len(each) for each in pieces] == sizes
    assert places.tolist() == [(3, 6, 0, sizes[0]), (9, 9, sizes[0], sum(sizes))]


@pytest.mark.parametrize(
    ("value", "codec"),
    [
        (b"short", Codec.NONE),
        (b"long" * 1000, Codec.GZIP),
        (2 * Random(1).randbytes(40_000), Codec.ZSTD),  # Beyond gzip's window.
        (Random(1).randbytes(2000), Codec.NONE),
    ],
)
def test_the_first_codec_is_taken_with_which_the_batch_fits(value: bytes, codec: Codec) -> None:
    made = fitting(_batch(0, value, 1), BatchLimits(100, 50_000 if codec == Codec.ZSTD else 1000))
    [batch] = read_batches(made.tobytes())
    assert batch.codec == codec
    assert [record.value for record in batch.records()] == [value]
