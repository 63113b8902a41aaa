"""The last record of each key."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from smq.testing.smq_broker import SmqBroker
from spark_jobs import compact_keys
from spark_jobs.compact_keys import transform
from tests.sealer.sealed import batch
from tests.spark_jobs.conftest import RunJob, SealTopic, frame

pytestmark = pytest.mark.spark


def test_a_key_keeps_its_last_record(spark: SparkSession) -> None:
    given: list[tuple[int, bytes | None, bytes | None]] = [
        (0, b"a", b"1"), (1, b"b", b"2"), (2, b"a", b"3"), (3, None, b"4"), (4, b"b", None),
        (5, None, b"6"), (6, b"c", b"7"),
    ]  # fmt: skip
    records = frame(spark, given)
    assert sorted(row.offset for row in transform(records).collect()) == [2, 3, 4, 5, 6]
    assert transform(records).columns == records.columns
    kept = transform(records, drop_deleted=True)
    assert sorted(row.offset for row in kept.collect()) == [2, 3, 5, 6]


def test_the_program_writes_a_table(
    spark: SparkSession, seal_topic: SealTopic, tmp_path: Path, run_job: RunJob
) -> None:
    seal_topic([batch(0, 3), batch(3, 2)])  # All with the same key.
    run_job(
        compact_keys,
        "orders",
        "--tail",
        "sealed",
        "--data-dir",
        tmp_path,
        "--output",
        tmp_path / "table",
    )
    found = spark.read.parquet(str(tmp_path / "table"))
    assert sorted(row.offset for row in found.collect()) == [4]


def test_a_later_run_has_what_came_since_sealed_or_not(
    spark: SparkSession, smq_broker: SmqBroker, tmp_path: Path, run_job: RunJob
) -> None:
    place = ("--data-dir", smq_broker.data_dir, "--output", tmp_path / "table")
    with smq_broker.connect() as client:
        client.create_topic("orders", 2)
        for last in (3, 5):
            with client.producer() as producer:
                for key, partition in (("a", 0), ("b", 1)):
                    producer.send("orders", b"%d" % last, key=key.encode(), partition=partition)
            run_job(compact_keys, "orders", *place)
            rows = spark.read.parquet(str(tmp_path / "table")).collect()
            found = sorted((bytes(row.key), row.partition, int(row.value)) for row in rows)
            assert found == [(b"a", 0, last), (b"b", 1, last)]
    assert run_job(compact_keys, "orders", *place) == "", "there is nothing new"
