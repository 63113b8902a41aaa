"""Records without repetitions."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

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
    run_job(dedup, "orders", "--data-dir", tmp_path, "--output", table, "--by", "key")
    assert [row.offset for row in spark.read.parquet(str(table)).collect()] == [0]
