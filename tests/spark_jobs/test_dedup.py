"""Records without repetitions."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from smq.testing.smq_broker import SmqBroker
from spark_jobs import dedup
from spark_jobs.dedup import transform
from tests.sealer.sealed import batch
from tests.spark_jobs.conftest import RunJob, SealTopic, frame

pytestmark = pytest.mark.spark


def test_the_first_of_equal_records_is_kept(spark: SparkSession) -> None:
    given = [
        (b"a", b"1"), (b"a", b"1"), (b"a", b"2"), (None, b"1"), (None, b"1"), (b"", b"1"),
        (b"a", None), (b"a", None), (b"a", b""), (b"a|", b""), (b"null", b"1"),
    ]  # fmt: skip
    records = frame(spark, [(n, key, value) for n, (key, value) in enumerate(given)])
    assert sorted(row.offset for row in transform(records).collect()) == [0, 2, 3, 5, 6, 8, 9, 10]
    assert sorted(row.offset for row in transform(records, ["value"]).collect()) == [0, 2, 6, 8]


def test_the_program_writes_a_table(
    spark: SparkSession, seal_topic: SealTopic, tmp_path: Path, run_job: RunJob
) -> None:
    seal_topic([batch(0, 3), batch(3, 2)])
    table = tmp_path / "table"
    run_job(
        dedup,
        "orders",
        "--tail",
        "sealed",
        "--data-dir",
        tmp_path,
        "--output",
        table,
        "--by",
        "key",
    )
    assert [row.offset for row in spark.read.parquet(str(table)).collect()] == [0]


def test_equal_records_of_several_partitions_are_one_and_later_runs_add_new_ones(
    spark: SparkSession, smq_broker: SmqBroker, tmp_path: Path, run_job: RunJob
) -> None:
    place = ("--data-dir", smq_broker.data_dir, "--output", tmp_path / "table")
    with smq_broker.connect() as client:
        client.create_topic("orders", 2)
        for run in (1, 2):
            with client.producer() as producer:
                for each in range(20 * run):
                    value, partition = b"%d" % (each // 2), each % 2
                    producer.send("orders", value, partition=partition, timestamp_ms=1000 + each)
            said = run_job(dedup, "orders", *place)
            rows = spark.read.parquet(str(tmp_path / "table")).collect()
            assert sorted(int(row.value) for row in rows) == list(range(10 * run))
            assert {row.partition for row in rows} == {0}, "the first by time"
            lines = [json.loads(line) for line in said.splitlines()]
            assert lines == [
                {"partition": 0, "rows": 10 * run}, {"partition": 1, "rows": 0},
            ]  # fmt: skip
    assert run_job(dedup, "orders", *place) == "", "there is nothing new"
