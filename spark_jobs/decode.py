"""Values of a topic as typed columns; what does not fit goes to a dead-letter topic or table.

    smq spark decode orders --data-dir DIR --schema "user STRING, amount DOUBLE" --output TABLE
        [--dead-letters TOPIC]
    smq spark decode orders … --format avro --schema order.avsc [--framed [--registry URL]]
    smq spark decode orders … --format protobuf --schema orders.desc --message shop.Order [--framed]

The table has the topic's columns but the value, and those of the schema. A record whose value is
not of the schema is a dead letter: its own key and value, and headers that say which it is and why.
Without `--dead-letters` they go to the table `TABLE.dead`. Nothing is left out: a null value is a
row of nulls. Both are written once: each run goes on where the last one ended, also after a kill.
Read the tables with Spark, which ignores files of batches that did not end.
A descriptor set for Protobuf: `protoc --include_imports -o orders.desc orders.proto`.
"""

import argparse
import hashlib
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, SparkSession, functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from smq.model.named_files import read_named
from smq.tables.plan import Unreadable
from spark_jobs.durable import claim
from spark_jobs.formats.framing import SCHEMA_BYTES_MAX
from spark_jobs.ingest import CHECKPOINT
from spark_jobs.places import add_stream_places, stream_options
from spark_jobs.progress import watch
from spark_jobs.session import refusals, start_session

if TYPE_CHECKING:
    from spark_jobs.formats.columns import Format

BAD, COUNT = "_bad", "rows"
MADE = "_decode.json"
LETTERS_CHECKPOINT = "_checkpoint_of_dead_letters"
CARRIED = ["key", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]


def transform(records: DataFrame, schema: "str | Format") -> tuple[DataFrame, DataFrame]:
    """The typed rows, and the dead letters: key, value, headers.

    `schema` names columns of JSON objects in SQL DDL, or is a format. Raises ValueError.
    """
    if isinstance(schema, str):
        return _split(*_json(records, schema))
    from spark_jobs.formats.columns import decoded  # noqa: PLC0415  (Needs an extra.)

    _check(schema.columns)
    parsed = records.withColumn("v", decoded(f.col("value"), schema))
    names = schema.columns.fieldNames()
    return _split(parsed, {name: f.col(f"v.row.{name}") for name in names}, f.col("v.bad"))


def _json(records: DataFrame, schema: str) -> tuple[DataFrame, dict[str, Column], Column]:
    columns = StructType.fromDDL(schema)
    if not isinstance(columns, StructType):
        raise ValueError(f"{schema!r} is a type; name columns: user STRING, amount DOUBLE")  # noqa: TRY004
    _check(columns)
    whole = StructType([*columns.fields]).add(BAD, "string")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": BAD}
    text = f.col("value").cast("string")
    parsed = records.withColumn("v", f.from_json(text, whole, options))
    # Spark would silently change bytes that are not UTF-8.
    is_misfit = f.col(f"v.{BAD}").isNotNull() | f.col("v").isNull()
    why = f.when(~f.is_valid_utf8(text), "not UTF-8").when(
        is_misfit, "not a JSON object of the schema"
    )
    bad = f.when(f.col("value").isNotNull(), why)
    return parsed, {name: f.col(f"v.{name}") for name in columns.fieldNames()}, bad


def _check(columns: StructType) -> None:
    clash = sorted({*columns.fieldNames()} & {*CARRIED, BAD})
    if clash:
        raise ValueError(f"the schema has {clash[0]}, which is a column of the topic")


def _split(
    parsed: DataFrame, columns: Mapping[str, Column], bad: Column
) -> tuple[DataFrame, DataFrame]:
    """Rows with these columns, and those that `bad` gives a reason for."""
    good = parsed.where(bad.isNull())
    good = good.select(*CARRIED, *(each.alias(name) for name, each in columns.items()))
    told = {
        "smq.dead.topic": f.col("topic"),
        "smq.dead.partition": f.col("partition").cast("string"),
        "smq.dead.offset": f.col("offset").cast("string"),
        "smq.dead.reason": bad,
    }
    ours = f.array(
        *(
            f.struct(f.lit(name).alias("key"), value.cast("binary").alias("value"))
            for name, value in told.items()
        )
    )
    theirs = f.coalesce("headers", f.array().cast("array<struct<key:string,value:binary>>"))
    letters = parsed.where(bad.isNotNull())
    return good, letters.select("key", "value", f.concat(theirs, ours).alias("headers"))


def run(spark: SparkSession, given: argparse.Namespace) -> tuple[int, int]:
    """Write both; returns this run's numbers of rows and dead letters. Raises Unreadable."""
    form = form_of(given)
    table, dead = Path(given.output), Path(f"{given.output}.dead")
    claim(table / MADE, _made_of(given))
    records = spark.readStream.format("smq").options(**stream_options(given))
    good, bad = transform(records.option("subscribe", given.topic).load(), form)
    rows = watch(_into_table(_counted(good), table))
    if given.dead_letters is None:
        letters = watch(_into_table(_counted(bad), dead))
    else:
        writer = _counted(bad).writeStream.format("smq").option("dataDir", str(given.data_dir))
        writer = writer.option("topic", given.dead_letters)
        writer = writer.option("checkpointLocation", str(table / LETTERS_CHECKPOINT))
        letters = watch(writer.trigger(availableNow=True).start())
    return rows[COUNT], letters[COUNT]


def _counted(rows: DataFrame) -> DataFrame:
    return rows.observe(COUNT, f.count(f.lit(1)))


def _into_table(rows: DataFrame, table: Path) -> StreamingQuery:
    writer = rows.writeStream.format("parquet").option("path", str(table))
    writer = writer.option("checkpointLocation", str(table / CHECKPOINT))
    return writer.trigger(availableNow=True).start()


def _made_of(given: argparse.Namespace) -> dict[str, object]:
    """The options that determine the table's rows: a later run with others is refused."""
    schema = given.schema if given.format == "json" else Path(given.schema).read_text("latin-1")
    return {
        "topic": given.topic,
        "format": given.format,
        "schema": hashlib.sha256(schema.encode()).hexdigest(),
        "message": given.message,
        "framed": given.framed,
        "dead letters": given.dead_letters,
    }


def form_of(given: argparse.Namespace) -> "str | Format":
    """The schema argument of `transform`. Raises Unreadable."""
    if given.format == "json":
        return str(given.schema)
    needed = "fastavro" if given.format == "avro" else "google.protobuf"
    try:
        import_module(needed)
    except ImportError:
        raise Unreadable(f"{given.format} needs `pip install 'smq-broker[decode]'`") from None
    try:
        schema = read_named(given.schema, SCHEMA_BYTES_MAX)
        if given.format == "avro":
            from spark_jobs.formats.avro import Avro  # noqa: PLC0415  (Needs an extra.)

            return Avro(schema.decode(), is_framed=given.framed, registry=given.registry)
        from spark_jobs.formats.protobuf import Protobuf  # noqa: PLC0415  (Needs an extra.)

        return Protobuf(schema, given.message, is_framed=given.framed)
    except (OSError, ValueError) as error:
        raise Unreadable(f"--schema {given.schema}: {error}") from error


def _refuse(parser: argparse.ArgumentParser, given: argparse.Namespace) -> None:
    """Exit if options conflict."""
    if (given.message is not None) != (given.format == "protobuf"):
        parser.error("--message is the type of --format protobuf, which needs it")
    if given.registry is not None and not (given.format == "avro" and given.framed):
        parser.error("--registry is for --format avro --framed")
    if given.framed and given.format == "json":
        parser.error("--framed is for --format avro or protobuf")


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(
        prog="smq spark decode", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("topic")
    add_stream_places(parser)
    parser.add_argument("--format", choices=["json", "avro", "protobuf"], default="json")
    parser.add_argument(
        "--schema",
        required=True,
        help="json: columns, as SQL's DDL names them; avro: a file with a schema; protobuf: a file "
        "with a descriptor set",
    )
    parser.add_argument("--message", help="protobuf: the message's full name")
    parser.add_argument(
        "--framed", action="store_true", help="values have Confluent's frame: 0 and a schema id"
    )
    parser.add_argument(
        "--registry",
        metavar="URL",
        help="where the schemas of these ids are: a schema registry, or a directory with ID.avsc",
    )
    parser.add_argument("--output", type=Path, required=True, help="the table's directory")
    parser.add_argument("--dead-letters", metavar="TOPIC", help="a topic, which must exist")
    given = parser.parse_args()
    _refuse(parser, given)
    with refusals(), start_session(f"decode {given.topic}") as spark:
        rows, dead = run(spark, given)
        sys.stdout.write(f"{rows} rows, {dead} dead letters\n")


if __name__ == "__main__":
    main()
