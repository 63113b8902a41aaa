"""`python -m bench.metrics_page`: how long /metrics takes with 10,000 partitions and 1,000 groups.

Prints one line of JSON: milliseconds of a page as a scraper sees them (median and slowest of some),
its size, and, by turns, the producer's throughput with a scrape every second beside the throughput
without.
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
PERIOD_S = 1.1  # A page is made anew after a second.
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
        with connect(broker.bootstrap) as client:
            rates: dict[bool, list[float]] = {False: [], True: []}
            for turn in range(2 * TURNS):
                rates[bool(turn % 2)].append(produce(client, address, is_scraped=bool(turn % 2)))
    milliseconds = [each * 1000 for each, _ in times]
    without, scraped = (statistics.median(rates[each]) for each in (False, True))
    result: dict[str, Any] = {
        "partitions": TOPICS * PARTITIONS,
        "groups": GROUPS,
        "page_ms": round(statistics.median(milliseconds)),
        "page_ms_max": round(max(milliseconds)),
        "page_bytes": times[-1][1],
        "records_per_s": round(without),
        "records_per_s_scraped": round(scraped),
        "ratio": round(scraped / without, 3),
    }
    print(json.dumps(result))


def fill(bootstrap: str) -> None:
    """Topics, and groups with offsets in ten partitions each."""
    with connect(bootstrap) as client:
        for number in range(TOPICS):
            client.create_topic(f"topic-{number}", PARTITIONS)
    with Cluster(bootstrap) as cluster:
        for group in range(GROUPS):
            offsets = {TopicPartition(f"topic-{n}", group % PARTITIONS): 0 for n in range(TOPICS)}
            assert not commit_offsets(cluster, f"group-{group}", offsets)


def scrape(address: str) -> tuple[float, int]:
    """Seconds and bytes of a fresh page."""
    time.sleep(PERIOD_S)
    connection = http.client.HTTPConnection(address)
    began = time.monotonic()
    connection.request("GET", "/metrics")
    body = connection.getresponse().read()
    took = time.monotonic() - began
    connection.close()
    return took, len(body)


def produce(client: Client, address: str, *, is_scraped: bool) -> float:
    """Records a second, while the broker is scraped every second or not."""
    command = [sys.executable, "-S", "-c", SCRAPER, address, str(PERIOD_S)]
    scraper = subprocess.Popen(command) if is_scraped else None
    batch = {"value": [b"x" * 100] * 1000}
    count, began = 0, time.monotonic()
    with client.producer() as producer:
        while time.monotonic() - began < TURN_S:
            producer.send_batch("topic-0", batch)
            count += 1000
        producer.flush()
    took = time.monotonic() - began
    if scraper is not None:
        scraper.terminate()
        scraper.wait()
    return count / took


if __name__ == "__main__":
    main()
