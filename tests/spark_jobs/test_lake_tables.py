"""Spark and readers from outside agree on lake tables: merged, expired and compacted ones."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

from smq.app.process.clock import wall_ms
from smq.client.client import Client
from smq.client.kafka.cluster import Cluster
from smq.client.kafka.topic_changes import alter_topic
from smq.model.segments import Segment
from smq.sealer.lake.state import path_of, read_state
from smq.store.manifest import open_manifest
from smq.testing.smq_broker import SmqBroker
from spark_jobs.read import read_topic
from tests.spark_jobs.conftest import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]
OFTEN = {"seal.ms": "1", "log.retention.check.interval.ms": "300", "shards": "1"}
ROUNDS, KEYS = 6, 5
HOUR_MS = 3_600_000
WAIT_S = 240.0
COLUMNS = ["partition", "_offset", "_key", "_value"]
Row = tuple[int, int, bytes, bytes]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SmqBroker]:
    with SmqBroker(tmp_path, OFTEN) as broker:
        yield broker


def segments(broker: SmqBroker, topic: str) -> list[Segment]:
    with open_manifest(broker.data_dir / "store.sqlite") as manifest:
        (found,) = [each for each in manifest.topics() if each.name == topic]
        numbers = found.partition_numbers
        return [s for n in numbers for s in manifest.segments(n, manifest.log_start(n))]


def send(broker: SmqBroker, client: Client, topic: str, time_ms: int) -> list[Row]:
    """Rounds of the same keys, a segment for each round and partition; the rows of the last."""
    rows: list[Row] = []
    for number in range(ROUNDS):
        with client.producer() as producer:
            futures = [
                (partition, b"k%d" % key, producer.send(
                    topic, b"%d" % number, key=b"k%d" % key, partition=partition,
                    timestamp_ms=time_ms,
                ))
                for partition in (0, 1) for key in range(KEYS)
            ]  # fmt: skip
            rows = [
                (partition, future.result(60).offset, key, b"%d" % number)
                for partition, key, future in futures
            ]
        last = {partition: offset for partition, offset, _, _ in rows}

        def is_sealed(last: dict[int, int] = last) -> bool:
            ends = [each.end_offset for each in segments(broker, topic)]
            return all(last[partition] < max(ends, default=0) for partition in last)

        wait_for(is_sealed, WAIT_S)
    return rows


def directory_of(broker: SmqBroker, topic: str) -> str:
    return str(broker.data_dir / "filer" / "topics" / "kafka" / topic)


def iceberg(broker: SmqBroker, topic: str) -> Any:
    uri = f"sqlite:///{broker.data_dir}/iceberg.sqlite"
    return load_catalog("smq", type="sql", uri=uri).load_table(("kafka", topic))


def readers(spark: SparkSession, broker: SmqBroker, kind: str, topic: str) -> dict[str, pa.Table]:
    """The table as each reader has it."""
    if kind == "iceberg":
        table = iceberg(broker, topic)
        files = [each.file.file_path for each in table.scan().plan_files()]
        own = table.scan().to_arrow()
        outside = pl.scan_iceberg(table, reader_override="pyiceberg").collect()
    else:
        path = directory_of(broker, topic)
        table = DeltaTable(path)
        files, own, outside = table.file_uris(), table.to_pyarrow_table(), pl.read_delta(path)
    base = directory_of(broker, topic)
    columns = ", ".join(COLUMNS)
    hive = duckdb.read_parquet(files, hive_partitioning=True).project(columns)
    whole = read_topic(spark, topic, data_dir=broker.data_dir)
    renamed = whole.selectExpr("partition", "offset _offset", "key _key", "value _value")
    return {
        "its own library": own,
        "Polars": outside.to_arrow(),
        "DuckDB": hive.to_arrow_table(),
        "Spark, the table's files": spark.read.option("basePath", base).parquet(*files).toArrow(),
        "Spark, read_topic": renamed.toArrow(),
    }


def rows_of(table: pa.Table) -> list[Row]:
    return sorted(zip(*(table[name].to_pylist() for name in COLUMNS), strict=True))


def is_published(broker: SmqBroker, kind: str, topic: str) -> bool:
    """The table has the files of the manifest."""
    state = read_state(path_of(broker.data_dir, "kafka", topic, kind))
    if state is None or state.error:
        return False
    if kind == "iceberg":
        files = [each.file.file_path for each in iceberg(broker, topic).scan().plan_files()]
    else:
        files = DeltaTable(directory_of(broker, topic)).file_uris()
    names = {Path(each).name for each in files}
    records = {Path(each.path).name: each.record_count for each in segments(broker, topic)}
    with_records = {name for name, count in records.items() if count}
    return with_records <= names <= records.keys()  # Iceberg's plan leaves out empty files.


@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_all_readers_have_the_same_rows(spark: SparkSession, broker: SmqBroker, kind: str) -> None:
    topics = {
        "merged": {"retention.ms": "-1"},
        "expired": {"retention.ms": "-1"},
        "state": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"},
    }
    now_ms, expected = wall_ms(), dict[str, list[Row]]()
    with broker.connect() as client:
        for topic, configs in topics.items():
            client.create_topic(topic, 2, configs | {"smq.table": kind})
        last = send(broker, client, "merged", now_ms)
        expected["merged"] = [
            (partition, number * KEYS + key, b"k%d" % key, b"%d" % number)
            for partition in (0, 1) for number in range(ROUNDS) for key in range(KEYS)
        ]  # fmt: skip
        assert {*last} < {*expected["merged"]}
        send(broker, client, "expired", now_ms - HOUR_MS)
        with Cluster(broker.bootstrap) as cluster:
            alter_topic(cluster, "expired", {"retention.ms": str(HOUR_MS // 2)}, [])
        wait_for(lambda: not segments(broker, "expired"), WAIT_S)
        send(broker, client, "expired", now_ms)
        expected["expired"] = [
            (partition, (ROUNDS + number) * KEYS + key, key_, value)
            for partition, offset, key_, value in expected["merged"]
            for number, key in [divmod(offset, KEYS)]
        ]
        expected["state"] = send(broker, client, "state", now_ms)

    def done(topic: str) -> Callable[[], bool]:
        files_max = ROUNDS if topic == "merged" else 2 * ROUNDS  # Of twice as many.
        wanted = len(expected[topic])
        return lambda: (
            len(segments(broker, topic)) <= files_max
            and sum(each.record_count for each in segments(broker, topic)) == wanted
            and is_published(broker, kind, topic)
        )

    for topic in topics:
        wait_for(done(topic), WAIT_S)
        wanted = sorted(expected[topic])
        for name, table in readers(spark, broker, kind, topic).items():
            assert rows_of(table) == wanted, f"{name} of {topic}"
