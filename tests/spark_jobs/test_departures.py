"""Flights by carrier in a stream, and how old they were."""

import json
from datetime import UTC, datetime

import pytest
from pyspark.sql import SparkSession, functions as f

from spark_jobs.departures import DepartureCounts, transform
from tests.spark_jobs.conftest import frame

pytestmark = pytest.mark.spark


def test_batches_add_up(spark: SparkSession) -> None:
    values = [json.dumps({"carrier": each, "flight": 1}).encode() for each in ("UA", "B6", "UA")]
    records = frame(spark, [(offset, None, value) for offset, value in enumerate(values)])
    records = records.withColumn("timestamp", f.lit(datetime.now(UTC)))
    found = {row["carrier"]: row["flights"] for row in transform(records).collect()}
    assert found == {"UA": 2, "B6": 1}
    seen = DepartureCounts(until=6)
    seen.take(records, 0)
    assert not seen.is_over.is_set()
    seen.take(records, 1)
    assert seen.is_over.is_set()
    assert seen.flights == {"UA": 4, "B6": 2}
    assert 0 <= seen.age_ms_max < 600_000
