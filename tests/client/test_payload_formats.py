"""Tables and arrays survive the way, and others read them."""

from contextlib import suppress
from io import BytesIO
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp

from smq.client.payload_formats import read_array, read_table, write_array, write_table

DTYPES = (
    hnp.integer_dtypes(endianness="?")
    | hnp.floating_dtypes(endianness="?")
    | hnp.byte_string_dtypes(min_len=1)
    | hnp.datetime64_dtypes()
    | hnp.boolean_dtypes()
)


@settings(deadline=None)
@given(
    hnp.arrays(DTYPES, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)),
    st.sampled_from(["C", "F", "reversed", "every second"]),
)
def test_an_array_comes_back_and_numpy_reads_it_too(array: np.ndarray, layout: str) -> None:
    if layout in "CF":
        array = np.array(array, order=layout)  # type: ignore[call-overload]
    elif array.ndim:
        array = array[::-1] if layout == "reversed" else array[::2]
    value = bytes(write_array(array))
    for found in (read_array(value), np.load(BytesIO(value))):
        assert found.dtype == array.dtype
        assert found.shape == array.shape
        assert found.tobytes() == array.tobytes()


def test_an_array_that_was_read_is_a_read_only_view() -> None:
    value = bytes(write_array(np.arange(10.0)))
    array = read_array(value)
    assert np.shares_memory(array, np.frombuffer(value, np.uint8))
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1


def test_the_order_in_memory_comes_back() -> None:
    array = np.asfortranarray(np.arange(6).reshape(2, 3))
    assert read_array(write_array(array)).flags.f_contiguous


def test_more_fields_than_anybody_reads_are_refused() -> None:
    array = np.zeros(2, [(f"a_field_of_many_{each}", "u1") for each in range(8000)])
    with pytest.raises(ValueError, match="8000 fields"):
        write_array(array)


def test_fields_and_many_of_them_come_back() -> None:
    for count in (3, 2000):
        array = np.zeros(2, [(f"field-{i}", "<f4") for i in range(count)])
        assert read_array(write_array(array)).dtype == array.dtype


@pytest.mark.parametrize(
    "array",
    [np.array([object()]), np.ma.masked_array([1], [True]), [1, 2]],
    ids=["objects", "masked", "a list"],
)
def test_an_array_without_bytes_of_its_own_is_refused(array: Any) -> None:
    with pytest.raises(TypeError, match="array"):
        write_array(array)


@settings(deadline=None)
@given(st.binary(max_size=100), st.integers(0, 200))
def test_garbage_is_an_array_by_chance_or_a_value_error(garbage: bytes, keep: int) -> None:
    whole = bytes(write_array(np.arange(5)))
    for data in (garbage, whole[:keep] + garbage):
        with suppress(ValueError):
            assert read_array(data).nbytes <= len(data)
    with pytest.raises(ValueError, match="no Arrow stream"):
        read_table(garbage)
    with pytest.raises(ValueError, match="bytes"):
        read_array(whole + b"behind" + garbage)


def test_a_table_comes_back_as_views_over_the_value() -> None:
    table = pa.table({"a": [1, 2, None], "b": ["x", None, "z"]})
    value = write_table(table)
    found = read_table(value)
    assert found == table
    data = found.column("a").chunk(0).buffers()[1]
    assert value.address <= data.address < value.address + value.size
    assert read_table(write_table(table.to_batches()[0])) == table


def test_only_a_table_is_written_as_one() -> None:
    with pytest.raises(TypeError, match="table is a pyarrow Table or RecordBatch, not dict"):
        write_table({"a": [1]})
