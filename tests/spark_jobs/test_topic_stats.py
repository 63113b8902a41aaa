"""The statistics of a topic, as rows and as a program."""

import json
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs import topic_stats
from spark_jobs.read import read_topic
from spark_jobs.topic_stats import statistics
from tests.sealer.sealed import batch
from tests.spark_jobs.conftest import SealTopic

pytestmark = pytest.mark.spark
HOUR_MS = 3_600_000


def test_a_partition_has_a_row(spark: SparkSession, seal_topic: SealTopic, tmp_path: Path) -> None:
    seal_topic([batch(0, 3), batch(5, 2)])
    [row] = statistics(read_topic(spark, "orders", data_dir=tmp_path), "partition").collect()
    assert (row.partition, row.records, row.first_offset, row.last_offset) == (0, 5, 0, 6)
    assert (row.key_bytes, row.value_bytes, row.distinct_keys) == (15, 35, 1)
    assert (row.null_keys, row.null_values) == (0, 0)


def test_an_hour_has_a_row(spark: SparkSession, seal_topic: SealTopic, tmp_path: Path) -> None:
    seal_topic([batch(0, 3), batch(3, 2, time=HOUR_MS)])
    rows = statistics(read_topic(spark, "orders", data_dir=tmp_path), "hour").collect()
    assert [row.records for row in rows] == [3, 2]


def test_the_program_prints_a_line_for_each(
    spark: SparkSession,
    seal_topic: SealTopic,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    seal_topic([batch(0, 3)])
    # The program's session is the one there is, and outlives it here.
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)
    monkeypatch.setattr(sys, "argv", ["topic_stats", "orders", "--data-dir", str(tmp_path)])
    topic_stats.main()
    [line] = capsys.readouterr().out.splitlines()
    assert json.loads(line)["records"] == 3
    output = tmp_path / "out"
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--by", "hour", "--output", str(output)])
    topic_stats.main()
    assert spark.read.parquet(str(output)).count() == 1
