"""The demo's join on rows that can be counted by hand; the demo itself compares it with DuckDB."""

import json

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.flight_delays import AIRLINE, FLIGHT, WEATHER, delays, values

pytestmark = pytest.mark.spark


def of(spark: SparkSession, schema: str, *rows: dict[str, object]) -> DataFrame:
    records = [(json.dumps(row).encode(),) for row in rows]
    return values(spark.createDataFrame(records, "value binary"), schema)


def test_delays_are_counted_by_carrier_and_month_and_rain_by_place_and_hour(
    spark: SparkSession,
) -> None:
    flight = {"carrier": "UA", "month": 1, "origin": "EWR", "time_hour": "h1", "dep_delay": 16}
    flights = of(
        spark,
        FLIGHT,
        flight,
        flight | {"dep_delay": 15, "time_hour": "h2"},
        flight | {"dep_delay": None, "origin": "JFK"},
        flight | {"month": 2, "dep_delay": -3, "time_hour": "nobody looked"},
    )
    hour = {"origin": "EWR", "time_hour": "h1", "precip": 0.0}
    weather = of(
        spark,
        WEATHER,
        hour,
        hour | {"precip": 0.2},  # The hour that summer time gave back is reported twice.
        hour | {"time_hour": "h2"},
        hour | {"origin": "JFK", "precip": 1.5},
    )
    airlines = of(spark, AIRLINE, {"carrier": "UA", "name": "United"})
    assert [tuple(row) for row in delays(flights, weather, airlines).collect()] == [
        ("UA", "United", 1, 3, 1, 31, 2, 16),
        ("UA", "United", 2, 1, 0, -3, 0, 0),
    ]
