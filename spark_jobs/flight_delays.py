"""Delays by carrier and month, with the weather: the demo's job, and an example of one.

    smq spark flight_delays --data-dir DIR --output FILE

Joins three topics: flights with the airlines' names, and with the weather at the airport in the
hour of departure. Minutes are integers, so every engine gives exactly the same result.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession, functions as f

from spark_jobs.places import TopicArguments, add_places, places_in
from spark_jobs.read import read_topic
from spark_jobs.session import refusals, start_session

LATE_MINUTES = 15
# The result has 185 rows: Spark's default of 200 partitions is mostly overhead.
SHUFFLE_PARTITIONS = 2

FLIGHT = "carrier STRING, month INT, origin STRING, time_hour STRING, dep_delay INT"
WEATHER = "origin STRING, time_hour STRING, precip DOUBLE"
AIRLINE = "carrier STRING, name STRING"


def values(records: DataFrame, schema: str) -> DataFrame:
    """Parse the JSON objects in the records' values to columns."""
    return records.select(f.from_json(f.col("value").cast("string"), schema).alias("v")).select(
        "v.*"
    )


def delays(flights: DataFrame, weather: DataFrame, airlines: DataFrame) -> DataFrame:
    """A row per carrier and month; the weather report of its hour makes a flight rainy."""
    rain = weather.groupBy("origin", "time_hour").agg((f.max("precip") > 0).alias("rain"))
    late = f.col("dep_delay") > LATE_MINUTES
    delay_of_rainy = f.when(f.col("rain"), f.col("dep_delay"))
    return (
        flights.join(f.broadcast(airlines), "carrier")
        .join(f.broadcast(rain), ["origin", "time_hour"], "left")
        .groupBy("carrier", "name", "month")
        .agg(
            f.count("*").alias("flights"),
            f.count_if(late).alias("delayed"),
            f.coalesce(f.sum("dep_delay"), f.lit(0)).alias("delay_minutes"),
            f.count_if("rain").alias("rainy"),
            f.coalesce(f.sum(delay_of_rainy), f.lit(0)).alias("rainy_delay_minutes"),
        )
        .orderBy("carrier", "month")
    )


def run(spark: SparkSession, places: TopicArguments) -> list[list[Any]]:
    """The rows, read from the sealed segments of a broker."""
    flights, weather, airlines = (
        values(read_topic(spark, topic, **places), schema)
        for topic, schema in (("flights", FLIGHT), ("weather", WEATHER), ("airlines", AIRLINE))
    )
    return [[*row] for row in delays(flights, weather, airlines).collect()]


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(prog="smq spark flight_delays", description=__doc__)
    add_places(parser)
    parser.add_argument("--output", type=Path, required=True, help="a JSON file for the rows")
    given = parser.parse_args()
    settings = {"spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS)}
    with refusals(), start_session("flight delays", **settings) as spark:
        rows = run(spark, places_in(given))
    given.output.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
