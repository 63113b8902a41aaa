"""Every way to read a topic agrees with DuckDB over the raw input: `python -m bench.agreement`.

    python -m bench.agreement --records 10000000     synthetic records
    python -m bench.agreement --flights              the flights of the demo

Writes the input to a Parquet file and to a topic. Then each reader and each job makes the same
summary (rows, ids, distinct ids and cents of each shop), and DuckDB makes it of the file. Ends with
code 1 if one differs. It needs the extra `test`; nothing is timed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyspark.sql import DataFrame, SparkSession, functions as f

from bench.spark.inputs import BATCH_RECORDS, wait_sealed
from examples.demo import dataset
from smq.filer.location import Location
from smq.sql.session import QueryBounds, TopicSource, running
from smq.testing.smq_broker import SmqBroker, SmqCommand
from spark_jobs import read_topic, start_session, stream_topic
from spark_jobs.session import java_home

Summary = list[tuple[int, ...]]

PARTITIONS, KEYS, SHOPS = 4, 50_000, 7
REPEATED_EVERY = 50  # One in this many records repeats the one before.
BEGIN_MS, DAY_MS, DAYS = 1_356_998_400_000, 86_400_000, 3  # From 2013-01-01 on.
TYPES = {"id": "int64", "shop": "int32", "cents": "int64"}
DDL = "id BIGINT, shop INT, cents BIGINT"
CONFIGS = {
    "retention.ms": "-1",
    "smq.seal.ms": "2000",
    "smq.schema": json.dumps({"fields": [{"name": n, "type": k} for n, k in TYPES.items()]}),
}
PUBLISHED_S_MAX, POLL_S = 600.0, 0.5
GiB = 1 << 30
SUMMARY = (
    "SELECT shop::INT, count(*), sum(id)::BIGINT, count(DISTINCT id), sum(cents)::BIGINT "
    "FROM ({}) GROUP BY 1 ORDER BY 1"
)
PARSED = (
    "SELECT (value->>'id')::BIGINT AS id, (value->>'shop')::INT AS shop, "
    "(value->>'cents')::BIGINT AS cents FROM orders"
)


def synthetic(count: int) -> Iterator[pa.RecordBatch]:
    """Records with their columns beside key, value and timestamp; some repeat the one before."""
    for first in range(0, count, BATCH_RECORDS):
        number = np.arange(first, min(count, first + BATCH_RECORDS))
        repeats = number % REPEATED_EVERY == REPEATED_EVERY - 1
        ids = np.where(repeats, number - 1, number)
        shops, cents = ids % SHOPS, ids * 7919 % 100_003
        rows = zip(ids.tolist(), shops.tolist(), cents.tolist(), strict=True)
        values = [b'{"id": %d, "shop": %d, "cents": %d}' % row for row in rows]
        keys = [b"%08d" % each for each in (ids % KEYS).tolist()]
        yield _batch(number, [ids, shops, cents], keys, values, DAYS * DAY_MS / count)


def flights(directory: Path) -> Iterator[pa.RecordBatch]:
    """The flights of the demo: the shop is the month, the cents are the distance."""
    rows = list(dataset.rows(dataset.fetch(directory) / "flights.csv"))
    for first in range(0, len(rows), BATCH_RECORDS):
        some = rows[first : first + BATCH_RECORDS]
        number = np.arange(first, first + len(some))
        shops = np.array([row["month"] for row in some])
        cents = np.array([row["distance"] for row in some])
        facts = zip(number.tolist(), shops.tolist(), cents.tolist(), some, strict=True)
        values = [
            json.dumps({**row, "id": id_, "shop": shop, "cents": int(cent)}).encode()
            for id_, shop, cent, row in facts
        ]
        keys = [str(row["carrier"]).encode() for row in some]
        yield _batch(number, [number, shops, cents], keys, values, DAYS * DAY_MS / len(rows))


def _batch(
    number: "np.ndarray[Any, Any]",
    columns: "Sequence[np.ndarray[Any, Any]]",
    keys: list[bytes],
    values: list[bytes],
    step_ms: float,
) -> pa.RecordBatch:
    typed = {
        name: pa.array(each.astype(np.int64)) for name, each in zip(TYPES, columns, strict=True)
    }
    stamps = pa.array(BEGIN_MS + (number * step_ms).astype(np.int64))
    numbers = pa.array(number.astype(np.int64))
    return pa.record_batch(
        {
            "number": numbers,
            **typed,
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "timestamp": stamps,
        }
    )


class Run(NamedTuple):
    """The input, the broker that has it, and a session."""

    raw: Path
    records: int
    broker: SmqBroker
    spark: SparkSession
    directory: Path

    def expected(self, source: str) -> Summary:
        """DuckDB's summary of the raw input."""
        with duckdb.connect() as database:
            database.execute(f"CREATE VIEW raw AS FROM read_parquet('{self.raw}')")
            return database.execute(SUMMARY.format(source)).fetchall()

    def job(self, name: str, *arguments: object) -> None:
        """Run a job as users do."""
        place = ["--data-dir", str(self.broker.data_dir)]
        command = [sys.executable, "-m", f"spark_jobs.{name}", *map(str, arguments), *place]
        environment = {**os.environ, "JAVA_HOME": str(java_home())}
        subprocess.run(command, check=True, stdout=sys.stderr, env=environment)

    def table(self, name: str) -> DataFrame:
        """A table that a job wrote."""
        return self.spark.read.parquet(str(self.directory / name))

    def topic(self, name: str, *, is_typed: bool = False) -> DataFrame:
        """A topic through `read_topic`."""
        place = self.broker.data_dir
        return read_topic(self.spark, name, data_dir=place, tail="live", typed=is_typed)

    def source(self, **options: str) -> Any:  # noqa: ANN401  (Spark's)
        """The stream of the topic."""
        reader = self.spark.readStream.format("smq").option("dataDir", str(self.broker.data_dir))
        reader = reader.options(subscribe="orders", startingOffsets="earliest", **options)
        return reader.option("maxOffsetsPerTrigger", max(1, self.records // 3)).load()


def of_columns(rows: DataFrame) -> Summary:
    """Spark's summary of typed columns."""
    kinds = [f.count("*"), f.sum("id"), f.count_distinct("id"), f.sum("cents")]
    return [tuple(row) for row in rows.groupBy("shop").agg(*kinds).orderBy("shop").collect()]


def of_values(rows: DataFrame) -> Summary:
    """Spark's summary of JSON values."""
    text = f.col("value").cast("string")
    return of_columns(rows.select(f.from_json(text, DDL).alias("v")).select("v.*"))


def of_arrow(rows: Any) -> Summary:  # noqa: ANN401  (whatever DuckDB reads)
    """DuckDB's summary of what another library reads."""
    with duckdb.connect() as database:
        database.register("rows", rows)
        return database.execute(SUMMARY.format("FROM rows")).fetchall()


def by_sql(run: Run) -> Summary:
    """`smq sql`, over values."""
    with run.broker.connect() as client:
        filer = Location(str(run.broker.data_dir / "filer"))
        topics = TopicSource(run.broker.data_dir, filer, client)
        with running(SUMMARY.format(PARSED), topics, QueryBounds(4 * GiB)) as found:
            return [tuple(row.values()) for row in found.read_all().to_pylist()]


def by_format(run: Run) -> Summary:
    """`format("smq")`, as a batch."""
    rows = run.spark.read.format("smq").option("subscribe", "orders")
    return of_values(rows.option("kafka.bootstrap.servers", run.broker.bootstrap).load())


def by_stream(run: Run) -> Summary:
    """`readStream.format("smq")` into a table."""
    writer = run.source(typed="true").writeStream.format("parquet")
    writer = writer.option("path", str(run.directory / "stream"))
    writer = writer.option("checkpointLocation", str(run.directory / "of-stream"))
    writer.trigger(availableNow=True).start().awaitTermination()
    return of_columns(run.table("stream"))


def by_plan(run: Run) -> Summary:
    """`stream_topic` into a table."""
    stream = stream_topic(
        run.spark, "orders", dataDir=run.broker.data_dir, startingOffsets="earliest",
        maxOffsetsPerTrigger=max(1, run.records // 3), typed=True,
    )  # fmt: skip
    table = run.directory / "plan"
    query = stream.foreach_batch(
        lambda rows, batch: rows.write.mode("overwrite").parquet(f"{table}/batch={batch}"),
        checkpoint=run.directory / "of-plan",
        availableNow=True,
    )
    query.awaitTermination()
    return of_columns(run.table("plan"))


def by_sink(run: Run) -> Summary:
    """A stream into another topic, exactly once."""
    writer = run.source().select("key", "value").writeStream.format("smq")
    writer = writer.option("dataDir", str(run.broker.data_dir)).option("topic", "copies")
    writer = writer.option("checkpointLocation", str(run.directory / "of-sink"))
    writer.trigger(availableNow=True).start().awaitTermination()
    return of_values(run.topic("copies"))


def by_replay(run: Run) -> Summary:
    """The job `replay`."""
    run.job("replay", "orders", "--to", "again", "--state", run.directory / "replay")
    return of_values(run.topic("again"))


def by_table(name: str, *arguments: str, is_typed: bool = False) -> Callable[[Run], Summary]:
    """A job that writes a table."""

    def summary(run: Run) -> Summary:
        run.job(name, "orders", *arguments, "--output", run.directory / name)
        return (of_columns if is_typed else of_values)(run.table(name))

    return summary


def by_audit(run: Run) -> Summary:
    """The job `audit`, which ends with code 1 where something is wrong; then the sealed rows."""
    wait_sealed(run.broker, "orders", run.records)
    run.job("audit", "orders")
    return of_columns(read_topic(run.spark, "orders", data_dir=run.broker.data_dir, typed=True))


def _published(count: Callable[[], int], wanted: int) -> None:
    deadline = time.monotonic() + PUBLISHED_S_MAX
    while (found := count()) != wanted:
        if time.monotonic() > deadline:
            raise TimeoutError(f"the lake table has {found} of {wanted} rows")
        time.sleep(POLL_S)


def lake(run: Run) -> Iterator[tuple[str, Summary]]:
    """Readers from outside over the lake tables, and Spark over the files that these name."""
    wait_sealed(run.broker, "copies", run.records)
    uri = f"sqlite:///{run.broker.data_dir}/iceberg.sqlite"
    catalog = load_catalog("smq", type="sql", uri=uri)
    name, columns = ("kafka", "orders"), [*TYPES]
    _published(lambda: catalog.load_table(name).scan().count(), run.records)
    scan = catalog.load_table(name).scan(selected_fields=tuple(columns))
    yield "Iceberg: pyiceberg", of_arrow(scan.to_arrow())
    frame = pl.scan_iceberg(catalog.load_table(name), reader_override="pyiceberg")
    yield "Iceberg: Polars", of_arrow(frame.select(columns).collect().to_arrow())
    files = [each.file.file_path for each in scan.plan_files()]
    yield "Iceberg: DuckDB", of_arrow(duckdb.read_parquet(files).to_arrow_table())
    yield "Iceberg: Spark", of_columns(run.spark.read.parquet(*files))
    path = str(run.broker.data_dir / "filer" / "topics" / "kafka" / "copies")
    _published(lambda: DeltaTable(path).count(), run.records)
    table = DeltaTable(path)
    yield "Delta: deltalake", of_arrow(table.to_pyarrow_dataset())
    yield "Delta: Polars", of_arrow(pl.scan_delta(path).select(columns).collect().to_arrow())
    yield "Delta: DuckDB", of_arrow(duckdb.read_parquet(table.file_uris()).to_arrow_table())
    yield "Delta: Spark", of_columns(run.spark.read.parquet(*table.file_uris()))


ALL, ONCE = "FROM raw", "SELECT DISTINCT ON (key, value) * FROM raw"
LAST = "SELECT * FROM raw QUALIFY number = max(number) OVER (PARTITION BY key)"
DATES = ("--from", "2013-01-01", "--to", "2013-01-03")
# Those that also read what is not sealed come first: some of it is not yet.
WAYS: dict[str, tuple[str, Callable[[Run], Summary]]] = {
    "smq sql": (ALL, by_sql),
    "read_topic": (ALL, lambda run: of_values(run.topic("orders"))),
    "read_topic, typed": (ALL, lambda run: of_columns(run.topic("orders", is_typed=True))),
    'format("smq")': (ALL, by_format),
    'readStream.format("smq")': (ALL, by_stream),
    "stream_topic": (ALL, by_plan),
    'writeStream.format("smq")': (ALL, by_sink),
    "smq spark ingest": (ALL, by_table("ingest")),
    "smq spark backfill": (ALL, by_table("backfill", *DATES)),
    "smq spark decode": (ALL, by_table("decode", "--schema", DDL, is_typed=True)),
    "smq spark replay": (ALL, by_replay),
    "smq spark dedup": (ONCE, by_table("dedup")),
    "smq spark compact_keys": (LAST, by_table("compact_keys")),
    "smq spark audit": (ALL, by_audit),
}


def compare(run: Run) -> list[str]:
    """The ways that differ; says each result."""
    wrong: list[str] = []

    def check(name: str, found: Summary, expected: Summary) -> None:
        is_same = found == expected and bool(expected)
        print(f"{'same     ' if is_same else 'DIFFERENT'} {name}", flush=True)
        if not is_same:
            wrong.append(name)
            print(f"  found    {found}\n  expected {expected}", flush=True)

    for name, (source, way) in WAYS.items():
        check(name, way(run), run.expected(source))
    for name, found in lake(run):
        check(name, found, run.expected(ALL))
    return wrong


def fill(raw: Path, broker: SmqBroker, batches: Iterator[pa.RecordBatch]) -> int:
    """Write the input to the file and to the topic; the number of its records."""
    count, sent = 0, ["key", "value", "timestamp"]
    with broker.connect() as client:
        client.create_topic("orders", PARTITIONS, CONFIGS | {"smq.table": "iceberg"})
        client.create_topic("copies", PARTITIONS, CONFIGS | {"smq.table": "delta"})
        client.create_topic("again", PARTITIONS, CONFIGS)
        first = next(batches)
        with client.producer() as producer, pq.ParquetWriter(raw, first.schema) as writer:
            for batch in (first, *batches):
                writer.write_batch(batch)
                producer.send_batch("orders", batch.select(sent))
                count += batch.num_rows
    return count


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.agreement",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--records", type=int, default=200_000, help="[200000]")
    parser.add_argument("--flights", action="store_true", help="the demo's instead")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="smq-agreement-") as name, ExitStack() as stack:
        directory = Path(name)
        broker = stack.enter_context(SmqCommand(directory / "smq", {"shards": "1"}))
        batches = flights(directory) if given.flights else synthetic(given.records)
        count = fill(directory / "raw.parquet", broker, batches)
        settings = {"spark.driver.memory": "4g", "spark.local.dir": str(directory / "local")}
        spark = stack.enter_context(start_session("agreement", **settings))
        run = Run(directory / "raw.parquet", count, broker, spark, directory / "tables")
        print(f"{count} records", flush=True)
        wrong = compare(run)
    if wrong:
        raise SystemExit(f"these differ from DuckDB over the raw input: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
