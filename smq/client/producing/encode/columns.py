"""Makes columns over bytes from lists, in the form that `shm.kernels.record.records_encode` takes.

A `Field` is a column of byte strings: where each begins in `data`, and its length; -1 is null.
All columns of a parcel have the same number of rows. `batch_input` makes fields from Arrow and
NumPy; this module makes them from lists, with one join for all values.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np

from shm.kernels.record.records import (
    C_FIELDS,
    C_HEADER_COUNT,
    C_HEADERS_AT,
    C_HEADERS_FIRST,
    C_KEY_AT,
    C_KEY_LENGTH,
    C_OFFSET,
    C_TIMESTAMP,
    C_VALUE_AT,
    C_VALUE_LENGTH,
    H_FIELDS,
    H_KEY_AT,
    H_KEY_LENGTH,
    H_VALUE_AT,
    H_VALUE_LENGTH,
)
from shm.kernels.record.records_encode import RECORD_HEAD_BYTES_MAX, One, RecordRows, ValueRows
from smq.wire.records import Headers, write_headers

# Lengths of a header's key and value: a varint of 32 bits each.
HEADER_HEAD_BYTES_MAX = 10


Bytes: TypeAlias = bytes | bytearray | memoryview


class Field:
    """A column of byte strings in `data`, which is uint8 and read-only.

    offsets   int32 and read-only: where each begins and the last one ends, if they lie one behind
              the other and none is null
    places    int64: where each begins, and its length; -1 is null. Made of offsets if asked for.
    """

    def __init__(
        self,
        data: np.ndarray,
        offsets: np.ndarray | None,
        places: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> None:
        self.data = data
        self.offsets = offsets
        if places is not None:
            self.places = places

    def __len__(self) -> int:
        return len(self.places[0]) if self.offsets is None else len(self.offsets) - 1

    @cached_property
    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """Where each begins, and its length."""
        assert self.offsets is not None
        offsets = self.offsets.astype(np.int64)
        return offsets[:-1], np.diff(offsets)


class HeaderColumn(NamedTuple):
    """The headers of all rows, one after the other, and how many of them each row has."""

    keys: Field
    values: Field
    counts: np.ndarray


def field_of(items: Sequence[Bytes | None]) -> Field:
    """A column of these byte strings. Raises TypeError for anything else."""
    try:
        data = b"".join(items)  # type: ignore[arg-type]  # It says so when None is in them.
        length = np.fromiter(map(len, items), np.int64, len(items))  # type: ignore[arg-type]
        filled = length
    except TypeError:
        data = b"".join(each for each in items if each is not None)
        lengths = (-1 if each is None else len(each) for each in items)
        length = np.fromiter(lengths, np.int64, len(items))
        filled = np.maximum(length, 0)
    offsets = np.zeros(len(items) + 1, np.int64)
    filled.cumsum(out=offsets[1:])
    if offsets[-1] != len(data):
        raise TypeError("a memoryview among them has items that are not bytes")
    without_nulls = packed(offsets) if filled is length else None
    return Field(np.frombuffer(data, np.uint8), without_nulls, (offsets[:-1], length))


def packed(offsets: np.ndarray) -> np.ndarray | None:
    """Offsets as a Field has them, unless they are too high for that."""
    narrow = offsets.astype(np.int32, copy=not offsets.flags.aligned)
    if offsets.dtype != np.int32 and (narrow != offsets).any():
        return None
    narrow = narrow.view()
    narrow.flags.writeable = False
    return narrow


def nulls(count: int) -> Field:
    """A column of nulls."""
    return Field(_NOTHING, None, (np.zeros(count, np.int64), np.full(count, -1, np.int64)))


def headers_of(headers: Mapping[int, Headers], count: int) -> HeaderColumn | None:
    """The headers of those rows that have some."""
    if not headers:
        return None
    counts = np.zeros(count, np.int64)
    pairs: list[tuple[bytes, bytes | None]] = []
    for row in sorted(headers):
        counts[row] = len(headers[row])
        pairs += headers[row]
    return HeaderColumn(
        field_of([key for key, _ in pairs]), field_of([value for _, value in pairs]), counts
    )


def values_of(values: Field, timestamp_ms: int) -> ValueRows | None:
    """The rows to encode that have nothing but a value, if none is null."""
    if values.offsets is None:
        return None
    return ValueRows(values.data, values.offsets, timestamp_ms)


def values_bound(values: ValueRows, first: int, end: int) -> int:
    """Bytes that suffice for the records [first, end)."""
    size = int(values.offsets[end]) - int(values.offsets[first])
    return size + RECORD_HEAD_BYTES_MAX * (end - first)


def rows_of(
    values: Field, keys: Field | None, headers: HeaderColumn | None, timestamps: np.ndarray | int
) -> RecordRows:
    """The rows to encode, with offsets from 0."""
    count = len(values)
    columns = np.empty((C_FIELDS, count), np.int64)  # Zeroed memory is new: each page is a fault.
    columns[C_KEY_AT] = 0
    columns[C_HEADERS_AT:] = 0
    columns[C_OFFSET] = np.arange(count)
    columns[C_TIMESTAMP] = timestamps
    columns[C_VALUE_AT], columns[C_VALUE_LENGTH] = values.places
    if keys is None:
        columns[C_KEY_LENGTH] = -1
    else:
        columns[C_KEY_AT], columns[C_KEY_LENGTH] = keys.places
    key_data = _NOTHING if keys is None else keys.data
    if headers is None:
        return RecordRows(columns, _NO_HEADERS, key_data, values.data, _NOTHING, _NOTHING)
    columns[C_HEADER_COUNT] = headers.counts
    columns[C_HEADERS_FIRST] = headers.counts.cumsum() - headers.counts
    of_headers = np.zeros((H_FIELDS, len(headers.keys)), np.int64)
    of_headers[H_KEY_AT], of_headers[H_KEY_LENGTH] = headers.keys.places
    of_headers[H_VALUE_AT], of_headers[H_VALUE_LENGTH] = headers.values.places
    return RecordRows(
        columns, of_headers, key_data, values.data, headers.keys.data, headers.values.data
    )


def one_of(value: bytes | None, key: bytes | None, headers: Headers, timestamp_ms: int) -> One:
    """A single record as it is encoded."""
    return One(
        np.frombuffer(value, np.uint8) if value else _NOTHING,
        -1 if value is None else len(value),
        np.frombuffer(key, np.uint8) if key else _NOTHING,
        -1 if key is None else len(key),
        np.frombuffer(write_headers(headers), np.uint8) if headers else _NO_HEADER,
        timestamp_ms,
    )


def one_bound(one: One) -> int:
    """Bytes that suffice for it."""
    return RECORD_HEAD_BYTES_MAX + len(one.value) + len(one.key) + len(one.headers)


def bounds_of(rows: RecordRows) -> np.ndarray:
    """Bytes that suffice for each record and all before it."""
    columns, headers = rows.columns, rows.headers
    bounds: np.ndarray = np.maximum(columns[C_KEY_LENGTH], 0)
    bounds += RECORD_HEAD_BYTES_MAX
    bounds += np.maximum(columns[C_VALUE_LENGTH], 0)
    bounds.cumsum(out=bounds)
    if headers.shape[1]:
        sizes = headers[H_KEY_LENGTH] + np.maximum(headers[H_VALUE_LENGTH], 0)
        before = np.zeros(headers.shape[1] + 1, np.int64)
        (sizes + HEADER_HEAD_BYTES_MAX).cumsum(out=before[1:])
        first = columns[C_HEADERS_FIRST]
        bounds += (before[first + columns[C_HEADER_COUNT]] - before[first]).cumsum()
    return bounds


_NOTHING = np.frombuffer(b"", np.uint8)
_NO_HEADER = np.frombuffer(write_headers(()), np.uint8)
_NO_HEADERS = np.zeros((H_FIELDS, 0), np.int64)
