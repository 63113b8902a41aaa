"""`format("smq")`, as Spark finds it."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs import register
from tests.sealer.sealed import batch
from tests.spark_jobs.conftest import SealTopic
from tests.spark_jobs.source.test_reading import load

pytestmark = pytest.mark.spark


def test_spark_finds_the_format_by_itself_and_by_a_call(
    spark: SparkSession, seal_topic: SealTopic, tmp_path: Path
) -> None:
    seal_topic([batch(0, 3)])
    rows = load(spark, dataDir=tmp_path, tail="sealed")
    assert rows.columns == [
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType",
    ]  # fmt: skip
    assert sorted(row.value for row in rows.collect()) == [b"value 0", b"value 1", b"value 2"]
    register(spark)
    assert load(spark, dataDir=tmp_path, tail="sealed").count() == 3
