"""What is measured: one function a line of the table, the same for every broker.

Each takes a running broker and returns named figures. Topics are deleted after use, so that a
broker measures with the disk space, and SMQ with the WAL segments, that it had before.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple
from uuid import uuid4

from bench.clients import librdkafka, raw
from bench.machine import cpu_seconds
from smq.client.admin import create_topic, delete_topic
from smq.client.cluster import Cluster
from smq.testing.processes import Broker

Figures = dict[str, float]
GB = 1e9
READABLE_BYTES = 200_000_000  # Less than a ring and than the page cache: hot for everybody.


class Measure(NamedTuple):
    """A line: its name, what to run, which figure is compared, and whether more is better."""

    name: str
    run: Callable[[Broker], Figures]
    figure: str
    more_is_better: bool
    target: str


@contextmanager
def topic(broker: Broker, partitions: int = 1, **configs: str) -> Iterator[str]:
    """A topic for one measurement."""
    name = f"bench-{uuid4().hex[:8]}"
    with Cluster(broker.bootstrap) as cluster:
        named = {key.replace("_", "."): value for key, value in configs.items()}
        create_topic(cluster, name, partitions, configs=named)
        yield name
        delete_topic(cluster, name)


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


def raw_fetch(batch_bytes: int, total_bytes: int) -> Callable[[Broker], Figures]:
    """Read the same hot records again and again."""

    def run(broker: Broker) -> Figures:
        figures: Figures = {}
        with topic(broker) as name:
            raw(broker.port, "produce", topic=name, batch_bytes=batch_bytes, bytes=READABLE_BYTES)
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


def rdkafka_produce(records: int, record_bytes: int, **options: object) -> Callable[[Broker], Figures]:
    """Produce with librdkafka, acks=all."""

    def run(broker: Broker) -> Figures:
        with topic(broker) as name:
            return librdkafka(
                broker.bootstrap, "produce", topic=name, records=records,
                record_bytes=record_bytes, request_required_acks=-1, **options,
            )  # fmt: skip

    return run


def rdkafka_consume(batch_bytes: int, records: int) -> Callable[[Broker], Figures]:
    """Read hot records with librdkafka."""

    def run(broker: Broker) -> Figures:
        with topic(broker) as name:
            total = records * 1024 + 2 * batch_bytes
            raw(broker.port, "produce", topic=name, batch_bytes=batch_bytes, bytes=total)
            return librdkafka(broker.bootstrap, "consume", topic=name, records=records)

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
            bytes=200_000_000,
        )  # fmt: skip
    with topic(broker) as name:
        one = raw(broker.port, "produce", topic=name, batch_bytes=16384, bytes=200_000_000)
    return {"created_s": created_s, "mb_s": spread["mb_s"], "of_one": spread["mb_s"] / one["mb_s"]}


def measures(scale: float) -> list[Measure]:
    """The table's lines; `scale` 1 for figures to keep, less for a look."""

    def n(full: float) -> int:
        return max(1, int(full * scale))

    return [
        Measure("produce 1 KiB, 1 MB batches: MB/s", raw_produce(1_000_000, n(2 * GB)), "mb_s", True, "≥ 1.3"),
        Measure("— CPU s/GB", raw_produce(1_000_000, n(2 * GB)), "cpu_s_gb", False, "≤ 0.9"),
        Measure("produce 1 KiB, 16 KiB batches: MB/s", raw_produce(16384, n(0.6 * GB)), "mb_s", True, "≥ 4"),
        Measure("— CPU s/GB", raw_produce(16384, n(0.6 * GB)), "cpu_s_gb", False, "≤ 0.3"),
        Measure("produce 100 B, 1 MB batches: msg/s", raw_small(n(0.5 * GB)), "msg_s", True, ""),
        Measure("single-record requests, five deep: req/s", raw_single(5, n(200_000)), "req_s", True, "≥ 6"),
        Measure("single-record requests, one by one: req/s", raw_single(1, n(40_000)), "req_s", True, "≥ 1.4"),
        Measure("consume hot, 1 MB batches: MB/s", raw_fetch(1_000_000, n(4 * GB)), "mb_s", True, "≥ 1.0"),
        Measure("— CPU s/GB", raw_fetch(1_000_000, n(4 * GB)), "cpu_s_gb", False, "≤ 1.0"),
        Measure("consume hot, 16 KiB batches: MB/s", raw_fetch(16384, n(3 * GB)), "mb_s", True, "≥ 1.0"),
        Measure("— CPU s/GB", raw_fetch(16384, n(3 * GB)), "cpu_s_gb", False, "≤ 1.0"),
        Measure("end to end, 10,000 msg/s: p50 µs", raw_end_to_end(10_000, 1 + 4 * scale), "p50_us", False, "≤ 0.35"),
        Measure("— p99 µs", raw_end_to_end(10_000, 1 + 4 * scale), "p99_us", False, "≤ 0.3"),
        Measure("end to end, 50,000 msg/s: p50 µs", raw_end_to_end(50_000, 1 + 4 * scale), "p50_us", False, "≤ 0.35"),
        Measure("— p99 µs", raw_end_to_end(50_000, 1 + 4 * scale), "p99_us", False, "≤ 0.3"),
        Measure("1,000 partitions: created s", many_partitions, "created_s", False, "≤ 1 s"),
        Measure("— MB/s beside one partition's", many_partitions, "of_one", True, "≥ 0.5 of one"),
    ]


def rdkafka_measures(scale: float) -> list[Measure]:
    """The lines of librdkafka."""

    def n(full: float) -> int:
        return max(1, int(full * scale))

    big = {"batch_size": 1_000_000, "linger_ms": 5, "batch_num_messages": 100_000}
    small = {"batch_size": 16384, "linger_ms": 5}
    return [
        Measure("librdkafka: produce 1 KiB, 1 MB batches: MB/s", rdkafka_produce(n(1_500_000), 1024, **big), "mb_s", True, "≥ 1.0"),
        Measure("librdkafka: produce 1 KiB, 16 KiB batches: MB/s", rdkafka_produce(n(500_000), 1024, **small), "mb_s", True, "≥ 2"),
        Measure("librdkafka: single-record requests, five deep: msg/s", rdkafka_produce(n(100_000), 100, batch_num_messages=1, linger_ms=0, max_in_flight=5), "msg_s", True, "≥ 2"),
        Measure("librdkafka: single-record requests, one by one: msg/s", rdkafka_produce(n(20_000), 100, batch_num_messages=1, linger_ms=0, max_in_flight=1), "msg_s", True, "≥ 1.2"),
        Measure("librdkafka: consume hot, 1 MB batches: MB/s", rdkafka_consume(1_000_000, 190_000), "mb_s", True, "≥ 0.9"),
        Measure("librdkafka: consume hot, 16 KiB batches: MB/s", rdkafka_consume(16384, 190_000), "mb_s", True, "≥ 0.9"),
        Measure("librdkafka: end to end, 10,000 msg/s: p50 µs", rdkafka_end_to_end(10_000, 1 + 4 * scale), "p50_us", False, "≤ 0.6"),
        Measure("— p99 µs", rdkafka_end_to_end(10_000, 1 + 4 * scale), "p99_us", False, "≤ 0.6"),
        Measure("librdkafka: end to end, 50,000 msg/s: p50 µs", rdkafka_end_to_end(50_000, 1 + 4 * scale), "p50_us", False, "≤ 0.6"),
        Measure("— p99 µs", rdkafka_end_to_end(50_000, 1 + 4 * scale), "p99_us", False, "≤ 0.6"),
    ]
