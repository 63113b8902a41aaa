"""/metrics: facts in Prometheus' text format, version 0.0.4.

The few metrics of the broker go through prometheus-client. Lines of partitions and groups, up to a
hundred thousand, are written directly: the library would take half a second.

kafka_exporter's names appear beside our own, so Kafka dashboards work with this broker.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from smq.front.metrics.facts import BOUNDS_S, Facts, GroupOffset, PartitionFacts, TableFacts

_COUNTED = {
    "produce_requests": "Produce requests.",
    "batches_in": "Batches appended to a log.",
    "records_in": "Records appended to a log.",
    "bytes_in": "Bytes of batches appended to a log.",
    "fetch_requests": "Fetch requests answered.",
    "bytes_out": "Bytes of batches in answers to Fetch.",
    "fetches_from_wal": "Parts of answers to Fetch read from the WAL: they had left the ring.",
    "fetches_from_sealed": "Parts of answers to Fetch from sealed segments, cached or not.",
    "sealed_cache_hits": "Parts of answers to Fetch that the sealer had in its cache.",
}

_SYNCS = "How long syncs of the WAL to the disk took."

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def page(facts: Facts) -> bytes:
    """Render the page."""
    registry = CollectorRegistry()
    registry.register(_Few(facts))
    return generate_latest(registry) + "".join(_many(facts)).encode()


def few(facts: Facts) -> Iterator[Metric]:
    """The metrics of few series: the broker, its processes, nodes, logs and APIs."""
    return _Few(facts).collect()


class _Few(Collector):
    """The metrics of the broker, its processes, nodes and logs."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def collect(self) -> Iterator[Metric]:
        """See Collector."""
        facts = self._facts
        yield InfoMetricFamily("smq_build", "The broker's version.", {"version": facts.version})
        yield GaugeMetricFamily("smq_ready", "Whether all processes serve.", int(facts.is_ready))
        yield GaugeMetricFamily(
            "smq_start_time_seconds", "When the broker started.", facts.started_ms / 1000
        )
        yield GaugeMetricFamily(
            "smq_metrics_missing", "Sources that could not be read.", len(facts.missing)
        )
        yield GaugeMetricFamily(
            "smq_disk_free_bytes", "Free space on the disk of the log.", facts.disk_free_bytes
        )
        yield CounterMetricFamily(
            "smq_http_failed_logins",
            "Passwords and tokens that were wrong by HTTP.",
            facts.http_failed_logins,
        )
        yield GaugeMetricFamily("kafka_brokers", "Number of brokers.", len(facts.nodes))
        yield from self._processes()
        yield from self._nodes()
        yield from self._logs()
        yield from self._times()
        yield from self._rpcs()
        yield from self._tables()

    def _processes(self) -> Iterator[Metric]:
        columns: list[tuple[type[Any], str, str, Callable[[Any], float]]] = [
            (GaugeMetricFamily, "ready", "Whether the process serves.", lambda p: int(p.is_ready)),
            (CounterMetricFamily, "restarts", "Restarts of the process.", lambda p: p.restarts),
            (CounterMetricFamily, "cpu_seconds", "CPU time used.", lambda p: p.cpu_s),
            (GaugeMetricFamily, "resident_bytes", "Memory in use.", lambda p: p.resident_bytes),
            (GaugeMetricFamily, "open_fds", "Open descriptors.", lambda p: p.descriptors),
            (GaugeMetricFamily, "threads", "Threads.", lambda p: p.threads),
        ]
        for family, name, words, value in columns:
            metric = family(f"smq_process_{name}", words, labels=["process"])
            for each in self._facts.processes:
                metric.add_metric([each.name], value(each))
            yield metric

    def _nodes(self) -> Iterator[Metric]:
        columns: list[tuple[str, str, Callable[[Any], float]]] = [
            ("connections", "Clients connected over the network.", lambda n: n.connections),
            ("sessions", "Programs attached through shared memory.", lambda n: n.sessions),
            ("leader_epoch", "The node's generation.", lambda n: n.generation),
            (
                "unauthenticated_connections",
                "Connections that have not logged in yet.",
                lambda n: n.logins.unauthenticated,
            ),
        ]
        yield from self._of_nodes(GaugeMetricFamily, columns)
        counted: list[tuple[str, str, Callable[[Any], float]]] = [
            ("logins", "Logins, by password or certificate.", lambda n: n.logins.logged_in),
            ("failed_logins", "Logins that failed.", lambda n: n.logins.failed),
            (
                "expired_sessions",
                "Connections closed whose login had not been renewed.",
                lambda n: n.logins.expired,
            ),
        ]
        yield from self._of_nodes(CounterMetricFamily, counted)
        days = GaugeMetricFamily(
            "smq_certificate_days_left",
            "Days until the first certificate of a listener ends, of those in use.",
            labels=["listener"],
        )
        for each in self._facts.certificates:
            days.add_metric([each.listener], each.days_left)
        yield days

    def _of_nodes(
        self, family: type[Any], columns: Iterable[tuple[str, str, Callable[[Any], float]]]
    ) -> Iterator[Metric]:
        for name, words, value in columns:
            metric = family(f"smq_node_{name}", words, labels=["node"])
            for each in self._facts.nodes:
                metric.add_metric([str(each.node_id)], value(each))
            yield metric

    def _rpcs(self) -> Iterator[Metric]:
        labels = ["service", "method"]
        words = "Calls of SeaweedMQ's services that have ended, by gRPC's status."
        calls = CounterMetricFamily("smq_grpc_calls", words, labels=[*labels, "status"])
        words = "How long they took, streams from their beginning to their end."
        seconds = CounterMetricFamily("smq_grpc_seconds", words, labels=labels)
        begun = GaugeMetricFamily("smq_grpc_open_calls", "Calls and streams now.", labels=labels)
        for each in self._facts.rpcs:
            named = [each.service, each.method]
            for status, total in each.totals.items():
                calls.add_metric([*named, status], total)
            seconds.add_metric(named, each.seconds)
            begun.add_metric(named, each.open)
        yield from (calls, seconds, begun)
        words = "Acknowledgements of records that their subscriber does not have (any more)."
        yield CounterMetricFamily("smq_grpc_unknown_acks", words, self._facts.unknown_acks)
        words = "How often a reader passed over a batch that it could not read, and said so."
        yield CounterMetricFamily("smq_grpc_passed_batches", words, self._facts.passed_batches)

    def _tables(self) -> Iterator[Metric]:
        columns: list[tuple[str, str, Callable[[TableFacts], float]]] = [
            ("files", "Files that the lake table has.", lambda t: t.files),
            (
                "records_behind",
                "Sealed offsets that it does not have yet.",
                lambda t: t.records_behind,
            ),
            ("seconds_behind", "How long the oldest of them has waited.", lambda t: t.behind_s),
            ("raw_records", "Records of raw segments, which it lacks.", lambda t: t.raw_records),
            ("failing", "Whether the last attempt to publish it failed.", lambda t: bool(t.error)),
        ]
        for name, words, value in columns:
            metric = GaugeMetricFamily(f"smq_table_{name}", words, labels=["topic", "format"])
            for each in self._facts.tables:
                metric.add_metric([each.topic, each.format], value(each))
            yield metric

    def _logs(self) -> Iterator[Metric]:
        logs = self._facts.logs
        for name, words in _COUNTED.items():
            counter = CounterMetricFamily(f"smq_log_{name}", words, labels=["log"])
            for each in logs:
                counter.add_metric([str(each.log)], each.counters[name])
            yield counter
        syncs = HistogramMetricFamily("smq_wal_sync_seconds", _SYNCS, labels=["log"])
        for each in logs:
            syncs.add_metric([str(each.log)], _buckets(each.syncs_below), each.sync_s)
        yield syncs
        columns: list[tuple[str, str, Callable[[Any], float]]] = [
            ("ring_bytes", "Size of the ring.", lambda x: x.ring_bytes),
            ("ring_used_bytes", "Bytes that the ring holds.", lambda x: x.ring_used_bytes),
            (
                "wal_bytes_max",
                "What the WAL may take: wal.bytes.max, or what the disk has room for.",
                lambda x: x.wal_bytes_max,
            ),
            ("wal_room_bytes", "Bytes until producers are refused.", lambda x: x.wal_room_bytes),
            ("unsynced_bytes", "Bytes that were not synced yet.", lambda x: x.unsynced_bytes),
        ]
        for name, words, value in columns:
            metric = GaugeMetricFamily(f"smq_log_{name}", words, labels=["log"])
            for each in logs:
                metric.add_metric([str(each.log)], value(each))
            yield metric

    def _times(self) -> Iterator[Metric]:
        words = "How long requests took, without what their clients wanted to wait."
        metric = HistogramMetricFamily("smq_request_seconds", words, labels=["api"])
        for each in self._facts.times:
            buckets = _buckets((*each.below, each.requests))
            metric.add_metric([each.api], buckets, each.seconds)
        yield metric
        words = "Errors in answers, or in their rows, by Kafka's name of the error."
        errors = CounterMetricFamily("smq_request_errors", words, labels=["api", "error"])
        for one in self._facts.errors:
            errors.add_metric([one.api, one.error], one.total)
        yield errors
        words = "Requests that took longer than slow.request.ms."
        yield CounterMetricFamily("smq_slow_requests", words, self._facts.slow_requests)


def _buckets(below: tuple[int, ...]) -> list[tuple[str, float]]:
    """A histogram's buckets: how many are below each of BOUNDS_S, then all."""
    return [(str(x), n) for x, n in zip((*BOUNDS_S, "+Inf"), below, strict=True)]


def _many(facts: Facts) -> Iterator[str]:
    counts: dict[str, int] = defaultdict(int)
    for each in facts.partitions:
        counts[each.topic] += 1
    yield _head("kafka_topic_partitions", "Number of partitions of a topic.")
    yield from (
        f'kafka_topic_partitions{{topic="{_text(topic)}"}} {count}\n'
        for topic, count in counts.items()
    )
    rows = [
        (f'{{topic="{_text(p.topic)}",partition="{p.partition}"}}', p) for p in facts.partitions
    ]
    columns: list[tuple[str, str, Callable[[PartitionFacts], int]]] = [
        ("kafka_topic_partition_current_offset", "The next offset.", lambda p: p.end_offset),
        ("kafka_topic_partition_oldest_offset", "The first offset.", lambda p: p.first_offset),
        ("kafka_topic_partition_leader", "The leader.", lambda p: p.leader),
        ("smq_partition_unsealed_bytes", "Bytes not sealed yet.", lambda p: p.unsealed_bytes),
        ("smq_partition_sealed_bytes", "Bytes in sealed segments.", lambda p: p.sealed_bytes),
        ("smq_partition_segments", "Number of sealed segments.", lambda p: p.segments),
        ("smq_partition_untyped", "Sealed values that do not fit the schema.", lambda p: p.untyped),
    ]
    for name, words, value in columns:
        yield _head(name, words)
        yield from (f"{name}{labels} {value(each)}\n" for labels, each in rows)
    yield from _groups(facts)


def _groups(facts: Facts) -> Iterator[str]:
    yield _head("kafka_consumergroup_members", "Number of members of a group.")
    yield from (
        f'kafka_consumergroup_members{{consumergroup="{_text(group)}"}} {count}\n'
        for group, count in facts.members.items()
    )
    rows = [(_labels(each), each) for each in facts.offsets]
    name = "kafka_consumergroup_current_offset"
    yield _head(name, "The committed offset.")
    yield from (f"{name}{labels} {each.offset}\n" for labels, each in rows)
    name = "kafka_consumergroup_lag"
    yield _head(name, "Records behind the end.")
    yield from (f"{name}{labels} {each.lag}\n" for labels, each in rows)
    name = "smq_consumergroup_lag_seconds"
    yield _head(name, "How long ago the committed offset was the end.")
    yield from (
        f"{name}{labels} {each.lag_s:.3f}\n" for labels, each in rows if each.lag_s is not None
    )
    yield from _sums(facts)


def _labels(each: GroupOffset) -> str:
    where = f'topic="{_text(each.topic)}",partition="{each.partition}"'
    return f'{{consumergroup="{_text(each.group)}",{where}}}'


def sums(facts: Facts) -> Iterator[tuple[str, str, list[tuple[dict[str, str], int]]]]:
    """Sums over each topic's partitions for each of its groups: name, help, labels and sums."""
    found: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for each in facts.offsets:
        of_topic = found[each.group, each.topic]
        of_topic[0] += each.offset
        of_topic[1] += each.lag
    for name, words, column in (
        ("kafka_consumergroup_current_offset_sum", "The committed offsets of a topic.", 0),
        ("kafka_consumergroup_lag_sum", "Records behind the ends of a topic.", 1),
    ):
        rows = [
            ({"consumergroup": group, "topic": topic}, each[column])
            for (group, topic), each in found.items()
        ]
        yield name, words, rows


def _sums(facts: Facts) -> Iterator[str]:
    for name, words, rows in sums(facts):
        yield _head(name, words)
        for labels, value in rows:
            shown = ",".join(f'{key}="{_text(each)}"' for key, each in labels.items())
            yield f"{name}{{{shown}}} {value}\n"


def _head(name: str, words: str) -> str:
    return f"# HELP {name} {words}\n# TYPE {name} gauge\n"


def _text(label: str) -> str:
    """An escaped label value: a group may have any name."""
    return label.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
