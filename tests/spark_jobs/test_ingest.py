"""A topic becomes a table, run by run."""

from datetime import date
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from smq.testing.smq_broker import SmqBroker
from spark_jobs import ingest
from tests.spark_jobs.conftest import RunJob

pytestmark = pytest.mark.spark
DAY_MS = 86_400_000


def test_each_run_adds_what_is_new(
    spark: SparkSession, smq_broker: SmqBroker, tmp_path: Path, run_job: RunJob
) -> None:
    table = tmp_path / "table"
    with smq_broker.connect() as client:
        client.create_topic("orders", 2)
    for first in (0, 10):
        with smq_broker.connect() as client, client.producer() as producer:
            for each in range(first, first + 10):
                producer.send("orders", b"%d" % each, timestamp_ms=first // 10 * DAY_MS + each)
        run_job(ingest, "orders", "--data-dir", smq_broker.data_dir, "--output", table)
    rows = spark.read.parquet(str(table)).collect()
    assert sorted(int(row.value) for row in rows) == list(range(20))
    assert {row.date for row in rows} == {date(1970, 1, 1), date(1970, 1, 2)}
    assert {path.name for path in table.glob("date=*")} == {"date=1970-01-01", "date=1970-01-02"}
