"""Lists become columns; bounds suffice for what the kernel writes."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shm.kernels.record.records_encode import Run, encode_batch, encode_one, encode_values
from smq.client.producing.encode.columns import (
    Field,
    bounds_of,
    field_of,
    headers_of,
    nulls,
    one_bound,
    one_of,
    rows_of,
    values_bound,
    values_of,
)
from smq.wire.records import Headers, Record, read_batches, write_batch

HEADERS = st.lists(st.tuples(st.binary(max_size=9), st.none() | st.binary(max_size=9)), max_size=3)
ROWS = st.lists(
    st.tuples(st.none() | st.binary(max_size=200), st.none() | st.binary(max_size=9), HEADERS),
    min_size=1,
    max_size=20,
)


def items(field: Field) -> list[bytes | None]:
    return [
        None if length < 0 else field.data[at : at + length].tobytes()
        for at, length in zip(*field.places, strict=True)
    ]


@given(st.lists(st.none() | st.binary(max_size=9)))
def test_a_field_has_the_items_of_its_list(given_items: list[bytes | None]) -> None:
    assert items(field_of(given_items)) == given_items


def test_other_buffers_of_bytes_are_items_too() -> None:
    assert items(field_of([bytearray(b"a"), memoryview(b"bc")])) == [b"a", b"bc"]


@pytest.mark.parametrize("wrong", [["text"], [b"a", 1], [None, "text"]])
def test_a_value_without_bytes_is_refused(wrong: list[bytes | None]) -> None:
    with pytest.raises(TypeError):
        field_of(wrong)


def test_a_view_of_numbers_is_refused() -> None:
    with pytest.raises(TypeError, match="items that are not bytes"):
        field_of([np.arange(3).data])


def test_nulls_are_nulls() -> None:
    assert items(nulls(2)) == [None, None]


@given(st.none() | st.binary(max_size=9), st.none() | st.binary(max_size=9), HEADERS)
def test_a_single_record_is_as_it_was_given(
    value: bytes | None, key: bytes | None, headers: list[tuple[bytes, bytes | None]]
) -> None:
    one = one_of(value, key, tuple(headers), 7)
    assert (one.value.tobytes(), one.key.tobytes()) == (value or b"", key or b"")
    assert (one.value_length, one.key_length) == tuple(
        -1 if each is None else len(each) for each in (value, key)
    )
    assert one.timestamp == 7
    written = Record(0, 7, None, None, tuple(headers))
    assert write_batch([written]).endswith(one.headers.tobytes())
    out = np.zeros(61 + one_bound(one), np.uint8)
    end = encode_one(*one, 0, -1, -1, -1, out, 0)
    (batch,) = read_batches(out[:end].data)
    assert [*batch.records()] == [Record(0, 7, key, value, tuple(headers))]


@settings(deadline=None)
@given(ROWS)
def test_rows_are_written_within_their_bounds_and_come_back(
    rows: Sequence[tuple[bytes | None, bytes | None, list[tuple[bytes, bytes | None]]]],
) -> None:
    values, keys, headers = zip(*rows, strict=True)
    some: dict[int, Headers] = {row: tuple(each) for row, each in enumerate(headers) if each}
    columns = rows_of(field_of(values), field_of(keys), headers_of(some, len(rows)), 5)
    bounds = bounds_of(columns)
    out = np.zeros(61 + bounds[-1], np.uint8)
    row, end = encode_batch(columns, 0, Run(len(rows), len(rows), 0, -1), 2**31, out, 0)
    assert row == len(rows)
    (batch,) = read_batches(out[:end].data)
    found = [(each.value, each.key, list(each.headers)) for each in batch.records()]
    assert found == list(rows)
    assert {each.timestamp_ms for each in batch.records()} == {5}
    assert (np.diff(bounds, prepend=0) >= [len(v or b"") + len(k or b"") for v, k, _ in rows]).all()


@settings(deadline=None)
@given(st.lists(st.binary(max_size=300), min_size=1, max_size=40), st.data())
def test_values_are_written_within_their_bound_and_come_back(
    items: list[bytes], data: st.DataObject
) -> None:
    values = values_of(field_of(items), 5)
    assert values is not None
    first = data.draw(st.integers(0, len(items) - 1))
    out = np.zeros(61 + values_bound(values, first, len(items)), np.uint8)
    run = Run(len(items), len(items), 0, -1)
    row, end = encode_values(values, first, run, 2**31, out, 0)
    assert row == len(items)
    (batch,) = read_batches(out[:end].data)
    assert [each.value for each in batch.records()] == items[first:]
    assert {(each.timestamp_ms, each.key) for each in batch.records()} == {(5, None)}


def test_a_null_is_no_value() -> None:
    assert values_of(field_of([b"a", None]), 5) is None
    assert values_of(nulls(2), 5) is None
