"""The records of a topic without repetitions, as a Parquet table: the first of each is kept.

    smq spark dedup orders --data-dir DIR --output TABLE [--by key value]

Records are the same if these columns are; null is the same as null.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, functions as f

from spark_jobs.places import add_places, places_in
from spark_jobs.read import read_topic
from spark_jobs.session import refusals, start_session

COLUMNS = ["key", "value", "timestamp", "topic", "partition"]
PLACE = ["topic", "partition", "offset"]


def transform(records: DataFrame, by: Sequence[str] = ("key", "value")) -> DataFrame:
    """The first record of each group of equal ones, by time, then by its place.

    Two passes, of which the first shuffles places and hashes, not values. The hash has 256 bits.
    """
    parts = [
        f.coalesce(f.hex(f.col(each).cast("string").cast("binary")), f.lit("null"))
        if each not in {"key", "value"}
        else f.coalesce(f.hex(each), f.lit("null"))
        for each in by
    ]
    place = f.struct("timestamp", *PLACE)
    first = records.groupBy(f.sha2(f.concat_ws("|", *parts), 256)).agg(f.min(place).alias("first"))
    return records.join(first.select("first.*").select(*PLACE), PLACE, "left_semi").select(
        *records.columns
    )


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(prog="smq spark dedup", description=__doc__)
    parser.add_argument("topic")
    add_places(parser)
    parser.add_argument("--output", type=Path, required=True, help="a directory, replaced")
    parser.add_argument(
        "--by", nargs="+", choices=COLUMNS, default=["key", "value"], help="[key value]"
    )
    given = parser.parse_args()
    with refusals(), start_session(f"{given.topic} without repetitions") as spark:
        records = read_topic(spark, given.topic, **places_in(given))
        transform(records, given.by).write.mode("overwrite").parquet(str(given.output))


if __name__ == "__main__":
    main()
