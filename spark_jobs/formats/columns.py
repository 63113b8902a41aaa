"""Applies a format to the values of a DataFrame, in Arrow batches without Python tuples per row."""

from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StringType, StructType

from spark_jobs.formats.framing import Misfit

REASON_CHARS_MAX = 200


class Format(Protocol):
    """A decoder of values; pickled to Spark's workers."""

    @property
    def columns(self) -> StructType:
        """The columns of a value."""
        ...

    def decode(self, value: bytes) -> dict[str, Any]:
        """A value by column. Raises Misfit with the reason."""
        ...


def decoded(values: Column, form: Format) -> Column:
    """A struct: `row` with the columns (null: the value was null), `bad` with the reason."""
    columns = form.columns
    both = StructType().add("row", columns).add("bad", StringType())
    row_type = to_arrow_type(columns, timezone="UTC")

    def batch(values: pa.Array) -> pa.Array:
        return _decoded(values, form, row_type)

    batch.__annotations__ = {"values": pa.Array, "return": pa.Array}
    make: Any = arrow_udf  # Its stubs want what it warns of: a kind beside the annotations.
    found: Column = make(batch, both)(values)
    return found


def _decoded(values: pa.Array, form: Format, row_type: pa.DataType) -> pa.Array:
    rows: list[dict[str, Any] | None] = []
    reasons: list[str | None] = []
    for value in values.to_pylist():
        row, reason = _row(value, form)
        rows.append(row)
        reasons.append(reason)
    try:
        whole = pa.array(rows, row_type)
    except (pa.ArrowException, OverflowError, ValueError, TypeError):
        # Some value does not fit its column: find which.
        for place, row in enumerate(rows):
            try:
                pa.array([row], row_type)
            except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
                rows[place], reasons[place] = None, _short(error)
        whole = pa.array(rows, row_type)
    return pa.StructArray.from_arrays([whole, pa.array(reasons, pa.string())], ["row", "bad"])


def _row(value: bytes | None, form: Format) -> tuple[dict[str, Any] | None, str | None]:
    if value is None:
        return None, None
    try:
        return form.decode(value), None
    except Misfit as error:
        return None, _short(error)


def _short(error: Exception) -> str:
    return (str(error) or type(error).__name__)[:REASON_CHARS_MAX]
