"""Decodes Avro values to columns. Source: Avro specification 1.12, types and binary encoding."""

import io
import json
import struct
from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import Any

import fastavro
from fastavro.schema import expand_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from spark_jobs.formats.framing import SCHEMAS_KEPT, Misfit, schema_of, unframed

PLAIN: Mapping[str, DataType] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
    "string": StringType(),
    "fixed": BinaryType(),
    "enum": StringType(),
}
LOGICAL: Mapping[str, DataType] = {
    "date": DateType(),
    "timestamp-millis": TimestampType(),
    "timestamp-micros": TimestampType(),
    "local-timestamp-millis": TimestampNTZType(),
    "local-timestamp-micros": TimestampNTZType(),
}
DIGITS_MAX = 38  # The limit of Spark's decimals.
BROKEN = (
    EOFError, IndexError, KeyError, OverflowError, TypeError, ValueError, ArithmeticError,
    AttributeError, struct.error, fastavro.schema.SchemaParseException,
    fastavro.read.SchemaResolutionError,
)  # fmt: skip


class Avro:
    """Values of a schema in JSON; with `registry`, framed values of the registry's schemas.

    Logical types other than dates, timestamps and decimals are read as their underlying type.
    Raises ValueError for an invalid schema, or one without columns in Spark: recursive schemas, and
    unions other than of null and one type.
    """

    def __init__(
        self, schema: str, *, is_framed: bool = False, registry: str | None = None
    ) -> None:
        self._schema, self._is_framed, self._registry = schema, is_framed, registry
        columns = _columns(schema)
        self.columns = columns

    def __getstate__(self) -> dict[str, Any]:
        """Workers parse the schema themselves."""
        return {name: value for name, value in self.__dict__.items() if name != "_parsed"}

    @cached_property
    def _parsed(self) -> Any:  # noqa: ANN401  (fastavro's)
        return parsed(self._schema)

    def decode(self, value: bytes) -> dict[str, Any]:
        """A value by column. Raises Misfit, or OSError if the registry does not answer."""
        writer, reader = self._parsed, None
        if self._is_framed:
            number, value = unframed(value)
            if self._registry is not None:
                text = schema_of(self._registry, number)
                if text != self._schema:
                    writer, reader = _writer(text), self._parsed
        source = io.BytesIO(value)
        try:
            row = fastavro.schemaless_reader(source, writer, reader)
        except BROKEN as error:
            raise Misfit(
                f"not Avro data of this schema: {str(error) or type(error).__name__}"
            ) from error
        if source.tell() != len(value):
            raise Misfit(f"{len(value) - source.tell()} bytes follow the Avro value")
        assert isinstance(row, dict)
        return row


def parsed(text: str) -> Any:  # noqa: ANN401  (fastavro's)
    """Parse a schema; drops logical types that Spark lacks. Raises ValueError."""
    try:
        return fastavro.parse_schema(_plainer(json.loads(text)))
    except (ValueError, KeyError, TypeError, fastavro.schema.SchemaParseException) as error:
        raise ValueError(f"not an Avro schema: {error}") from error


@lru_cache(SCHEMAS_KEPT)
def _writer(text: str) -> Any:  # noqa: ANN401  (fastavro's)
    try:
        _columns(text)  # Also refuses items without bytes, as a value may have billions of them.
        return parsed(text)
    except ValueError as error:
        raise Misfit(f"its schema cannot be used: {error}") from error


def _plainer(schema: Any) -> Any:  # noqa: ANN401  (JSON)
    if isinstance(schema, list):
        return [_plainer(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {
        name: _plainer(value) if name != "default" else value for name, value in schema.items()
    }
    if found.get("logicalType") not in {*LOGICAL, "decimal"}:
        found.pop("logicalType", None)
    return found


def _columns(text: str) -> StructType:
    schema = parsed(text)
    try:
        found = spark_type(expand_schema(schema))
    except RecursionError:
        raise ValueError("the schema is recursive") from None
    if not isinstance(found, StructType):
        raise ValueError("the schema is no record")  # noqa: TRY004  (a value of the user's)
    return found


def spark_type(schema: Any) -> DataType:  # noqa: ANN401  (JSON)
    """The Spark type of a schema. Raises ValueError if there is none."""
    if isinstance(schema, list):
        others = [each for each in schema if each != "null"]
        if len(others) != 1:
            raise ValueError(f"a union of {len(others)} types but null has no column")
        return spark_type(others[0])
    if isinstance(schema, str):
        if schema not in PLAIN:
            raise ValueError(f"{schema} has no column (null alone, or a type within itself)")
        return PLAIN[schema]
    logical, kind = schema.get("logicalType"), schema["type"]
    if logical == "decimal":
        if schema["precision"] > DIGITS_MAX:
            raise ValueError(f"a decimal of {schema['precision']} digits; Spark has {DIGITS_MAX}")
        return DecimalType(schema["precision"], schema.get("scale", 0))
    if logical is not None:
        return LOGICAL[logical]
    return _nested(schema, kind)


def _nested(schema: Any, kind: Any) -> DataType:  # noqa: ANN401  (JSON)
    if kind == "array":
        return ArrayType(spark_type(schema["items"]))
    if kind == "map":
        return MapType(StringType(), spark_type(schema["values"]))
    if kind in {"record", "error"}:
        if not schema["fields"]:
            raise ValueError(f"the record {schema['name']} has no fields")
        found = StructType()
        for field in schema["fields"]:
            found = found.add(field["name"], spark_type(field["type"]))
        return found
    return spark_type(kind)
