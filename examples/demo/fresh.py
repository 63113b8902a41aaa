"""Live departures: a Spark stream and SQL count flights as they arrive."""

import json
import subprocess
from collections import Counter
from collections.abc import Iterable
from datetime import UTC
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from examples.demo.broker import Broker
from examples.demo.dataset import encode, rows
from smq.app.process.program import command, importing
from smq.client.client import Client, connect
from smq.client.clock import SYSTEM_CLOCK
from smq.filer.location import Location
from smq.sql.session import QueryBounds, TopicSource, running

TOPIC = "departures"  # Also in spark_jobs.departures.
COUNT, A_SECOND = 4_000, 1_000
STEPS_A_SECOND = 50
QUERY = """
    SELECT value->>'carrier' AS carrier, count(*) AS flights, max(timestamp) AS youngest
    FROM departures GROUP BY 1
"""
QUERY_BYTES = 256 << 20
STREAM_S_MAX = 180.0


Flight = dict[str, str | int | float | None]


class Fresh(NamedTuple):
    """Flights by carrier, as sent, as the stream and as SQL counted them; and their ages."""

    sent: dict[str, int]
    streamed: dict[str, int]
    counted: dict[str, int]
    stream_age_ms_max: int
    query_age_ms: float


def depart(broker: Broker, flights: Path, log: Path) -> Fresh:
    """Start the stream, send flights at a rate, ask SQL right after the last one."""
    departures = command("spark_jobs.departures", "--data-dir", str(broker.data_dir))
    departing = islice(rows(flights), COUNT)
    sent: Counter[str] = Counter()
    with connect(broker.data_dir) as client, log.open("w") as murmurs:
        client.create_topic(TOPIC, 2)
        _send(client, islice(departing, 1), sent)  # The first flight warms up the stream.
        with subprocess.Popen(  # noqa: S603  (ourselves)
            [*departures, "--until", str(COUNT)],
            env=importing(),
            stdout=subprocess.PIPE,
            stderr=murmurs,
            text=True,
        ) as stream:
            assert stream.stdout is not None
            if stream.stdout.readline() != "ready\n":
                raise SystemExit(f"the stream did not start: {log.read_text()}")
            _send(client, departing, sent)
            filer = Location(str(broker.status().filer_root))
            counted, age_ms = _ask(TopicSource(broker.data_dir, filer, client))
            told, _ = stream.communicate(timeout=STREAM_S_MAX)
    streamed: dict[str, Any] = json.loads(told)
    return Fresh(dict(sent), streamed["flights"], counted, streamed["age_ms_max"], age_ms)


def _send(client: Client, flights: Iterable[Flight], sent: Counter[str]) -> None:
    """Send flights at A_SECOND per second, counted by carrier."""
    with client.producer() as producer:
        due_s = SYSTEM_CLOCK.monotonic_s()
        for number, row in enumerate(flights):
            if number % (A_SECOND // STEPS_A_SECOND) == 0:
                due_s += 1 / STEPS_A_SECOND
                SYSTEM_CLOCK.sleep(max(0.0, due_s - SYSTEM_CLOCK.monotonic_s()))
            producer.send(TOPIC, encode(row), key=str(row["carrier"]).encode())
            sent[str(row["carrier"])] += 1


def _ask(topics: TopicSource) -> tuple[dict[str, int], float]:
    """Flights by carrier, and the youngest flight's age when the answer arrived."""
    with running(QUERY, topics, QueryBounds(QUERY_BYTES)) as found:
        answer = found.read_all().to_pylist()
    youngest = max(row["youngest"] for row in answer).replace(tzinfo=UTC)
    age_ms = SYSTEM_CLOCK.wall_ms() - youngest.timestamp() * 1000
    return {row["carrier"]: row["flights"] for row in answer}, age_ms
