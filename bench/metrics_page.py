"""`python -m bench.metrics_page`: how long /metrics takes with 10,000 partitions and 1,000 groups.

Prints one line of JSON: milliseconds of a page as a scraper sees them (median and slowest of some),
its size, the same of pages of the console, and, by turns, a producer's time to the ack with a
scrape every second and without.
"""

import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from smq.client.client import Client, connect
from smq.client.kafka.cluster import Cluster
from smq.client.kafka.group_admin import commit_offsets
from smq.client.names import TopicPartition
from smq.testing.smq_broker import SmqCommand

TOPICS, PARTITIONS = 10, 1000
GROUPS = 1000
SCRAPES = 20
PERIOD_S = 1.1  # A page is made again after a second.
CONSOLE = ("/", "/topics", "/topics/topic-0", "/groups")
TURN_S, TURNS = 6.0, 3
# A program of its own, as Prometheus is, and one that starts at once.
SCRAPER = """
import sys, time, urllib.request
while True:
    urllib.request.urlopen(f"http://{sys.argv[1]}/metrics").read()
    time.sleep(float(sys.argv[2]))
"""


def main() -> None:
    """Measure once."""
    settings = {"http.port": "0", "shards": "1"}
    with tempfile.TemporaryDirectory() as name, SmqCommand(Path(name), settings) as broker:
        fill(broker.bootstrap)
        address = broker.status().http
        times = [scrape(address) for _ in range(SCRAPES)]
        console = {path: [scrape(address, path)[0] for _ in range(SCRAPES)] for path in CONSOLE}
        with connect(broker.bootstrap) as client:
            client.create_topic("acks", 1)
            acks: dict[bool, list[float]] = {False: [], True: []}
            for turn in range(2 * TURNS):
                is_scraped = bool(turn % 2)
                acks[is_scraped] += acks_us(client, address, is_scraped=is_scraped)
    milliseconds = [each * 1000 for each, _ in times]
    result: dict[str, Any] = {
        "partitions": TOPICS * PARTITIONS,
        "groups": GROUPS,
        "page_ms": round(statistics.median(milliseconds)),
        "page_ms_max": round(max(milliseconds)),
        "page_bytes": times[-1][1],
        "console_ms": {
            path: round(statistics.median(each) * 1000) for path, each in console.items()
        },
        "ack_us_p50": round(quantile(acks[False], 0.5)),
        "ack_us_p50_scraped": round(quantile(acks[True], 0.5)),
        "ack_us_p99": round(quantile(acks[False], 0.99)),
        "ack_us_p99_scraped": round(quantile(acks[True], 0.99)),
    }
    print(json.dumps(result))


def quantile(times: list[float], part: float) -> float:
    """The time below which a part of them is."""
    return sorted(times)[int(part * len(times))]


def fill(bootstrap: str) -> None:
    """Topics, and groups with offsets in ten partitions each."""
    with connect(bootstrap) as client:
        for number in range(TOPICS):
            client.create_topic(f"topic-{number}", PARTITIONS)
    with Cluster(bootstrap) as cluster:
        for group in range(GROUPS):
            offsets = {TopicPartition(f"topic-{n}", group % PARTITIONS): 0 for n in range(TOPICS)}
            assert not commit_offsets(cluster, f"group-{group}", offsets)


def scrape(address: str, path: str = "/metrics") -> tuple[float, int]:
    """Seconds and bytes of a fresh page."""
    time.sleep(PERIOD_S)
    connection = http.client.HTTPConnection(address)
    began = time.monotonic()
    connection.request("GET", path)
    body = connection.getresponse().read()
    took = time.monotonic() - began
    connection.close()
    return took, len(body)


def acks_us(client: Client, address: str, *, is_scraped: bool) -> list[float]:
    """Microseconds to the ack of one record after the other, with a scraper beside it or not."""
    command = [sys.executable, "-S", "-c", SCRAPER, address, str(PERIOD_S)]
    scraper = subprocess.Popen(command) if is_scraped else None
    times, until = [], time.monotonic() + TURN_S
    with client.producer() as producer:
        while time.monotonic() < until:
            began = time.perf_counter()
            producer.send("acks", b"x" * 100).result()
            times.append(1e6 * (time.perf_counter() - began))
    if scraper is not None:
        scraper.terminate()
        scraper.wait()
    return times


if __name__ == "__main__":
    main()
