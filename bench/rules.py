"""What ten thousand access rules cost: `python -m bench.rules`.

SMQ without an authorizer stands beside SMQ with one, in one run.

The rules are of a hundred principals, literal and prefixed, a third of them about an address. The
client is one of them: it may do what it does by a prefix, from its address. It sends what the raw
client has encoded beforehand, the same to both, in turns, while the other is stopped. A line is the
median of the rounds' ratios: of requests a second, and of the shard's CPU time a request, both so
that 1 means that the rules cost nothing.
"""

import argparse
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench.clients.programs import raw
from bench.machine import stopped
from smq.client.kafka.access_rules import add_rules
from smq.client.kafka.admin import create_topic
from smq.client.kafka.cluster import Cluster
from smq.client.locate import way_to
from smq.model.security_settings import STANDARD_AUTHORIZER
from smq.security.acls import (
    AccessControlEntry,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from smq.testing.smq_broker import SmqBroker, SmqCommand

COUNT, PRINCIPALS, PORTION = 10_000, 100, 900
TOPIC, READ_TOPIC, CLIENT, HOST = "bench-written", "bench-read", "User:ANONYMOUS", "127.0.0.1"
READABLE_BYTES = 20_000_000  # They stay in the ring while they are read.


class Line(NamedTuple):
    """A measure: its words, what it counts, and how it is run, so many times as much."""

    words: str
    counts: str
    run: Callable[[int, int], dict[str, float]]


def _produce(**options: int) -> Callable[[int, int], dict[str, float]]:
    def run(port: int, times: int) -> dict[str, float]:
        amount = {name: value * times for name, value in options.items() if name in AMOUNTS}
        return raw(port, "produce", topic=TOPIC, **(options | amount))

    return run


def _fetch(port: int, times: int) -> dict[str, float]:
    return raw(port, "fetch", topic=READ_TOPIC, fetch_bytes=8 << 20, bytes=100_000_000 * times)


def _small_fetch(port: int, times: int) -> dict[str, float]:
    return raw(port, "fetch", topic=READ_TOPIC, fetch_bytes=16 << 10, bytes=20_000_000 * times)


def _follow(port: int, times: int) -> dict[str, float]:
    options = {"record_bytes": 100, "rate": 5000, "seconds": times}
    return raw(port, "end-to-end", topic=TOPIC, **options)


AMOUNTS = {"requests", "bytes"}
LINES = (  # Those that read come first, while all records are in the ring.
    Line("Fetch of up to 8 MB", "requests", _fetch),
    Line("Fetch of 16 KiB", "requests", _small_fetch),
    Line("Fetch that waits, and Produce, 5,000 records a second", "got", _follow),
    Line(
        "Produce of one record of 100 B, five deep",
        "requests",
        _produce(record_bytes=100, batch_bytes=1, depth=5, requests=20_000),
    ),
    Line("Produce of 16 KiB", "requests", _produce(batch_bytes=16_384, bytes=30_000_000)),
    Line("Produce of 1 MB", "requests", _produce(batch_bytes=1_000_000, bytes=100_000_000)),
)


def rules() -> list[AclBinding]:
    """Ten thousand, the client's among them."""
    how, operations = (
        (PatternType.LITERAL, PatternType.PREFIXED),
        (Operation.READ, Operation.WRITE, Operation.DESCRIBE),
    )
    others = [
        AclBinding(
            ResourcePattern(ResourceType.TOPIC, f"bench-{each // 4:05}", how[each % 2]),
            AccessControlEntry(
                CLIENT if each % PRINCIPALS == 0 else f"User:u{each % PRINCIPALS}",
                "*" if each % 3 else f"10.0.0.{each % 250}",
                operations[each % 3],
                Permission.ALLOW,
            ),
        )
        for each in range(COUNT - 1)
    ]
    pattern = ResourcePattern(ResourceType.TOPIC, "bench-", PatternType.PREFIXED)
    entry = AccessControlEntry(CLIENT, HOST, Operation.ALL, Permission.ALLOW)
    return [*others, AclBinding(pattern, entry)]


def prepare(broker: SmqBroker, *, with_rules: bool) -> None:
    """Make the rules and topics, and fill the one that is read."""
    bootstrap, security = way_to(broker.data_dir)
    with Cluster(bootstrap, security=security) as cluster:
        for topic in (TOPIC, READ_TOPIC):
            create_topic(cluster, topic, 1)
        for first in range(0, COUNT if with_rules else 0, PORTION):
            add_rules(cluster, rules()[first : first + PORTION])
    raw(broker.port, "produce", topic=READ_TOPIC, batch_bytes=16_384, bytes=READABLE_BYTES)


def shard_ns(broker: SmqBroker) -> int:
    """The CPU time of the shard so far."""
    pid = broker.status().processes["shard-1"].pid
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(each.read_text().split()[0]) for each in threads)


def measure(broker: SmqBroker, line: Line, times: int) -> tuple[float, float]:
    """What is counted a second, and the shard's CPU time for each, in µs."""
    before = shard_ns(broker)
    found = line.run(broker.port, times)
    count = found[line.counts]
    rate = count / found["seconds"] if "seconds" in found else 0.0
    return rate, (shard_ns(broker) - before) / count / 1000


def report(brokers: list[SmqBroker], line: Line, rounds: int, times: int) -> str:
    """A line of the table."""
    figures: list[list[tuple[float, float]]] = [[], []]
    for turn in range(rounds + 1):
        order = (0, 1) if turn % 2 else (1, 0)
        for which in order:
            with stopped(brokers[1 - which].pids()):
                figures[which].append(measure(brokers[which], line, times))
    pairs = list(zip(*figures, strict=True))[1:]  # The first round warms both.
    cpu = median(plain[1] / limited[1] for plain, limited in pairs)
    rates = [limited[0] / plain[0] for plain, limited in pairs if plain[0]]
    plain_us, limited_us = (median(each[1] for each in those[1:]) for those in figures)
    rate = f"{median(rates):.3f}" if rates else ""
    return f"| {line.words} | {plain_us:.2f} | {limited_us:.2f} | {cpu:.3f} | {rate} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--times", type=int, default=1, help="how much work a round has")
    parser.add_argument("--only", default="", help="lines with these words")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="smq-rules-") as name, ExitStack() as stack:
        settings: list[dict[str, str]] = [{}, {"authorizer.class.name": STANDARD_AUTHORIZER}]
        brokers: list[SmqBroker] = [
            stack.enter_context(SmqCommand(Path(name) / str(i), each))
            for i, each in enumerate(settings)
        ]
        for i, broker in enumerate(brokers):
            prepare(broker, with_rules=i == 1)
        print("| | CPU without: µs | with | ratio | ratio of rates |\n|---|---|---|---|---|")
        for line in LINES:
            if asked.only in line.words:
                print(report(brokers, line, asked.rounds, asked.times), flush=True)


if __name__ == "__main__":
    main()
