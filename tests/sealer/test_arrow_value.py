"""Streams of some hundred bytes that say much. Door fault 6: each took gigabytes of the sealer."""

import contextlib
import resource

import numpy as np
import pyarrow as pa
import pytest

from smq.sealer.arrow_value import INFLATION_MAX, inflated_bytes, row_of
from smq.sealer.typed import Typing

MANY = 100_000_000
LISTS = pa.schema([("a", pa.list_(pa.int64()))])
NUMBERS = pa.schema([("a", pa.int64())])
SCHEMA = '{"fields": [{"name": "a", "type": "int64"}]}'


def stream(column: pa.Array, *, compression: str | None = None, **more: pa.Array) -> bytes:
    batch = pa.RecordBatch.from_arrays([column, *more.values()], ["a", *more])
    return streamed(batch, compression)


def streamed(batch: pa.RecordBatch, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def one_list(values: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_a_stream_that_inflates_far_does_not_fit(compression: str) -> None:
    """Whichever column inflates."""
    zeros = one_list(pa.array(np.zeros(1_000_000, np.int64)))
    beside = stream(pa.array([1]), compression=compression, junk=zeros)
    assert inflated_bytes(beside) > 8_000_000 > INFLATION_MAX * len(beside)
    assert row_of(beside, NUMBERS) is None
    assert row_of(stream(zeros, compression=compression), LISTS) is None
    dictionary = pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), ["x" * 1_000_000])
    assert row_of(stream(dictionary, compression=compression), NUMBERS) is None
    columns, misfits = Typing(SCHEMA).of(pa.chunked_array([pa.array([beside], pa.binary())]))
    assert (columns[0].to_pylist(), misfits) == ([None], 1)


def test_a_column_that_takes_no_bytes_is_not_cast() -> None:
    nulls = pa.nulls(MANY)
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([MANY], pa.int64()), pa.array([1]))
    of_views = pa.ListViewArray.from_arrays(
        pa.array([0] * 500, pa.int32()), pa.array([500] * 500, pa.int32()), pa.array(range(500))
    )
    nested = one_list(nulls)
    opaque = pa.ExtensionArray.from_storage(pa.opaque(nested.type, "a", "b"), nested)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for column in (nested, opaque, one_list(runs), one_list(of_views)):
        assert row_of(stream(column), LISTS) is None
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000


def test_a_column_that_fits_is_cast() -> None:
    many = pa.array([True, False, None] * 100)
    rows = {
        "numbers": (one_list(pa.array([1, 2, None], pa.int8())), [1, 2, None]),
        "bools": (one_list(many), [1, 0, None] * 100),
        "fixed": (pa.array([[1, 2]], pa.list_(pa.int16(), 2)), [1, 2]),
        "null": (pa.nulls(1), None),
    }
    for column, expected in rows.values():
        for compression in (None, "zstd"):
            found = row_of(stream(column, compression=compression), LISTS)
            assert found is not None
            assert found[0].to_pylist() == [expected]
    dictionary = pa.array([7]).dictionary_encode()
    assert row_of(stream(dictionary), NUMBERS)[0].to_pylist() == [7]  # type: ignore[index]
    assert row_of(stream(pa.array([1, 2])), NUMBERS) is None


def test_a_message_that_points_outside_itself_is_refused() -> None:
    data = bytearray(stream(one_list(pa.array(np.zeros(10_000))), compression="zstd"))
    whole = inflated_bytes(bytes(data))
    for at in range(len(data)):
        for flip in (0x80, 0x01):
            data[at] ^= flip
            with contextlib.suppress(pa.ArrowException, OSError, ValueError):
                inflated_bytes(bytes(data))
            data[at] ^= flip
    assert inflated_bytes(bytes(data)) == whole > 80_000


def test_objects_that_get_many_columns_are_counted_with_them() -> None:
    fields = [(f"c{number}", pa.int64()) for number in range(200)]
    wide = pa.schema([("a", pa.list_(pa.struct(fields)))])
    few, many = (
        one_list(pa.StructArray.from_arrays([pa.array([1] * count, pa.int8())], ["c0"]))
        for count in (5, 100_000)
    )
    found = row_of(stream(few), wide)
    assert found is not None
    assert [each["c0"] for each in found[0][0].as_py()] == [1] * 5
    assert row_of(stream(many), wide) is None


def test_a_row_made_from_python_values_fits_its_schema() -> None:
    """No list, or no value of a field, has a type of its own: null becomes any."""
    point = pa.struct([("x", pa.int64()), ("y", pa.string())])
    schema = pa.schema([("tags", pa.list_(pa.string())), ("a", point), ("b", pa.list_(point))])
    for tags in ([], [None]):
        row = {"tags": tags, "a": {"x": 1, "y": None}, "b": [{"x": 1, "y": None}]}
        table = pa.Table.from_pylist([row])
        found = row_of(streamed(table.to_batches()[0]), schema)
        assert found is not None
        assert [column.to_pylist() for column in found] == [[each] for each in row.values()]


def test_a_map_fits_a_list_of_its_entries() -> None:
    entry = pa.struct([("key", pa.string()), ("value", pa.int64())])
    entries = pa.array([[("x", 1), ("y", None)]], pa.map_(pa.string(), pa.int64()))
    found = row_of(stream(entries), pa.schema([("a", pa.list_(entry))]))
    assert found is not None
    assert found[0][0].as_py() == [{"key": "x", "value": 1}, {"key": "y", "value": None}]


def test_columns_beside_those_that_are_missing_do_not_make_up_for_them() -> None:
    """As many columns of other names hid that each object gets two hundred."""
    fields = [(f"c{number}", pa.int64()) for number in range(200)]
    wide = pa.schema([("a", pa.struct([("b", pa.list_(pa.struct(fields)))]))])
    few = one_list(pa.StructArray.from_arrays([pa.array(range(100_000), pa.int32())], ["c0"]))
    one = pa.array([1], pa.int8())
    others = pa.StructArray.from_arrays([one] * 200, [name for name, _ in fields])
    both = pa.StructArray.from_arrays([few, others], ["b", "others"])
    assert row_of(stream(both), wide) is None


def test_all_columns_of_a_row_together_are_bounded() -> None:
    names = [f"c{number}" for number in range(20)]
    bools = {name: one_list(pa.array([True] * 1000)) for name in names}
    batch = pa.RecordBatch.from_pydict(bools)
    numbers = pa.list_(pa.int64())
    assert row_of(streamed(batch), pa.schema([(name, numbers) for name in names[:2]])) is not None
    assert row_of(streamed(batch), pa.schema([(name, numbers) for name in names])) is None


TEXTS = pa.schema([("a", pa.list_(pa.string()))])


def test_views_dictionaries_and_decimals_in_lists_fit() -> None:
    """Polars writes views of strings, pandas dictionaries of them."""
    texts = ["a", "of more than twelve bytes", None, "a"]
    plain = pa.array(texts)
    for column in (plain.cast(pa.string_view()), plain.dictionary_encode(), plain[1:]):
        found = row_of(stream(one_list(column)), TEXTS)
        assert found is not None
        assert found[0].to_pylist() == [column.to_pylist()]
    prices = pa.array([1, 2, None]).cast(pa.decimal128(19, 0))
    found = row_of(stream(one_list(prices)), LISTS)
    assert found is not None
    assert found[0].to_pylist() == [[1, 2, None]]


def test_values_that_share_their_bytes_are_counted_each() -> None:
    text = pa.array(["x" * 1000])
    often = pa.array([0] * 10_000, pa.int32())
    shared = pa.DictionaryArray.from_arrays(often, text)
    _, view, data = text.cast(pa.string_view()).buffers()
    same = [None, pa.py_buffer(view.to_pybytes()[:16] * len(often)), data]
    views = pa.Array.from_buffers(pa.string_view(), len(often), same)
    assert views.to_pylist() == text.to_pylist() * len(often)
    for column in (shared, views):
        assert row_of(stream(one_list(column)), TEXTS) is None
