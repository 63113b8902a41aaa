"""The demo's queries in SQL: over the sealed files, and over the source for comparison.

Delays are whole minutes and all counts and sums are integers, so two engines must agree to the last
digit. A flight is rainy if it rains at the airport in the hour of departure.
"""

from pathlib import Path
from typing import Any

import duckdb

COLUMNS = (
    "carrier",
    "name",
    "month",
    "flights",
    "delayed",
    "delay_minutes",
    "rainy",
    "rainy_delay_minutes",
)
LATE_MINUTES = 15

ON_SEALED = """
    SELECT decode(_value) ->> 'carrier' AS carrier, count(*) AS flights,
           round(avg((decode(_value) ->> 'dep_delay')::INT), 1) AS mean_delay
    FROM read_parquet(?) GROUP BY 1 ORDER BY 3 DESC LIMIT 3
"""

LATE_ON_SEALED = f"""
    SELECT count(*), count(*) FILTER ((decode(_value) ->> 'dep_delay')::INT > {LATE_MINUTES})
    FROM read_parquet(?) WHERE _offset >= ? AND _offset < ?
"""  # noqa: S608  (a number of ours)

ON_SOURCE = f"""
    WITH flights AS (SELECT * FROM read_csv(?, nullstr = 'NA')),
         weather AS (SELECT origin, time_hour, max(precip) > 0 AS rain
                     FROM read_csv(?, nullstr = 'NA') GROUP BY ALL)
    SELECT carrier, name, month, count(*) AS flights,
           count(*) FILTER (dep_delay > {LATE_MINUTES}) AS delayed,
           coalesce(sum(dep_delay), 0) AS delay_minutes,
           count(*) FILTER (rain) AS rainy,
           coalesce(sum(dep_delay) FILTER (rain), 0) AS rainy_delay_minutes
    FROM flights JOIN read_csv(?) AS airlines USING (carrier)
    LEFT JOIN weather USING (origin, time_hour)
    GROUP BY ALL ORDER BY carrier, month
"""  # noqa: S608  (a number of ours)


def latest_airlines(files: list[str]) -> list[tuple[Any, ...]]:
    """One line of SQL over the sealed files: the three airlines with the longest mean delay."""
    with duckdb.connect() as database:
        return database.execute(ON_SEALED, [files]).fetchall()


def late_between(files: list[str], first_offset: int, end_offset: int) -> tuple[int, int]:
    """How many flights lie between two offsets of a partition, and how many of them were late."""
    with duckdb.connect() as database:
        (counts,) = database.execute(LATE_ON_SEALED, [files, first_offset, end_offset]).fetchall()
    return counts[0], counts[1]


def delays_of_source(data: Path) -> list[list[Any]]:
    """The expected result of the Spark job, computed by DuckDB from the CSV files."""
    files = [str(data / name) for name in ("flights.csv", "weather.csv", "airlines.csv")]
    with duckdb.connect() as database:
        return [[*row] for row in database.execute(ON_SOURCE, files).fetchall()]
