"""Rewrites days of a topic in a lake table by date: for a table that starts later, or has wrong
rows.

    smq spark backfill orders --from 2013-01-01 --to 2013-01-31 --data-dir DIR --output TABLE

Each date (UTC) is read from the topic, and replaces the table's partition of that date; other
partitions stay. `_backfill.json` in the table says which dates are done: after a kill the same
command goes on there, and `--again` repeats them. Today's date is written, and is not done. Records
without a timestamp have no date. The table is one of its own: not one that `ingest` writes.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from pyspark.sql import DataFrame, functions as f

from smq.client.clock import SYSTEM_CLOCK
from smq.tables.plan import Unreadable
from spark_jobs.durable import load, save
from spark_jobs.ingest import transform
from spark_jobs.places import add_places, places_in
from spark_jobs.read import read_topic
from spark_jobs.session import refusals, start_session

DONE = "_backfill.json"
FORMAT = 1
LOG_OF_A_STREAM = "_spark_metadata"
DAY = timedelta(days=1)

Transform = Callable[[DataFrame], DataFrame]


class Progress:
    """The completed dates of a table with their row counts, in a file of the table."""

    def __init__(self, table: Path, topic: str) -> None:
        """Raises Unreadable if the table belongs to another topic, or to a stream."""
        self._path, self._topic = table / DONE, topic
        if (table / LOG_OF_A_STREAM).exists():
            raise Unreadable(f"{table} is written by a stream; name a table of its own")
        self.rows: dict[str, int] = {}
        found = load(self._path)
        if found is None:
            return
        try:
            is_ours = found["format"] == FORMAT and found["topic"] == topic
            self.rows = dict(found["rows"])  # type: ignore[call-overload]
        except (ValueError, KeyError, TypeError) as error:
            raise Unreadable(f"{self._path} does not say which dates are done") from error
        if not is_ours:
            raise Unreadable(
                f"{table} has the topic {found['topic']} in format {found['format']}, not {topic}"
            )

    def add(self, day: date, rows: int) -> None:
        """Record that a date is done; durable on return."""
        self.rows[day.isoformat()] = rows
        save(self._path, {"format": FORMAT, "topic": self._topic, "rows": self.rows})


def days(first: date, last: date) -> Iterator[date]:
    """The dates from `first` to `last`, inclusive."""
    while first <= last:
        yield first
        first += DAY


def rows_of(records: DataFrame, day: date) -> DataFrame:
    """The records of a date; Spark skips row groups without any."""
    start = datetime(day.year, day.month, day.day, tzinfo=UTC)
    moment = f.col("timestamp")
    return records.where((moment >= f.lit(start)) & (moment < f.lit(start + DAY)))


def write_day(records: DataFrame, day: date, table: Path, transform: Transform = transform) -> int:
    """Replace a date of the table; returns its row count."""
    rows = transform(rows_of(records, day)).where(f.col("date") == f.lit(day)).drop("date")
    path = table / f"date={day.isoformat()}"
    rows.write.mode("overwrite").parquet(str(path))
    return records.sparkSession.read.schema(rows.schema).parquet(str(path)).count()


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(
        prog="smq spark backfill",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("topic")
    add_places(parser)
    iso = date.fromisoformat
    parser.add_argument("--from", dest="first", type=iso, required=True, help="the first date")
    parser.add_argument("--to", dest="last", type=iso, required=True, help="the last date")
    parser.add_argument("--output", type=Path, required=True, help="the table's directory")
    parser.add_argument("--tail", choices=["live", "sealed"], default="live", help="[live]")
    parser.add_argument("--again", action="store_true", help="replace finished dates too")
    given = parser.parse_args()
    with refusals():
        given.output.mkdir(parents=True, exist_ok=True)
        done = Progress(given.output, given.topic)
        wanted = [
            day
            for day in days(given.first, given.last)
            if given.again or day.isoformat() not in done.rows
        ]
        if not wanted:
            return
        with start_session(f"backfill of {given.topic}") as spark:
            for day in wanted:
                records = read_topic(spark, given.topic, **places_in(given), tail=given.tail)
                rows = write_day(records, day, given.output)
                if day < datetime.fromtimestamp(SYSTEM_CLOCK.wall_ms() / 1000, UTC).date():
                    done.add(day, rows)
                sys.stdout.write(json.dumps({"date": day.isoformat(), "rows": rows}) + "\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
