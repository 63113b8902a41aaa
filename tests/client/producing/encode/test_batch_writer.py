"""Batches of every compression are what Kafka reads, and within the room that was asked for."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from smq.client.producing.encode.batch_writer import BatchWriter, Stamp
from smq.client.producing.encode.columns import bounds_of, field_of, rows_of
from smq.wire.compression import Codec
from smq.wire.records import read_batches

HANDLE = b"smq-ref"  # Batches with handles are not compressed: the broker looks for them.
STAMP = Stamp(2**40, 3, 2**31 - 1)


@settings(deadline=None)
@given(
    st.sampled_from(Codec),
    st.lists(st.binary(max_size=3000) | st.just(HANDLE), min_size=1, max_size=20),
    st.integers(100, 5000),
)
def test_rows_come_back_in_batches_of_a_bounded_size(
    codec: Codec, values: list[bytes], bytes_max: int
) -> None:
    writer, rows = BatchWriter(codec), rows_of(field_of(values), None, None, 9)
    bounds, found, first = bounds_of(rows), list[bytes | None](), 0
    while first < len(values):
        before = bounds[first - 1] if first else 0
        one = int(bounds[first] - before)
        room = writer.room(int(bounds[-1] - before), one, bytes_max)
        out = np.full(7 + room, 0xAA, np.uint8)
        written = writer.write(rows, (first, len(values)), STAMP, bytes_max, out, 7)
        (batch,) = read_batches(out[7 : written.end].data)
        assert batch.base_offset == 0
        has_handle = any(HANDLE in each for each in values[first : written.row])
        assert batch.codec == (Codec.NONE if has_handle else codec)
        stamp = (batch.producer_id, batch.producer_epoch, batch.base_sequence)
        assert stamp == STAMP
        assert written.size_bytes <= bytes_max or written.row == first + 1
        assert writer.least_bytes(one) <= written.size_bytes
        found += [each.value for each in batch.records()]
        first = written.row
    assert found == values


@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.name)
def test_rows_are_cut_at_the_same_place_again(codec: Codec) -> None:
    rows = rows_of(field_of([bytes([i]) * 50 for i in range(100)]), None, None, 9)
    writer, out = BatchWriter(codec), np.zeros(20_000, np.uint8)
    first = writer.write(rows, (10, 100), STAMP, 1000, out, 0)
    bytes_then = out[: first.end].tobytes()
    again = writer.write(rows, (10, first.row), STAMP, first.size_bytes, out, 0)
    assert again == first
    assert out[: again.end].tobytes() == bytes_then
