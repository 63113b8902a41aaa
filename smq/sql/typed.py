"""A topic's typed columns in SQL: what DuckDB calls their types, and null where a file has none."""

import pyarrow as pa

from smq.model.topic_schema import Column, Kind, ListOf, Struct, parse_schema
from smq.sealer.typed import Typing

_PLAIN = {
    "bool": "BOOLEAN",
    "int32": "INTEGER",
    "int64": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "timestamp": "TIMESTAMP",  # UTC, without a zone, as the records' own time.
}


def quoted(name: str) -> str:
    """An SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def with_typed(rows: pa.Table, schema: str) -> pa.Table:
    """Rows with a value, and behind them the typed columns that a schema gives them."""
    if not schema:
        return rows
    return Typing(schema).widened(rows, "value")[0]


def typed_names(schema: str) -> str:
    """SQL for the typed columns, each behind a comma."""
    return "".join(
        f", {quoted(each.name)}::{_type(each.type)} AS {quoted(each.name)}"
        for each in parse_schema(schema)
    )


def widened(source: str, schema: str) -> str:
    """SQL for the rows of a source that may lack typed columns, null where it does."""
    columns = parse_schema(schema)
    if not columns:
        return source
    nulls = ", ".join(f"NULL::{_type(each.type)} AS {quoted(each.name)}" for each in columns)
    return f"(SELECT * FROM {source} UNION ALL BY NAME SELECT {nulls} WHERE false)"


def _type(kind: Kind) -> str:
    match kind:
        case ListOf():
            return f"{_type(kind.items)}[]"
        case Struct():
            return f"STRUCT({', '.join(map(_field, kind.fields))})"
    return _PLAIN[kind]


def _field(column: Column) -> str:
    return f"{quoted(column.name)} {_type(column.type)}"
