"""Checks the sealed part of a topic: files against the manifest, offsets against each other.

    smq spark audit orders --data-dir DIR

Prints a line of JSON for each partition, and ends with code 1 if something is wrong: a file that is
missing or differs from its checksum, an offset that occurs twice, or records that the manifest
counts and the files lack (a segment that retention has cut is left out). Offsets without a record
are counted, and no error: transactions, and compaction, leave them.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame, functions as f

from smq.store.manifest import open_manifest
from smq.store.store import FILE_NAME
from smq.tables.plan import find_topic
from spark_jobs.places import add_places, places_in
from spark_jobs.read import read_topic
from spark_jobs.session import refusals, start_session


def transform(records: DataFrame) -> DataFrame:
    """A row per partition: records, offsets that occur twice, offsets without a record."""
    rows = records.groupBy("topic", "partition").agg(
        f.count("*").alias("records"),
        f.count_distinct("offset").alias("offsets"),
        f.min("offset").alias("first_offset"),
        f.max("offset").alias("last_offset"),
        f.min("timestamp").alias("first_timestamp"),
        f.max("timestamp").alias("last_timestamp"),
    )
    span = f.col("last_offset") - f.col("first_offset") + 1
    return (
        rows.withColumn("duplicates", f.col("records") - f.col("offsets"))
        .withColumn("without_record", span - f.col("offsets"))
        .drop("offsets")
        .orderBy("topic", "partition")
    )


class Expected(NamedTuple):
    """The manifest's expectations for a topic's partitions: first offset and record count.

    A segment that retention has cut is left out, as its remaining record count is unknown.
    """

    starts: dict[int, int]
    counts: dict[int, int]


def expected(data_dir: Path, topic: str) -> Expected:
    """Compute them from the manifest. Raises Unreadable, StoreError."""
    found = Expected({}, {})
    with open_manifest(data_dir / FILE_NAME) as manifest:
        for partition, number in enumerate(find_topic(manifest, topic).partition_numbers):
            start = manifest.log_start(number)
            segments = manifest.segments(number, start)
            if segments and segments[0].base_offset < start:
                start = segments.pop(0).end_offset
            found.starts[partition] = start
            found.counts[partition] = sum(each.record_count for each in segments)
    return found


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(prog="smq spark audit", description=__doc__)
    parser.add_argument("topic")
    add_places(parser)
    given = parser.parse_args()
    with refusals(), start_session(f"audit of {given.topic}") as spark:
        wanted = expected(given.data_dir, given.topic)
        records = read_topic(
            spark, given.topic, **places_in(given), starting=wanted.starts, verify=True
        )
        is_wrong, missing = False, dict(wanted.counts)
        for row in transform(records).collect():
            missing[row.partition] -= row.records
            is_wrong |= row.duplicates > 0
            sys.stdout.write(json.dumps(row.asDict(), default=str) + "\n")
    for partition, count in missing.items():
        if count:
            sys.stdout.write(json.dumps({"partition": partition, "missing": count}) + "\n")
    if is_wrong or any(missing.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
