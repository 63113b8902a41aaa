"""Typed columns from the values of records: JSON objects, or Arrow streams of one row. (Or, where
the schema says so, SeaweedMQ's RecordValues: `record_value.py` reads them.)

    values ──all fit──▶ pyarrow.json, at once
           ──else─────▶ the rows that may fit, halved until those that do not are found

A row fits if its value has at most VALUE_BYTES_MAX and pyarrow parses it with the schema: no
integer from 1.5, no number from a string, no time outside the years 1 to 9999; a missing key is
null. Of an Arrow stream, what it inflates to is bounded by its bytes (`arrow_value.py`).
A row that does not fit has null in all typed columns, and is counted. Whether a row fits does
not depend on its neighbours.

pyarrow's parser reads a stream of documents, and one that is no object may end the process. So it
only gets values known to be one object each: they begin and end with a brace, and a closing brace
is followed by a comma, a bracket, a brace or the end. Python's parser checks other values first.
"""

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from smq.model.topic_schema import (
    Column,
    Kind,
    ListOf,
    Struct,
    has_record_values,
    parse_schema,
)
from smq.sealer.arrow_value import INFLATION_FREE, INFLATION_MAX, leaf_count, row_of
from smq.sealer.record_value import DECIMAL_DIGITS, DECIMAL_SCALE, RecordValues
from smq.sealer.years import TIME, TIMESTAMP, has_years

MiB = 1024 * 1024
# A larger value does not fit: in memory, JSON may be thirty times larger.
VALUE_BYTES_MAX = 8 * MiB
# Each row has all columns, and each item of a list of objects all columns of its type: `[{},{},…]`
# or `[null,null,…]` may be a thousand times larger. What it costs is counted in bytes of JSON: an
# eighth of what it takes as columns.
VALUE_COST_MAX = 32 * MiB  # A value beyond it does not fit.
PARSED_COST = 8 * MiB  # Parsed at a time.
WIDENED_BYTES = 64 * MiB  # Of columns that are handed on at a time.
BLOCK_ROWS = 4096  # Parsed together: a misfit makes its neighbours be parsed again.
ITEMS = ("{", "null")  # With what an item of a list of objects begins.
_ITEM_BYTES_MIN = 2  # Of an item in a RecordValue.
ARROW_ROWS = 256  # Joined: of a table of one row, each column takes some hundred bytes.
ARROW_STREAM = b"\xff\xff\xff\xff"  # No JSON begins so.
_ONE_OBJECT = r"^\s*\{(?s:.*)\}\s*$"
_SUSPICIOUS = r"\}\s*[^\s,\]\}]"
_PLAIN = {
    "bool": pa.bool_(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "timestamp": TIMESTAMP,
    "date": pa.date32(),
    "decimal": pa.decimal128(DECIMAL_DIGITS, DECIMAL_SCALE),
    "time": pa.int64(),  # Microseconds: Delta has no time of day, and Spark has none by default.
}
# Before they are cast: pyarrow's parser takes a date for a number, and Arrow's streams may have
# times in other units.
_IN_JSON = {**_PLAIN, "date": pa.string()}
_EXACT = {**_PLAIN, "time": TIME}
_PYTHON: dict[str, tuple[type, ...]] = {
    "bool": (bool,),
    "int32": (int,),
    "int64": (int,),
    "float": (int, float),
    "double": (int, float),
    "string": (str,),
    "bytes": (str,),
    "timestamp": (str,),
    "date": (str,),
    "decimal": (int, float, str),
    "time": (int,),
}


@lru_cache(maxsize=64)
def typed_columns(schema: str) -> pa.Schema | None:
    """The columns of a topic's `smq.schema`; None if it has none."""
    columns = parse_schema(schema)
    return pa.schema([_field(each, _PLAIN) for each in columns]) if columns else None


def leaves(schema: pa.Schema | None) -> list[str]:
    """The columns' paths in a Parquet file."""
    return [path for field in schema or () for path, _ in _leaves(field.name, field.type)]


def bounded_leaves(schema: pa.Schema | None) -> list[str]:
    """Those that may have statistics: bounds leave NaN out, and engines take it for the greatest
    number, so they would pass over its rows."""
    found = (leaf for field in schema or () for leaf in _leaves(field.name, field.type))
    return [path for path, type_ in found if not pa.types.is_floating(type_)]


class Typing:
    """Makes the typed columns of a topic."""

    def __init__(self, schema: str) -> None:
        self._columns = parse_schema(schema)
        columns = typed_columns(schema)
        assert columns is not None, "there are columns"
        self.columns = columns
        self._parsed, self._exact = (
            pa.schema([(each.source, _arrow(each.type, types)) for each in self._columns])
            for types in (_IN_JSON, _EXACT)
        )
        self._leaves = sum(map(leaf_count, columns.types))
        self._item_leaves = max(map(_item_leaves, columns.types))
        self._records: RecordValues | None = None
        if has_record_values(schema):
            self._records = RecordValues(self._columns, columns, VALUE_COST_MAX)

    def of(self, values: pa.ChunkedArray) -> tuple[list[pa.ChunkedArray], int]:
        """The columns of these values (binary), and how many rows do not fit. Null fits."""
        typed, misfits = self._joined(list(self._typed(values)))
        return typed.columns, misfits

    def widened(self, rows: pa.Table, values: str) -> Iterator[tuple[pa.Table, int]]:
        """Rows with the typed columns of this column appended, and how many do not fit: in order,
        in parts whose typed columns take about WIDENED_BYTES at most."""
        first = size = 0
        waiting: list[tuple[pa.Table, int]] = []
        for part in self._typed(rows[values]):
            if waiting and size + part[0].nbytes > WIDENED_BYTES:
                typed, misfits = self._joined(waiting)
                yield self._beside(rows[first : first + len(typed)], typed), misfits
                first, size, waiting = first + len(typed), 0, []
            waiting.append(part)
            size += part[0].nbytes
        typed, misfits = self._joined(waiting)
        yield self._beside(rows[first:], typed), misfits

    def _joined(self, parts: list[tuple[pa.Table, int]]) -> tuple[pa.Table, int]:
        tables = [self.columns.empty_table(), *(table for table, _ in parts)]
        return pa.concat_tables(tables), sum(misfits for _, misfits in parts)

    def _beside(self, rows: pa.Table, typed: pa.Table) -> pa.Table:
        for field, column in zip(self.columns, typed.columns, strict=True):
            rows = rows.append_column(field, column)
        return rows

    def _typed(self, values: pa.ChunkedArray) -> Iterator[tuple[pa.Table, int]]:
        """The columns in parts that are parsed at once, and how many rows of each do not fit."""
        array = values.cast(pa.large_binary()).combine_chunks()
        for chunk in array.chunks if isinstance(array, pa.ChunkedArray) else [array]:
            ends = np.cumsum(self._costs(chunk))
            first, before = 0, 0
            while first < len(chunk):  # Parts of PARSED_COST, or a single value.
                end = int(np.searchsorted(ends, before + PARSED_COST, "right"))
                end = max(first + 1, end)
                yield self._whole(chunk[first:end].cast(pa.binary()))
                first, before = end, int(ends[end - 1])

    def _costs(self, values: pa.Array) -> np.ndarray:
        """What each value costs. An Arrow value inflates by a factor, if it is not small."""
        lengths = _numbers(pc.binary_length(values))
        if self._records is not None:
            most = lengths // _ITEM_BYTES_MIN * self._item_leaves
            found: np.ndarray = self._leaves + lengths + most
            return found
        tokens = ITEMS if self._item_leaves else ()
        items = sum(_numbers(pc.count_substring(values, each)) for each in tokens)
        is_arrow = pc.fill_null(pc.starts_with(values, ARROW_STREAM), fill_value=False)
        return self._leaves + np.where(
            is_arrow.to_numpy(zero_copy_only=False),
            np.maximum(lengths, INFLATION_FREE // INFLATION_MAX),
            lengths + items * self._item_leaves,
        )

    def _is_too_large(self, texts: pa.Array) -> bool:
        """Whether this is a single value that does not fit for its size."""
        if len(texts) > 1:
            return False
        is_too_long = pc.binary_length(texts)[0].as_py() > VALUE_BYTES_MAX
        is_counted = self._records is None  # Theirs is known when they are read.
        return bool(is_too_long or (is_counted and self._costs(texts)[0] > VALUE_COST_MAX))

    def _whole(self, values: pa.Array) -> tuple[pa.Table, int]:
        rows = [number for number, valid in enumerate(values.is_valid().to_pylist()) if valid]
        texts = values.drop_null()
        if not len(texts) or self._is_too_large(texts):
            return self._placed([], self._exact.empty_table(), len(values)), len(texts)
        if self._records is not None:
            parsed, fit = self._records.read(texts.to_pylist())
            return self._placed([rows[at] for at in fit], parsed, len(values)), len(rows) - len(fit)
        if are_objects(texts) and (parsed := self._parse(texts.to_pylist())) is not None:
            return self._placed(rows, parsed, len(values)), 0
        found: list[pa.Table] = []
        fitting: list[int] = []
        for first in range(0, len(rows), BLOCK_ROWS):
            block = texts[first : first + BLOCK_ROWS].to_pylist()
            self._block(rows[first : first + BLOCK_ROWS], block, found, fitting)
        parsed = pa.concat_tables(found) if found else self._exact.empty_table()
        return self._placed(fitting, parsed, len(values)), len(rows) - len(fitting)

    def _block(
        self, rows: list[int], values: list[bytes], found: list[pa.Table], fitting: list[int]
    ) -> None:
        """Parse the values that fit, and record their rows."""
        arrow, text = [], []
        for row, value in zip(rows, values, strict=True):
            if value.startswith(ARROW_STREAM):
                arrow.append((row, value))
            elif self._may_fit(value):
                text.append((row, value))
        self._halve(text, found, fitting)
        tables: list[pa.Table] = []
        for row, value in arrow:
            if (table := self._read_arrow(value)) is not None:
                tables.append(table)
                fitting.append(row)
            if len(tables) == ARROW_ROWS:
                found.append(pa.concat_tables(tables).combine_chunks())
                tables.clear()
        found.extend(tables)

    def _halve(
        self, rows: list[tuple[int, bytes]], found: list[pa.Table], fitting: list[int]
    ) -> None:
        if not rows:
            return
        parsed = self._parse([value for _, value in rows])
        if parsed is not None:
            found.append(parsed)
            fitting.extend(row for row, _ in rows)
        elif len(rows) > 1:
            middle = len(rows) // 2
            self._halve(rows[:middle], found, fitting)
            self._halve(rows[middle:], found, fitting)

    def _parse(self, values: list[bytes]) -> pa.Table | None:
        """Parse one row per value; all are objects. None if one of them does not fit."""
        text = b"\n".join(values)
        try:
            parsed = pj.read_json(
                pa.BufferReader(text),
                read_options=pj.ReadOptions(use_threads=False, block_size=len(text) + 64),
                parse_options=pj.ParseOptions(
                    explicit_schema=self._parsed,
                    newlines_in_values=True,
                    unexpected_field_behavior="ignore",
                ),
            ).cast(self._exact)
        except pa.ArrowInvalid:
            return None
        fits = parsed.num_rows == len(values) and all(map(has_years, parsed.columns))
        return parsed if fits else None

    def _read_arrow(self, value: bytes) -> pa.Table | None:
        """The row of an Arrow stream; None if it has not exactly one that fits."""
        try:
            arrays = row_of(value, self._exact)
            if arrays is None:
                return None
            row = pa.table(arrays, schema=self._exact)
            return row if all(map(has_years, row.columns)) else None
        except (pa.ArrowException, OSError, KeyError, ValueError, MemoryError):
            return None

    def _may_fit(self, value: bytes) -> bool:
        """Whether a value is one JSON object, and plainly not of other types."""
        try:
            found = json.loads(value.decode())
        except (json.JSONDecodeError, UnicodeDecodeError):
            return False
        except (ValueError, RecursionError):  # Too long a number, too deep: pyarrow decides.
            return are_objects(pa.array([value], pa.binary()))
        return isinstance(found, dict) and all(
            _looks_like(found.get(each.source), each.type) for each in self._columns
        )

    def _placed(self, rows: list[int], parsed: pa.Table, count: int) -> pa.Table:
        """The parsed rows in place among this many rows, the others null."""
        table = parsed.rename_columns(self.columns.names).cast(self.columns)
        if len(rows) == count and rows == list(range(count)):
            return table
        place: list[int | None] = [None] * count
        for at, row in enumerate(rows):
            place[row] = at
        if not rows:
            return pa.table([pa.nulls(count, each.type) for each in self.columns], self.columns)
        return table.take(pa.array(place, pa.int64()))


def are_objects(texts: pa.Array) -> bool:
    """Whether each of these values (binary) can only be one JSON object, if it is JSON."""
    try:
        strings = texts.cast(pa.string())
    except pa.ArrowInvalid:  # Not UTF-8.
        return False
    if not pc.all(pc.match_substring_regex(strings, _ONE_OBJECT)).as_py():
        return False
    return not pc.any(pc.match_substring_regex(strings, _SUSPICIOUS)).as_py()


def _looks_like(value: Any, kind: Kind) -> bool:  # noqa: ANN401  (whatever JSON has)
    """A quick check: False only for values that pyarrow refuses too."""
    if value is None:
        return True
    match kind:
        case ListOf():
            return isinstance(value, list)
        case Struct():
            return isinstance(value, dict)
    return isinstance(value, _PYTHON[kind]) and (kind == "bool" or not isinstance(value, bool))


def _numbers(array: pa.Array) -> np.ndarray:
    found: np.ndarray = array.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _item_leaves(kind: pa.DataType) -> int:
    """The columns of an object in a list, in the type that has most; 0: no list is of objects."""
    if pa.types.is_struct(kind):
        return max(map(_item_leaves, (field.type for field in kind)))
    if not pa.types.is_list(kind):
        return 0
    is_of_objects = pa.types.is_struct(kind.value_type) or _item_leaves(kind.value_type) > 0
    return leaf_count(kind.value_type) if is_of_objects else 0


def _field(column: Column, types: Mapping[str, pa.DataType]) -> pa.Field:
    return pa.field(column.name, _arrow(column.type, types))


def _arrow(kind: Kind, types: Mapping[str, pa.DataType]) -> pa.DataType:
    match kind:
        case ListOf():
            return pa.list_(pa.field("element", _arrow(kind.items, types)))
        case Struct():
            return pa.struct([_field(each, types) for each in kind.fields])
    return types[kind]


def _leaves(path: str, type_: pa.DataType) -> list[tuple[str, pa.DataType]]:
    if pa.types.is_list(type_):
        return _leaves(f"{path}.list.element", type_.value_type)
    if pa.types.is_struct(type_):
        return [leaf for field in type_ for leaf in _leaves(f"{path}.{field.name}", field.type)]
    return [(path, type_)]
