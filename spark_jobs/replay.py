"""Records of a topic, or the rows of a lake table, sent to a topic again: each once.

    smq spark replay orders --from 2013-01-01 --until 2013-02-01 --to orders-again
        --data-dir DIR --state DIR [--rate 5000]
    smq spark replay --table TABLE --key user --to orders-again --data-dir DIR --state DIR

Key, value, headers and timestamp stay as they were; a record whose time Spark lacks (outside the
years 1 to 9999) ends the replay with its offset: `smq copy` takes any. The rows of a table without
a column `value` become JSON objects. `--state` is a directory that says how far the replay is: run
the same command again after a kill, and it goes on there; after the end, it sends what has come
since.
"""

import argparse
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession, functions as f
from pyspark.sql.streaming.query import StreamingQuery

from smq.tables.plan import Unreadable
from spark_jobs.progress import watch
from spark_jobs.session import refusals, start_session

BATCH_SECONDS = 10  # How much a batch sends at the given rate; a stop may take this long.
BATCH_RECORDS_MAX = 1_000_000
SENT_AS_IT_IS = {
    "headers": "array<struct<key:string,value:binary>>",
    "timestamp": "timestamp",
}
_NO_TIME = " has a time outside the years 1 to 9999, which Spark lacks; `smq copy` keeps it"


def transform(
    rows: DataFrame,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    key: str | None = None,
    keeps_partitions: bool = False,
) -> DataFrame:
    """What the sink gets: value, and key, headers, timestamp, partition as far as there are any.

    `since` and `until` (exclusive) bound the column `timestamp`. `key` names the column of a table
    that becomes the key. Raises Unreadable for a column that is not there.
    """
    kinds = {field.name: field.dataType.simpleString() for field in rows.schema.fields}
    bounds = {"timestamp": since or until, key: key, "partition": keeps_partitions}
    for name, is_wanted in bounds.items():
        if is_wanted and name not in kinds:
            raise Unreadable(f"there is no column {name}; the columns are {', '.join(kinds)}")
    if since is not None:
        rows = rows.where(f.col("timestamp") >= f.lit(since))
    if until is not None:
        rows = rows.where(f.col("timestamp") < f.lit(until))
    is_whole = kinds.get("value") in {"binary", "string"}
    value: Column = f.col("value") if is_whole else f.to_json(f.struct("*"))
    columns = [value.cast("binary").alias("value")]
    if key is not None:
        columns.append(f.col(key).cast("string").cast("binary").alias("key"))
    elif kinds.get("key") in {"binary", "string"}:
        columns.append(f.col("key").cast("binary"))
    columns += [f.col(name) for name, kind in SENT_AS_IT_IS.items() if kinds.get(name) == kind]
    if keeps_partitions:
        columns.append(f.col("partition").cast("int"))
    return rows.select(*columns)


def source(spark: SparkSession, given: argparse.Namespace) -> DataFrame:
    """The stream to replay."""
    if given.table is not None:
        rows = spark.readStream.schema(spark.read.parquet(str(given.table)).schema)
        return rows.option("maxFilesPerTrigger", 1).parquet(str(given.table))
    rows = spark.readStream.format("smq").option("subscribe", given.topic)
    rows = rows.option("dataDir", str(given.data_dir)).option("includeHeaders", "true")
    if given.filer_root is not None:
        rows = rows.option("filerRoot", given.filer_root)
    if given.since is None:
        rows = rows.option("startingOffsets", "earliest")
    else:
        rows = rows.option("startingTimestamp", str(int(given.since.timestamp() * 1000)))
        rows = rows.option("startingOffsetsByTimestampStrategy", "latest")
    most = BATCH_RECORDS_MAX
    if given.rate is not None:
        most = min(most, given.rate * BATCH_SECONDS)
    return rows.option("maxOffsetsPerTrigger", most).load().withColumn("timestamp", _known_time())


def _known_time() -> Column:
    """The timestamp of a topic's record; null, the sink would make it the time of sending."""
    where = f.concat_ws("-", "topic", "partition")
    fault = f.concat(where, f.lit(": the record at offset "), "offset", f.lit(_NO_TIME))
    return f.coalesce("timestamp", f.raise_error(fault).cast("timestamp"))


def start(spark: SparkSession, given: argparse.Namespace) -> StreamingQuery:
    """Start the replay. Raises Unreadable."""
    rows = transform(
        source(spark, given),
        since=given.since,
        until=given.until,
        key=given.key,
        keeps_partitions=given.keep_partitions,
    )
    writer = rows.writeStream.format("smq").option("dataDir", str(given.data_dir))
    writer = writer.option("topic", given.to).option("checkpointLocation", str(given.state))
    if given.rate is not None:
        writer = writer.option("maxRecordsPerSecond", given.rate)
    return writer.trigger(availableNow=True).start()


def _moment(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _rate(text: str) -> int:
    if int(text) < 1:
        raise ValueError
    return int(text)


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(
        prog="smq spark replay", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("topic", nargs="?", help="the topic to replay, or --table")
    parser.add_argument("--table", type=Path, help="a directory of Parquet files")
    parser.add_argument("--to", required=True, metavar="TOPIC", help="a topic, which must exist")
    parser.add_argument("--data-dir", type=Path, required=True, help="the broker's data directory")
    parser.add_argument("--filer-root", help="the broker's setting filer.root, if it is elsewhere")
    parser.add_argument(
        "--state", type=Path, required=True, help="a directory for the state of this replay"
    )
    parser.add_argument(
        "--from",
        dest="since",
        type=_moment,
        help="the start time, ISO 8601, UTC unless it names a zone",
    )
    parser.add_argument("--until", type=_moment, help="the end time, exclusive")
    parser.add_argument("--rate", type=_rate, help="records a second at most")
    parser.add_argument("--key", metavar="COLUMN", help="the table's column that becomes the key")
    parser.add_argument(
        "--keep-partitions", action="store_true", help="send each record to the partition it had"
    )
    given = parser.parse_args()
    if (given.topic is None) == (given.table is None):
        parser.error("name a topic or --table, one of them")
    if given.topic == given.to:
        parser.error("a topic cannot be replayed to itself; name another one with --to")
    with refusals(), start_session(f"replay to {given.to}") as spark:
        watch(start(spark, given))


if __name__ == "__main__":
    main()
