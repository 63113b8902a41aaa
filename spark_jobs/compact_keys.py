"""The last record of each key of a topic, as a Parquet table.

    smq spark compact_keys orders --data-dir DIR --output TABLE [--drop-deleted]

A key's records lie in one partition, as Kafka's compaction assumes. Records without a key are kept.
After a kill the same command goes on at the first partition that is not done; once the table is
complete, it makes a new one of what the topic has by then.
"""

import argparse
from functools import partial

from pyspark.sql import DataFrame, functions as f

from spark_jobs.rebuild import add_options, run
from spark_jobs.session import refusals, start_session

PLACE = ["topic", "partition", "offset"]


def transform(records: DataFrame, *, drop_deleted: bool = False) -> DataFrame:
    """The records that Kafka's compaction keeps; optionally without tombstones.

    Two passes: the first shuffles keys and offsets only, which is about three times faster than a
    window over whole records.
    """
    keyed = records.where(f.col("key").isNotNull())
    last = keyed.groupBy("topic", "partition", "key").agg(f.max("offset").alias("offset"))
    kept = keyed.join(last.select(*PLACE), PLACE, "left_semi").select(*records.columns)
    if drop_deleted:
        kept = kept.where(f.col("value").isNotNull())
    return kept.unionByName(records.where(f.col("key").isNull()))


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(
        prog="smq spark compact_keys",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("topic")
    add_options(parser)
    parser.add_argument(
        "--drop-deleted", action="store_true", help="leave out keys whose last value is null"
    )
    given = parser.parse_args()
    drop_deleted = bool(given.drop_deleted)
    with refusals(), start_session(f"last of each key of {given.topic}") as spark:
        run(
            spark,
            "compact_keys",
            given,
            {"drop_deleted": drop_deleted},
            lambda *_: partial(transform, drop_deleted=drop_deleted),
        )


if __name__ == "__main__":
    main()
