"""Records as Arrow columns: the same values, at the addresses they have in memory."""

import mmap

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

from shm.arrow import NotPlain, read_only, views
from shm.kernels.twin import records as plain
from smq.testing.records import plain_records


@settings(deadline=None)
@given(
    plain_records(base_offset=0, base_timestamp=0), plain_records(base_offset=99, base_timestamp=0)
)
def test_keys_and_values_are_the_records(
    first: list[plain.PlainRecord], second: list[plain.PlainRecord]
) -> None:
    second = [each._replace(timestamp=second[0].timestamp) for each in second]
    first = [each._replace(timestamp=first[0].timestamp) for each in first]
    data = b"".join(plain.batch(each, end_offset=each[-1].offset + 1) for each in (first, second))
    keys, values = views(read_only(data))
    for column in (keys, values):
        column.validate(full=True)
    assert keys.cast(pa.binary()).to_pylist() == [record.key for record in first + second]
    assert values.cast(pa.binary()).to_pylist() == [record.value for record in first + second]


def test_payload_lies_where_it_lay() -> None:
    value = b"a payload of more than twelve bytes"
    batch = plain.batch([plain.PlainRecord(0, 0, None, value)], end_offset=1)
    mapping = mmap.mmap(-1, 4096)
    mapping[100 : 100 + len(batch)] = batch
    ring = np.frombuffer(mapping, np.uint8)
    ring.flags.writeable = False
    _, values = views(ring[100 : 100 + len(batch)])
    _, view_buffer, payload = values.buffers()
    assert payload.address == ring.ctypes.data + 100
    at = int(np.frombuffer(view_buffer, np.int32)[3])
    assert mapping[100 + at : 100 + at + len(value)] == value
    # A view, not a copy: a changed byte in the mapping is a changed byte in the column.
    mapping[100 + at] = ord("A")
    assert values[0].as_py() == b"A" + value[1:]


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        (b"x" * 70, "no batch begins at byte 0"),
        (plain.batch([plain.PlainRecord(0, 0, None, None)], end_offset=1)[:-1], "byte 0"),
        (plain.batch([plain.PlainRecord(0, 0, None, None)], end_offset=1)[:-1] + b"?", "wrong CRC"),
        (
            plain.batch([plain.PlainRecord(0, 0, None, None)], end_offset=1, attributes=4),
            "compressed",
        ),
        (
            plain.batch([plain.PlainRecord(0, 0, None, None)], end_offset=1, inflated=b"?" * 40),
            "at byte 0 is malformed",
        ),
        (
            plain.batch([plain.PlainRecord(0, 0, None, None)] * 50, end_offset=1, inflated=b""),
            "more",
        ),
    ],
)
def test_a_batch_that_is_not_plain_is_refused_with_its_reason(batch: bytes, said: str) -> None:
    with pytest.raises(NotPlain, match=said):
        views(read_only(batch))


def test_no_bytes_are_no_records() -> None:
    keys, values = views(read_only(b""))
    assert (len(keys), len(values)) == (0, 0)
