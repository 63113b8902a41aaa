"""Converts values of a result to Python's: DuckDB has times that Python lacks."""

import math
from collections.abc import Iterator
from typing import Any

import pyarrow as pa


def rows_of(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """The rows of a batch; times outside the years 1 to 9999, and nanoseconds, as text."""
    yield from zip(*map(_values, batch.columns), strict=True)


def json_number(value: float) -> float | str:
    """The number, or the text that others write for those that JSON lacks."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _values(column: pa.Array) -> list[Any]:
    try:
        found: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):
        return [_value(each) for each in column]
    return found


def _value(value: pa.Scalar) -> Any:  # noqa: ANN401  (whatever a query's result has)
    try:
        return value.as_py()
    except (OverflowError, ValueError):
        match value:
            case pa.StructScalar():
                return {name: _value(each) for name, each in value.items()}
            case pa.MapScalar():
                return [(_value(each["key"]), _value(each["value"])) for each in value.values]
            case pa.ListScalar():
                return [_value(each) for each in value.values]
            case pa.UnionScalar():
                return _value(value.value)
        return _text(value)


def _text(value: pa.Scalar) -> str:
    """A time in ISO 8601, with a year of as many digits as it has; one that is too far away for
    Arrow to write, like DuckDB's infinity, as the number of its type's units since 1970."""
    text: str = value.cast(pa.string()).as_py()
    return str(value.value) if text.startswith("<") else text.replace(" ", "T", 1)
