"""Stories of a whole broker, over starts, deaths and changes of its settings."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psutil
import pytest

from smq.app.process.clock import monotonic_ms
from smq.client.client import connect
from smq.client.kafka.admin import create_topic
from smq.client.kafka.cluster import Cluster
from smq.client.kafka.offsets import LATEST, resolve
from smq.testing.smq_broker import SUPERVISOR, SmqBroker
from smq.wire.generated.api_versions import ApiVersionsRequest
from smq.wire.generated.list_groups import ListGroupsRequest
from tests.app.fake_broker import eventually
from tests.broker.hostile import RawClient
from tests.client.reading import read

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
PARTITIONS = 6


@contextmanager
def cluster_of(broker: SmqBroker, node: int | None = None) -> Iterator[Cluster]:
    address = broker.bootstrap if node is None else broker.bootstrap.split(",")[node - 1]
    with Cluster(address) as cluster:
        yield cluster


def send(cluster: Cluster, topic: str, first: int, count: int, padding: bytes = b"") -> None:
    """Numbered records, the n-th to partition n modulo their number."""
    with connect(cluster.bootstrap) as client, client.producer() as producer:
        for number in range(first, first + count):
            value = b"%d %b" % (number, padding)
            producer.send(topic, value, headers=[("n", value)], partition=number % PARTITIONS)


def numbers(cluster: Cluster, topic: str) -> list[int]:
    """The numbers of all records, checked to be in order in each partition."""
    partitions = range(len(cluster.retrying(lambda: cluster.topic(topic)).leaders))
    ends = resolve(cluster, topic, partitions, LATEST)
    found: dict[int, list[int]] = {partition: [] for partition in partitions}
    for record in read(cluster.bootstrap, topic, ends):
        assert record.headers == (("n", record.value),)
        assert record.offset == len(found[record.partition])
        found[record.partition].append(int((record.value or b"").split()[0]))
    assert all(each == sorted(each) for each in found.values())
    return sorted(number for each in found.values() for number in each)


def test_shards_rings_and_segments_may_change_between_starts(tmp_path: Path) -> None:
    runs = ((3, "16MiB", "4MiB"), (1, "32MiB", "8MiB"), (2, "8MiB", "2MiB"))
    for run, (shards, ring, segment) in enumerate(runs):
        settings = {
            "shards": str(shards),
            "ring.bytes": ring,
            "wal.segment.bytes": segment,
            "seal.ms": "1000",
        }
        with SmqBroker(tmp_path, settings) as broker, cluster_of(broker) as cluster:
            if run == 0:
                create_topic(cluster, "t", PARTITIONS)
            assert numbers(cluster, "t") == list(range(run * 30_000))
            send(cluster, "t", run * 30_000, 30_000, bytes(200))
            assert numbers(cluster, "t") == list(range((run + 1) * 30_000))
            if run == 1:
                broker.kill(SUPERVISOR)


def test_leader_epochs_never_go_back_and_are_the_same_from_every_node(tmp_path: Path) -> None:
    def epochs(broker: SmqBroker, node: int) -> list[int]:
        with cluster_of(broker, node) as cluster:
            (topic,) = cluster.retrying(lambda: cluster.metadata(["t"]))
            partitions = sorted(topic.partitions, key=lambda each: each.partition_index)
            return [each.leader_epoch for each in partitions]

    with SmqBroker(tmp_path, {"shards": "2"}) as broker:
        with cluster_of(broker) as cluster:
            create_topic(cluster, "t", PARTITIONS)
        before = epochs(broker, 1)
        for restart in range(50):
            broker.kill(SUPERVISOR if restart % 10 == 9 else f"shard-{1 + restart % 2}")
            broker.restart()
            now = epochs(broker, 1)
            assert now == epochs(broker, 2)
            assert all(new >= old for new, old in zip(now, before, strict=True))
            assert now != before
            before = now


def test_a_stopped_shard_does_not_delay_clients_of_another(tmp_path: Path) -> None:
    with SmqBroker(tmp_path, {"shards": "2"}) as broker:
        stopped = broker.status().processes["shard-2"].pid
        os.kill(stopped, signal.SIGSTOP)
        try:
            started_ms = monotonic_ms()
            with cluster_of(broker, 1) as cluster:
                create_topic(cluster, "t", PARTITIONS)
                leaders = cluster.topic("t").leaders
                own = [partition for partition, leader in enumerate(leaders) if leader == 1]
                with connect(cluster.bootstrap) as client, client.producer() as producer:
                    producer.send("t", b"value", partition=own[0])
            assert monotonic_ms() - started_ms < 2000
        finally:
            os.kill(stopped, signal.SIGCONT)
        with cluster_of(broker) as cluster:
            send(cluster, "t", 0, 60)


def test_a_killed_process_serves_again_within_a_second_and_no_request_is_refused(
    tmp_path: Path,
) -> None:
    with SmqBroker(tmp_path) as broker, cluster_of(broker) as cluster:
        create_topic(cluster, "t", PARTITIONS)
        send(cluster, "t", 0, 6000)
        for process in ("shard-1", "sealer", "coordinator"):
            victim = psutil.Process(broker.status().processes[process].pid)
            started_ms = monotonic_ms()
            victim.kill()
            # Not into its hands while it dies; nobody else is waited for.
            eventually(partial(is_gone, victim), f"{process} is dead")
            with RawClient(broker.port) as client:
                assert client.ask("ApiVersions", 0, ApiVersionsRequest()).error_code == 0
                assert client.ask("ListGroups", 0, ListGroupsRequest()).error_code == 0
            assert monotonic_ms() - started_ms < 1000
        with cluster_of(broker) as another:
            assert numbers(another, "t") == list(range(6000))


def is_gone(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
