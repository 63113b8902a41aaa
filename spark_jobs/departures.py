"""Flights as they depart, counted in a stream: the demo's last scene, and an example of a stream.

    smq spark departures --data-dir DIR --until COUNT

Prints "ready" when the stream has read the flights that there were, and a line of JSON once it has
read COUNT: how many of each carrier, and the largest age in milliseconds at which a later record
arrived in the stream.
"""

import argparse
import json
import sys
import tempfile
import threading
from collections import Counter

from pyspark.sql import DataFrame, functions as f

from smq.client.clock import SYSTEM_CLOCK
from spark_jobs.session import refusals, start_session

TOPIC = "departures"
POLL_S = 0.1


def transform(records: DataFrame) -> DataFrame:
    """A row for each carrier: its flights, and the time of the first and of the last, in ms."""
    stamped = records.select("value", f.unix_millis("timestamp").alias("ms"))
    carrier = f.from_json(f.col("value").cast("string"), "carrier STRING")["carrier"]
    return (
        stamped.withColumn("carrier", carrier)
        .groupBy("carrier")
        .agg(f.count("*").alias("flights"), f.min("ms").alias("first"), f.max("ms").alias("last"))
    )


class DepartureCounts:
    """What the stream has received: flights by carrier, and the maximum age of a record in ms."""

    def __init__(self, until: int) -> None:
        self.flights: Counter[str] = Counter()
        self.age_ms_max = 0
        self.is_over = threading.Event()
        self._until = until

    def take(self, records: DataFrame, _: int) -> None:
        """Process a batch of the stream."""
        rows = transform(records).collect()
        wall_ms = SYSTEM_CLOCK.wall_ms()
        for row in rows:
            self.flights[row["carrier"]] += row["flights"]
            self.age_ms_max = max(self.age_ms_max, wall_ms - row["first"])
        if self.flights.total() >= self._until:
            self.is_over.set()


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(prog="smq spark departures", description=__doc__)
    parser.add_argument("--data-dir", required=True, help="the broker's data directory")
    parser.add_argument("--until", type=int, required=True, help="how many flights")
    given = parser.parse_args()
    seen = DepartureCounts(given.until)
    settings = {"spark.sql.shuffle.partitions": "1"}
    with (
        refusals(),
        start_session("departures", **settings) as spark,
        tempfile.TemporaryDirectory() as checkpoint,
    ):
        rows = spark.readStream.format("smq").option("dataDir", given.data_dir)
        rows = rows.option("subscribe", TOPIC).option("startingOffsets", "earliest")
        writer = rows.load().writeStream.foreachBatch(seen.take)
        query = writer.option("checkpointLocation", checkpoint).start()
        query.processAllAvailable()
        seen.age_ms_max = 0  # Earlier records had waited for Spark's start.
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while not seen.is_over.wait(POLL_S) and query.isActive:
            pass
        query.stop()
        if query.exception() is not None:
            raise SystemExit(f"smq: {query.exception()}")
    told = {"flights": dict(sorted(seen.flights.items())), "age_ms_max": seen.age_ms_max}
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
