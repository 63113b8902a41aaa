"""The records of a topic without repetitions, as a Parquet table: the first of each is kept.

    smq spark dedup orders --data-dir DIR --output TABLE [--by key value]

Records are the same if these columns are; null is the same as null. After a kill the same command
goes on at the first partition that is not done; once the table is complete, it makes a new one of
what the topic has by then.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, functions as f

from spark_jobs.rebuild import Rows, add_options, run
from spark_jobs.session import refusals, start_session

COLUMNS = ["key", "value", "timestamp", "topic", "partition"]
PLACE = ["topic", "partition", "offset"]


def transform(records: DataFrame, by: Sequence[str] = ("key", "value")) -> DataFrame:
    """The first record of each group of equal ones, by time, then by partition and offset.

    Two passes, of which the first shuffles positions and hashes, not values. The hash has 256 bits.
    """
    return _kept(records, first_places(records, by))


def first_places(records: DataFrame, by: Sequence[str]) -> DataFrame:
    """The position of the first record of each group."""
    parts = [
        f.coalesce(f.hex(f.col(each).cast("string").cast("binary")), f.lit("null"))
        if each not in {"key", "value"}
        else f.coalesce(f.hex(each), f.lit("null"))
        for each in by
    ]
    place = f.struct("timestamp", *PLACE)
    first = records.groupBy(f.sha2(f.concat_ws("|", *parts), 256)).agg(f.min(place).alias("first"))
    return first.select("first.*").select(*PLACE)


def _kept(records: DataFrame, places: DataFrame) -> DataFrame:
    return records.join(places, PLACE, "left_semi").select(*records.columns)


def prepared(records: DataFrame, scratch: Path, by: Sequence[str]) -> Rows:
    """The rows each partition keeps, once the positions of all first records are in `scratch`."""
    if not scratch.exists():
        first_places(records, by).write.parquet(str(scratch))
    places = records.sparkSession.read.parquet(str(scratch))
    return lambda rows: _kept(rows, places)


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(
        prog="smq spark dedup", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("topic")
    add_options(parser)
    parser.add_argument(
        "--by", nargs="+", choices=COLUMNS, default=["key", "value"], help="[key value]"
    )
    given = parser.parse_args()
    with refusals(), start_session(f"{given.topic} without repetitions") as spark:
        run(
            spark,
            "dedup",
            given,
            {"by": sorted(given.by)},
            lambda records, scratch: prepared(records, scratch, sorted(given.by)),
        )


if __name__ == "__main__":
    main()
