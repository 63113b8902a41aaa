"""What is measured: one function a line of the table, the same for every broker.

Each takes a running broker and returns named figures. Topics are deleted after use, so that a
broker measures with the disk space, and SMQ with the WAL segments, that it had before.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple
from uuid import uuid4

from bench.clients.programs import librdkafka, raw
from bench.measures.fetch_sessions import idle_fetches
from smq.client.kafka.admin import create_topic, delete_topic
from smq.client.kafka.cluster import Cluster
from smq.client.kafka.offsets import LATEST, resolve
from smq.load.cost import cpu_seconds
from smq.model.errors import BrokerError, ErrorCode
from smq.testing.processes import Broker

Figures = dict[str, float]
GB = 1e9
MANY_BYTES = 50_000_000  # Apache Kafka takes seconds for so much, spread over 1,000 partitions.
UNFENCED_S_MAX = 30
READABLE_BYTES = 200_000_000  # Less than a ring and than the page cache: hot for everybody.


class Line(NamedTuple):
    """One figure of a measurement as a line of the table; `target` is a bound of the ratio, or of
    SMQ's own figure where it says so."""

    words: str
    figure: str
    target: str = ""


class Measure(NamedTuple):
    """What to run, and the lines that come of it."""

    name: str
    run: Callable[[Broker], Figures]
    lines: tuple[Line, ...]


@contextmanager
def topic(broker: Broker, partitions: int = 1, **configs: str) -> Iterator[str]:
    """A topic for one measurement, past the moment in which its leaders do not know it yet."""
    name = f"bench-{uuid4().hex[:8]}"
    with Cluster(broker.bootstrap) as cluster:
        named = {key.replace("_", "."): value for key, value in configs.items()}
        _create(cluster, name, partitions, named)
        resolve(cluster, name, range(partitions), LATEST)
        yield name
        delete_topic(cluster, name)


def _create(cluster: Cluster, name: str, partitions: int, configs: dict[str, str]) -> None:
    """Create a topic. Apache Kafka refuses it for a while after a rest: its broker is fenced."""
    deadline = time.monotonic() + UNFENCED_S_MAX
    while True:
        try:
            create_topic(cluster, name, partitions, configs=configs)
        except BrokerError as error:
            if error.code != ErrorCode.INVALID_REPLICATION_FACTOR or time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return


@contextmanager
def cpu_per_gb(broker: Broker, figures: Figures) -> Iterator[None]:
    """Add the broker's CPU-seconds for each GB that `figures` will say was moved."""
    before = cpu_seconds(broker.pids())
    yield
    figures["cpu_s_gb"] = (cpu_seconds(broker.pids()) - before) / (figures["bytes"] / GB)


def raw_produce(batch_bytes: int, total_bytes: int) -> Callable[[Broker], Figures]:
    """Produce 1 KiB records in batches, five requests deep, one connection."""

    def run(broker: Broker) -> Figures:
        figures: Figures = {}
        with topic(broker) as name, cpu_per_gb(broker, figures):
            figures |= raw(
                broker.port, "produce", topic=name, batch_bytes=batch_bytes, bytes=total_bytes
            )
        return figures

    return run


def raw_small(total_bytes: int) -> Callable[[Broker], Figures]:
    """Produce 100 B records in batches of 1 MB."""

    def run(broker: Broker) -> Figures:
        with topic(broker) as name:
            return raw(broker.port, "produce", topic=name, record_bytes=100, bytes=total_bytes)

    return run


def raw_single(depth: int, requests: int, connections: int = 1) -> Callable[[Broker], Figures]:
    """Produce requests of one record of 100 B."""

    def run(broker: Broker) -> Figures:
        with topic(broker) as name:
            return raw(
                broker.port, "produce", topic=name, record_bytes=100, batch_bytes=1,
                depth=depth, requests=requests, connections=connections,
            )  # fmt: skip

    return run


def raw_fetch(
    batch_bytes: int, total_bytes: int, record_bytes: int = 1024
) -> Callable[[Broker], Figures]:
    """Read the same hot records again and again."""

    def run(broker: Broker) -> Figures:
        figures: Figures = {}
        with topic(broker) as name:
            raw(
                broker.port, "produce", topic=name, record_bytes=record_bytes,
                batch_bytes=batch_bytes, bytes=READABLE_BYTES,
            )  # fmt: skip
            with cpu_per_gb(broker, figures):
                figures |= raw(
                    broker.port, "fetch", topic=name, fetch_bytes=8 << 20, bytes=total_bytes
                )
        return figures

    return run


def raw_end_to_end(rate: int, seconds: float) -> Callable[[Broker], Figures]:
    """100 B records at a rate, from the moment one is due to the moment its fetch is read."""

    def run(broker: Broker) -> Figures:
        with topic(broker) as name:
            return raw(
                broker.port, "end-to-end", topic=name, record_bytes=100, rate=rate, seconds=seconds
            )

    return run


def rdkafka_produce(
    records: int, record_bytes: int, **options: object
) -> Callable[[Broker], Figures]:
    """Produce with librdkafka, acks=all."""

    def run(broker: Broker) -> Figures:
        figures: Figures = {}
        with topic(broker) as name, cpu_per_gb(broker, figures):
            figures |= librdkafka(
                broker.bootstrap, "produce", topic=name, records=records,
                record_bytes=record_bytes, request_required_acks=-1, **options,
            )  # fmt: skip
        return figures

    return run


def rdkafka_consume(batch_bytes: int, records: int) -> Callable[[Broker], Figures]:
    """Read hot records with librdkafka."""

    def run(broker: Broker) -> Figures:
        figures: Figures = {}
        with topic(broker) as name:
            total = records * 1024 + 2 * batch_bytes
            raw(broker.port, "produce", topic=name, batch_bytes=batch_bytes, bytes=total)
            with cpu_per_gb(broker, figures):
                figures |= librdkafka(broker.bootstrap, "consume", topic=name, records=records)
        return figures

    return run


def rdkafka_end_to_end(rate: int, seconds: float) -> Callable[[Broker], Figures]:
    """100 B records at a rate through librdkafka, linger 0."""

    def run(broker: Broker) -> Figures:
        with topic(broker) as name:
            return librdkafka(
                broker.bootstrap, "end-to-end", topic=name, record_bytes=100, rate=rate,
                seconds=seconds, linger_ms=0, fetch_wait_max_ms=500,
            )  # fmt: skip

    return run


def many_partitions(broker: Broker) -> Figures:
    """Create a topic of 1,000 partitions, and produce spread over them, first pass included."""
    started = time.perf_counter()
    with topic(broker, 1000) as name:
        created_s = time.perf_counter() - started
        spread = raw(
            broker.port, "produce", topic=name, partitions=1000, batch_bytes=16384,
            bytes=MANY_BYTES,
        )  # fmt: skip
    with topic(broker) as name:
        one = raw(broker.port, "produce", topic=name, batch_bytes=16384, bytes=MANY_BYTES)
    return {"created_s": created_s, "mb_s": spread["mb_s"], "of_one": spread["mb_s"] / one["mb_s"]}


def fetch_session(fetches: int) -> Callable[[Broker], Figures]:
    """Fetch from 1,000 partitions of one leader that have nothing new, within a session."""

    def run(broker: Broker) -> Figures:
        with Cluster(broker.bootstrap) as cluster:
            partitions = 1000 * len(cluster.brokers())
        with topic(broker, partitions) as name:
            return idle_fetches(broker, name, partitions, fetches)

    return run


MB_S, CPU = Line("MB/s", "mb_s"), Line("broker CPU s/GB", "cpu_s_gb")
P50, P99 = Line("p50 µs", "p50_us"), Line("p99 µs", "p99_us")


def _produce_measures(n: Callable[[float], int]) -> list[Measure]:
    return [
        Measure(
            "produce 1 KiB, 1 MB batches, five deep",
            raw_produce(1_000_000, n(2 * GB)),
            (MB_S._replace(target="≥ 1.3"), CPU._replace(target="≤ 0.9"), P50),
        ),
        Measure(
            "produce 1 KiB, 16 KiB batches, five deep",
            raw_produce(16384, n(0.6 * GB)),
            (MB_S._replace(target="≥ 4"), CPU._replace(target="≤ 0.3")),
        ),
        Measure(
            "produce 100 B, 1 MB batches",
            raw_small(n(0.5 * GB)),
            (Line("msg/s", "msg_s"),),
        ),
        Measure(
            "single-record requests, five deep",
            raw_single(5, n(200_000)),
            (Line("requests/s", "req_s", "≥ 6"), P99),
        ),
        Measure(
            "single-record requests, one by one",
            raw_single(1, n(40_000)),
            (Line("requests/s", "req_s", "≥ 1.4"), P50, P99),
        ),
    ]


def measures(scale: float) -> list[Measure]:
    """Those of the raw client; `scale` 1 for figures to keep, less for a look."""

    def n(full: float) -> int:
        return max(1, int(full * scale))

    seconds = 1 + 9 * scale  # The first is not counted.
    return [
        *_produce_measures(n),
        Measure(
            "consume hot, 1 MB batches",
            raw_fetch(1_000_000, n(4 * GB)),
            (MB_S._replace(target="≥ 1.0"), CPU._replace(target="≤ 1.0")),
        ),
        Measure(
            "consume hot, 16 KiB batches",
            raw_fetch(16384, n(3 * GB)),
            (MB_S._replace(target="≥ 1.0"), CPU._replace(target="≤ 1.0")),
        ),
        Measure(
            "consume hot, 100 B in 1 MB batches",
            raw_fetch(1_000_000, n(2 * GB), record_bytes=100),
            (Line("msg/s", "msg_s"),),
        ),
        *(
            Measure(
                f"end to end at {rate:,} msg/s",
                raw_end_to_end(rate, seconds),
                (P50._replace(target="≤ 0.35"), P99._replace(target="≤ 0.3")),
            )
            for rate in (10_000, 50_000)
        ),
        Measure(
            "a topic of 1,000 partitions",
            many_partitions,
            (
                Line("created, s", "created_s", "SMQ ≤ 1"),
                Line("MB/s beside one partition's", "of_one", "SMQ ≥ 0.5"),
            ),
        ),
        Measure(
            "a fetch session over 1,000 idle partitions",
            fetch_session(n(5_000)),
            (Line("µs a fetch", "fetch_us"),),
        ),
    ]


def rdkafka_measures(scale: float) -> list[Measure]:
    """Those of librdkafka."""

    def n(full: float) -> int:
        return max(1, int(full * scale))

    seconds = 1 + 9 * scale  # The first is not counted.
    big = {"batch_size": 1_000_000, "batch_num_messages": 100_000, "linger_ms": 5}
    small = {"batch_size": 16384, "linger_ms": 5}
    alone = {"batch_num_messages": 1, "linger_ms": 0}
    return [
        Measure(
            "librdkafka: produce 1 KiB, 1 MB batches",
            rdkafka_produce(n(1_500_000), 1024, **big),
            (MB_S._replace(target="≥ 1.0"), CPU),
        ),
        Measure(
            "librdkafka: produce 1 KiB, 16 KiB batches",
            rdkafka_produce(n(500_000), 1024, **small),
            (MB_S._replace(target="≥ 2"), CPU),
        ),
        Measure(
            "librdkafka: single-record requests, five deep",
            rdkafka_produce(n(100_000), 100, max_in_flight=5, **alone),
            (Line("msg/s", "msg_s", "≥ 2"),),
        ),
        Measure(
            "librdkafka: single-record requests, one by one",
            rdkafka_produce(n(20_000), 100, max_in_flight=1, **alone),
            (Line("msg/s", "msg_s", "≥ 1.2"),),
        ),
        *(
            Measure(
                f"librdkafka: consume hot, {words} batches",
                rdkafka_consume(batch_bytes, 190_000),
                (MB_S._replace(target="≥ 0.9"), CPU),
            )
            for words, batch_bytes in (("1 MB", 1_000_000), ("16 KiB", 16384))
        ),
        *(
            Measure(
                f"librdkafka: end to end at {rate:,} msg/s",
                rdkafka_end_to_end(rate, seconds),
                (P50._replace(target="≤ 0.6"), P99._replace(target="≤ 0.6")),
            )
            for rate in (10_000, 50_000)
        ),
    ]
