"""Spark types of a topic's typed columns."""

from smq.model.topic_schema import Column, Kind, ListOf, Struct, parse_schema

_PLAIN = {
    "bool": "boolean",
    "int32": "int",
    "int64": "bigint",
    "float": "float",
    "double": "double",
    "string": "string",
    "bytes": "binary",
    "timestamp": "timestamp",
    "date": "date",
    "decimal": "decimal(38,18)",
    "time": "bigint",  # Microseconds, as in the files.
}


def typed_kinds(schema: str) -> dict[str, str]:
    """The typed columns of a topic's `smq.schema`, with their Spark types."""
    return {each.name: _kind(each.type) for each in parse_schema(schema)}


def typed_ddl(schema: str) -> str:
    """The typed columns as DDL text, each preceded by a comma."""
    return "".join(f", `{name}` {kind}" for name, kind in typed_kinds(schema).items())


def _kind(kind: Kind) -> str:
    match kind:
        case ListOf():
            return f"array<{_kind(kind.items)}>"
        case Struct():
            return f"struct<{','.join(map(_field, kind.fields))}>"
    return _PLAIN[kind]


def _field(column: Column) -> str:
    return f"{column.name}:{_kind(column.type)}"
