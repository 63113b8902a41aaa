"""Typed columns of a topic in SQL: their DuckDB types, and nulls where a file lacks them."""

import pyarrow as pa

from smq.model.topic_schema import Column, Kind, ListOf, Struct, parse_schema
from smq.sealer.typed import Typing
from smq.tables.live import TooMuch

_PLAIN = {
    "bool": "BOOLEAN",
    "int32": "INTEGER",
    "int64": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "bytes": "BLOB",
    "timestamp": "TIMESTAMP",  # UTC without a zone, like the records' own time.
    "date": "DATE",
    "decimal": "DECIMAL(38, 18)",
    "time": "BIGINT",  # Microseconds, as in the files.
}


def quoted(name: str) -> str:
    """Quote an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def with_typed(rows: pa.Table, schema: str, bytes_max: int) -> pa.Table:
    """Append a schema's typed columns to rows that have a value. Raises TooMuch."""
    if not schema:
        return rows
    parts, size = [], -rows.nbytes
    for part, _ in Typing(schema).widened(rows, "value"):
        parts.append(part)
        size += part.nbytes
        if size > bytes_max:
            raise TooMuch(f"typed columns of records take more than {bytes_max} bytes")
    typed = pa.concat_tables(parts)
    assert typed.num_rows == rows.num_rows, "a value that has not the types still is a row"
    return typed


def typed_names(schema: str) -> str:
    """SQL for the typed columns, each preceded by a comma."""
    return "".join(
        f", {quoted(each.name)}::{_type(each.type)} AS {quoted(each.name)}"
        for each in parse_schema(schema)
    )


def widened(source: str, schema: str) -> str:
    """SQL for the rows of a source, with null for the typed columns it lacks."""
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
