"""Row groups whose rows are large in memory: they are read in slices of rows.

A few hundred kilobytes may inflate to gigabytes, and a header key that is in the file once may be
in each of its rows. A group is read at once only if that takes little memory; else its keys, values
and headers are read row by row (`smq.sealer.parquet_pages`) until a slice is full.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from smq.sealer.parquet import HEADER_KEYS, HEADER_VALUES, SCHEMA
from smq.sealer.parquet_pages import ColumnReader, PageValues, Shape, longest_in_dictionary

MiB = 1024 * 1024
LARGE_BYTES = 32 * MiB  # Arrow takes about three times as much for a moment.
SLICE_BYTES = 8 * MiB  # Of a slice, without its last row.
ROW_BYTES, HEADER_BYTES = 64, 64  # What a row and a header take beside their bytes.
_LEAVES = {
    "_key": ["_key"],
    "_value": ["_value"],
    "_headers": [HEADER_KEYS, HEADER_VALUES],
}
_SHAPES = {
    "_key": Shape(0, 1),
    "_value": Shape(0, 1),
    HEADER_KEYS: Shape(1, 1),
    HEADER_VALUES: Shape(1, 2),
}


def is_large(data: memoryview, group: Any, columns: Sequence[str]) -> bool:  # noqa: ANN401  (pyarrow's)
    """Whether these columns of a row group are large; `data` is the file."""
    chunks = _chunks(group)
    size: int = group.num_rows * ROW_BYTES
    for path in _paths(columns):
        size += chunks[path].total_uncompressed_size
    if "_headers" in columns:
        keys = chunks[HEADER_KEYS]
        size += keys.num_values * HEADER_BYTES
        if size <= LARGE_BYTES:
            size += keys.num_values * longest_in_dictionary(data, keys)
    return size > LARGE_BYTES


class LargeGroup:
    """The large columns among these, of the rows of a group from a row on."""

    COLUMNS: ClassVar = frozenset(_LEAVES)

    def __init__(
        self,
        data: memoryview,
        group: Any,  # noqa: ANN401  (pyarrow's)
        columns: Sequence[str],
        row: int,
    ) -> None:
        self.columns = [each for each in columns if each in _LEAVES]
        chunks = _chunks(group)
        self._leaves = {
            path: ColumnReader(data, chunks[path], _SHAPES[path]) for path in _paths(self.columns)
        }
        for leaf in self._leaves.values():
            leaf.skip(row)

    def take(self, rows_max: int) -> list[pa.Array]:
        """The next rows: as many as a slice has, at least one; an array for each column."""
        taken = {path: PageValues() for path in self._leaves}
        counts, size = list[int](), 0
        while len(counts) < rows_max and size <= SLICE_BYTES:
            entries = 0
            for path, leaf in self._leaves.items():
                entries = leaf.row_into(taken[path])  # Of headers, which come last if they come.
            counts.append(entries)
            size = sum(len(each.data) + HEADER_BYTES * len(each.lengths) for each in taken.values())
        return [self._array(name, taken, counts) for name in self.columns]

    def _array(self, name: str, taken: dict[str, PageValues], counts: list[int]) -> pa.Array:
        if name != "_headers":
            return taken[name].array()
        type_ = SCHEMA.field("_headers").type
        ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        keys, values = (taken[path].array() for path in _LEAVES["_headers"])
        pairs = pa.StructArray.from_arrays(
            [keys.cast(pa.string()), values], fields=list(type_.value_type)
        )
        return pa.ListArray.from_arrays(pa.array(ends), pairs, type=type_)


def _paths(columns: Sequence[str]) -> list[str]:
    return [path for name, paths in _LEAVES.items() if name in columns for path in paths]


def _chunks(group: Any) -> dict[str, Any]:  # noqa: ANN401  (pyarrow's)
    found = (group.column(place) for place in range(group.num_columns))
    return {each.path_in_schema: each for each in found}
