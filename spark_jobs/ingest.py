"""A topic into a lake table of Parquet files, partitioned by date: each record once.

    smq spark ingest orders --data-dir DIR --output TABLE [--follow]

Reads what there is, sealed or not, and goes on where the last run ended, also after a kill: the
table's directory has the checkpoint. `--follow` goes on until it is stopped. Read the table with
Spark, which ignores files of batches that did not end.
"""

import argparse
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, functions as f
from pyspark.sql.streaming.query import StreamingQuery

from spark_jobs.places import add_stream_places, stream_options
from spark_jobs.progress import watch
from spark_jobs.session import refusals, start_session

CHECKPOINT = "_checkpoint"  # Readers of tables skip names with an underscore.
EVERY_SECONDS = 10


def transform(records: DataFrame) -> DataFrame:
    """The table's columns: those of the topic, and the date in UTC (null without a time)."""
    return records.withColumn("date", f.to_date("timestamp"))


def start(
    spark: SparkSession, topic: str, options: dict[str, str], output: Path, *, follow: bool
) -> StreamingQuery:
    """Start the stream into the table. `options` are those of `format("smq")`."""
    records = spark.readStream.format("smq").options(**options).option("subscribe", topic).load()
    writer = (
        transform(records)
        .writeStream.format("parquet")
        .partitionBy("date")
        .option("path", str(output))
        .option("checkpointLocation", str(output / CHECKPOINT))
    )
    if follow:
        return writer.trigger(processingTime=f"{EVERY_SECONDS} seconds").start()
    return writer.trigger(availableNow=True).start()


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(prog="smq spark ingest", description=__doc__)
    parser.add_argument("topic")
    add_stream_places(parser)
    parser.add_argument("--output", type=Path, required=True, help="the table's directory")
    parser.add_argument("--follow", action="store_true", help="run until stopped")
    given = parser.parse_args()
    options = stream_options(given)
    with refusals(), start_session(f"ingest {given.topic}") as spark:
        watch(start(spark, given.topic, options, given.output, follow=given.follow))


if __name__ == "__main__":
    main()
