"""JSON values of a topic as typed columns; what does not fit goes to a dead-letter topic or table.

    smq spark decode orders --data-dir DIR --schema "user STRING, amount DOUBLE" --output TABLE
        [--dead-letters TOPIC]

The table has the topic's columns but the value, and those of the schema. A record whose value is
no JSON object of the schema is a dead letter: its own key and value, and headers that say which it
is and why. Without `--dead-letters` they go to the table `TABLE.dead`. Nothing is left out: a null
value is a row of nulls.
"""

import argparse
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, functions as f
from pyspark.sql.types import StructType

from spark_jobs.places import add_places, places_in
from spark_jobs.read import read_topic
from spark_jobs.session import refusals, start_session

BAD = "_bad"
CARRIED = ["key", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]


def transform(records: DataFrame, schema: str) -> tuple[DataFrame, DataFrame]:
    """The typed rows, and the dead letters: key, value, headers.

    `schema` names columns as SQL's DDL does. Raises ValueError.
    """
    columns = StructType.fromDDL(schema)
    if not isinstance(columns, StructType):
        raise ValueError(f"{schema!r} is a type; name columns: user STRING, amount DOUBLE")  # noqa: TRY004
    clash = sorted({*columns.fieldNames()} & {*CARRIED, BAD})
    if clash:
        raise ValueError(f"the schema has {clash[0]}, which is a column of the topic")
    whole = StructType([*columns.fields]).add(BAD, "string")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": BAD}
    text = f.col("value").cast("string")
    parsed = records.withColumn("v", f.from_json(text, whole, options))
    # Bytes that are no UTF-8 would be changed unseen.
    is_text = f.is_valid_utf8(text)
    is_bad = f.col("value").isNotNull() & (
        ~is_text | f.col(f"v.{BAD}").isNotNull() | f.col("v").isNull()
    )
    good = parsed.where(~is_bad).select(*CARRIED, *(f.col(f"v.{n}") for n in columns.fieldNames()))
    why = f.when(~is_text, "not UTF-8").otherwise("not a JSON object of the schema")
    told = {
        "smq.dead.topic": f.col("topic"),
        "smq.dead.partition": f.col("partition").cast("string"),
        "smq.dead.offset": f.col("offset").cast("string"),
        "smq.dead.reason": why,
    }
    ours = f.array(
        *(
            f.struct(f.lit(name).alias("key"), value.cast("binary").alias("value"))
            for name, value in told.items()
        )
    )
    theirs = f.coalesce("headers", f.array().cast("array<struct<key:string,value:binary>>"))
    bad = parsed.where(is_bad).select("key", "value", f.concat(theirs, ours).alias("headers"))
    return good, bad


def run(spark: SparkSession, records: DataFrame, given: argparse.Namespace) -> tuple[int, int]:
    """Write both; returns the number of rows and of dead letters."""
    good, bad = transform(records, given.schema)
    good.write.mode("overwrite").parquet(str(given.output))
    if given.dead_letters is None:
        table = f"{given.output}.dead"
        bad.write.mode("overwrite").parquet(table)
        dead = spark.read.parquet(table).count()
    else:
        bad = bad.cache()
        dead = bad.count()
        writer = bad.write.format("smq").option("dataDir", str(given.data_dir))
        writer.option("topic", given.dead_letters).mode("append").save()
        bad.unpersist()
    return spark.read.parquet(str(given.output)).count(), dead


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(prog="smq spark decode", description=__doc__)
    parser.add_argument("topic")
    add_places(parser)
    parser.add_argument("--schema", required=True, help="columns, as SQL's DDL names them")
    parser.add_argument("--output", type=Path, required=True, help="a directory, replaced")
    parser.add_argument("--dead-letters", metavar="TOPIC", help="a topic, which must exist")
    given = parser.parse_args()
    with refusals(), start_session(f"decode {given.topic}") as spark:
        records = read_topic(spark, given.topic, **places_in(given))
        rows, dead = run(spark, records, given)
        sys.stdout.write(f"{rows} rows, {dead} dead letters\n")


if __name__ == "__main__":
    main()
