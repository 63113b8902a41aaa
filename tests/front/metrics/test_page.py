"""The page is what Prometheus reads, under kafka_exporter's names and our own."""

from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

from shm.cluster import LoginCounts
from smq.app.process.status import COUNTERS
from smq.front.metrics.facts import (
    CertificateFacts,
    Facts,
    GroupOffset,
    LogFacts,
    NodeFacts,
    PartitionFacts,
    ProcessFacts,
)
from smq.front.metrics.page import page

ODD = 'a "group"\\with\nlines'
FACTS = Facts(
    version="1.2",
    is_ready=True,
    started_ms=1500,
    processes=[ProcessFacts("shard-1", True, 2, 0.5, 1000, 7, 3)],
    nodes=[NodeFacts(1, 4, 5, 6, LoginCounts(7, 8, 9, 10))],
    certificates=[CertificateFacts("SSL", 12.5)],
    logs=[LogFacts(0, dict.fromkeys(COUNTERS, 0) | {"records_in": 10}, 100, 50, 400, 300, 1)],
    partitions=[
        PartitionFacts("t", 0, 1, 2, 12, 30, 40, 1),
        PartitionFacts("t", 1, 1, 0, 5, 0, 0, 0),
    ],
    offsets=[GroupOffset(ODD, "t", 0, 8, 4, 1.5), GroupOffset(ODD, "t", 1, 5, 0, None)],
    members={ODD: 2},
    missing=["the store"],
    http_failed_logins=3,
)

Samples = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


def samples(facts: Facts) -> Samples:
    found: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for family in text_string_to_metric_families(page(facts).decode()):
        for each in family.samples:
            key = each.name, frozenset(each.labels.items())
            assert key not in found, key
            found[key] = each.value
    return found


def value(found: Samples, name: str, **labels: str) -> float:
    return found[name, frozenset(labels.items())]


def test_the_page_has_everything_once() -> None:
    found = samples(FACTS)
    assert value(found, "smq_ready") == 1
    assert value(found, "smq_metrics_missing") == 1
    assert value(found, "smq_start_time_seconds") == 1.5
    assert value(found, "smq_process_restarts_total", process="shard-1") == 2
    assert value(found, "smq_process_cpu_seconds_total", process="shard-1") == 0.5
    assert value(found, "smq_node_connections", node="1") == 4
    assert value(found, "smq_node_unauthenticated_connections", node="1") == 7
    assert value(found, "smq_node_logins_total", node="1") == 8
    assert value(found, "smq_node_failed_logins_total", node="1") == 9
    assert value(found, "smq_node_expired_sessions_total", node="1") == 10
    assert value(found, "smq_certificate_days_left", listener="SSL") == 12.5
    assert value(found, "smq_http_failed_logins_total") == 3
    assert value(found, "smq_log_records_in_total", log="0") == 10
    assert value(found, "smq_log_wal_room_bytes", log="0") == 300
    assert value(found, "kafka_brokers") == 1
    assert value(found, "kafka_topic_partitions", topic="t") == 2
    assert value(found, "kafka_topic_partition_current_offset", topic="t", partition="0") == 12
    assert value(found, "kafka_topic_partition_oldest_offset", topic="t", partition="0") == 2
    assert value(found, "smq_partition_sealed_bytes", topic="t", partition="0") == 40


def test_groups_have_their_lag_in_records_and_seconds() -> None:
    found, zero = samples(FACTS), {"consumergroup": ODD, "topic": "t", "partition": "0"}
    assert value(found, "kafka_consumergroup_members", consumergroup=ODD) == 2
    assert value(found, "kafka_consumergroup_current_offset", **zero) == 8
    assert value(found, "kafka_consumergroup_lag", **zero) == 4
    assert value(found, "smq_consumergroup_lag_seconds", **zero) == 1.5
    assert value(found, "kafka_consumergroup_lag_sum", consumergroup=ODD, topic="t") == 4
    unknown = frozenset({**zero, "partition": "1"}.items())
    assert ("smq_consumergroup_lag_seconds", unknown) not in found


def test_a_broker_that_is_not_there_has_a_page_too() -> None:
    found = samples(Facts(version="1", is_ready=False, started_ms=0))
    assert value(found, "smq_ready") == 0
    assert value(found, "kafka_brokers") == 0
