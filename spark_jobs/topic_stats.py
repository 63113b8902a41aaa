"""Statistics of a topic: a line for each partition, or for each hour.

    smq spark topic_stats flights --data-dir DIR [--by hour] [--output FILE.parquet]

Records, bytes of keys and values, nulls, offsets, times and an estimate of distinct keys.
"""

import argparse
import json
import sys
from pathlib import Path

from pyspark.sql import Column, DataFrame, functions as f

from spark_jobs.places import add_places, places_in
from spark_jobs.read import read_topic
from spark_jobs.session import refusals, start_session


def statistics(records: DataFrame, by: str) -> DataFrame:
    """A row per partition or hour of a topic's records."""
    groups: list[Column] = [f.col("partition")]
    if by == "hour":
        groups = [f.date_trunc("hour", "timestamp").alias("hour")]
    keys = f.coalesce(f.sum(f.length("key")), f.lit(0))
    values = f.coalesce(f.sum(f.length("value")), f.lit(0))
    rows = records.groupBy(*groups).agg(
        f.count("*").alias("records"),
        keys.alias("key_bytes"),
        values.alias("value_bytes"),
        f.count_if(f.col("key").isNull()).alias("null_keys"),
        f.count_if(f.col("value").isNull()).alias("null_values"),
        f.approx_count_distinct("key").alias("distinct_keys"),
        f.min("offset").alias("first_offset"),
        f.max("offset").alias("last_offset"),
        f.min("timestamp").alias("first_timestamp"),
        f.max("timestamp").alias("last_timestamp"),
    )
    return rows.orderBy(rows.columns[0])


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(prog="smq spark topic_stats", description=__doc__)
    parser.add_argument("topic")
    add_places(parser)
    parser.add_argument("--by", choices=["partition", "hour"], default="partition")
    parser.add_argument("--output", type=Path, help="a Parquet directory, instead of JSON lines")
    given = parser.parse_args()
    with refusals(), start_session(f"statistics of {given.topic}") as spark:
        rows = statistics(read_topic(spark, given.topic, **places_in(given)), given.by)
        if given.output is not None:
            rows.write.mode("overwrite").parquet(str(given.output))
            return
        for row in rows.collect():
            sys.stdout.write(json.dumps(row.asDict(), default=str) + "\n")


if __name__ == "__main__":
    main()
