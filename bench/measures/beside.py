"""What clients feel beside a flood, a drain or sealing, and what sealing takes that hurries."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Event, Thread

import psutil

from bench.clients.programs import librdkafka, raw
from bench.measures.filling import (
    READER,
    RECORD_BYTES,
    await_sealed,
    fill,
    fill_spread,
    sealed_bytes,
)
from bench.measures.lines import Figures, topic
from bench.measures.parts import Run
from smq.client.kafka.cluster import Cluster
from smq.client.kafka.topic_changes import alter_topic
from smq.load.cost import cpu_seconds
from smq.testing.processes import Broker
from smq.testing.smq_broker import SmqBroker

SEALING_GB_MIN = 4.0  # So that it takes longer than what is measured beside it.
SEALS_ALONG = {"smq.seal.ms": "1000", "smq.seal.bytes": "16777216"}
SEALS_LATER = {"smq.seal.ms": "86400000", "smq.seal.bytes": str(1 << 40)}
DISK_FLOOD_GB = 0.5


def disk_beside_a_flood(run: Run, broker: Broker) -> Figures:
    """Acks of a `disk` topic, one request in flight, alone and beside a flood of an `os` topic."""
    requests = int(run.seconds(5000))
    with topic(broker, smq_durability="disk") as name, topic(broker) as other:
        options = {"topic": name, "record_bytes": 100, "batch_bytes": 1, "depth": 1}
        alone = raw(broker.port, "produce", requests=requests, **options)["p99_us"]
        with again_and_again(lambda: fill(broker, other, DISK_FLOOD_GB)):
            beside = raw(broker.port, "produce", requests=requests, **options)["p99_us"]
    return {"alone_us": alone, "beside_us": beside}


@contextmanager
def again_and_again(action: Callable[[], object]) -> Iterator[list[int]]:
    """Do it in a thread until the block ends; gives a list that grows by one each time."""
    stop, done, met = Event(), list[int](), list[Exception]()

    def repeat() -> None:
        try:
            while not stop.is_set():
                action()
                done.append(1)
        except Exception as failure:  # noqa: BLE001  (carried over)
            met.append(failure)

    thread = Thread(target=repeat)
    thread.start()
    try:
        yield done
    finally:
        stop.set()
        thread.join()
    if met:
        raise met[0]


def beside_a_drain(run: Run, broker: Broker) -> Figures:
    """Producers at 10,000 messages a second, alone, and while a backlog is read again and again."""
    alone = run.p99_us(broker, "publish", "latency", producerRate=10_000)
    with topic(broker) as name:
        records, _ = fill(broker, name, min(run.gb, 4))
        read = partial(
            librdkafka, broker.bootstrap, "consume", topic=name, records=records, **READER
        )
        with again_and_again(read):
            beside = run.p99_us(broker, "publish", "latency", producerRate=10_000)
    return {"alone_us": alone, "beside_us": beside, "times": beside / alone}


@contextmanager
def sealing(run: Run, broker: Broker) -> Iterator[None]:
    """A backlog that is sealed meanwhile; Apache Kafka just has it."""
    if broker.name != "smq":
        with topic(broker, 8) as name:
            fill_spread(broker, name, max(run.gb / 2, SEALING_GB_MIN))
            yield
        return
    with topic(broker, 8, **SEALS_LATER) as name:
        records = fill_spread(broker, name, max(run.gb / 2, SEALING_GB_MIN))
        with Cluster(broker.bootstrap) as cluster:
            alter_topic(cluster, name, SEALS_ALONG, ())
        deadline = time.monotonic() + 30
        while sealed_bytes(broker)[0] == 0 and time.monotonic() < deadline:
            time.sleep(0.05)
        yield
        if sealed_bytes(broker)[0] >= records:
            print("  sealing ended before the measurement did", file=sys.stderr)


def beside_sealing(run: Run, broker: Broker) -> Figures:
    """Producers at 10,000 messages a second, alone, and while a backlog is sealed."""
    alone = run.p99_us(broker, "publish", "latency", producerRate=10_000)
    with sealing(run, broker):
        beside = run.p99_us(broker, "publish", "latency", producerRate=10_000)
    return {"alone_us": alone, "beside_us": beside, "times": beside / alone}


def tail_beside_sealing(run: Run, broker: Broker) -> Figures:
    """The slowest thousandth of 50,000 messages a second while a backlog is sealed."""
    with sealing(run, broker):
        tail = run.percentile_us(broker, "p99.9", "latency", "publish", producerRate=50_000)
    return {"tail_us": tail}


def singles_beside_sealing(run: Run, broker: Broker) -> Figures:
    """Requests of one record, five deep, at rest and while a backlog is sealed."""
    requests = int(run.seconds(500_000))

    def rate() -> float:
        with topic(broker) as name:
            return raw(
                broker.port, "produce", topic=name, record_bytes=100, batch_bytes=1, depth=5,
                requests=requests,
            )["req_s"]  # fmt: skip

    before = _main_thread_s(broker, "shard-1")
    rest = rate()
    cpu_us = (_main_thread_s(broker, "shard-1") - before) / requests * 1e6
    with sealing(run, broker):
        busy = rate()
    return {"rest": rest, "cpu_us": cpu_us, "busy": busy, "share": busy / rest}


def hurried_sealing(run: Run, broker: Broker) -> Figures:
    """What sealing makes of a second of its CPU time where it waits for nothing, fork to commit."""
    with topic(broker, 8, **SEALS_LATER) as name:
        records = fill_spread(broker, name, max(run.gb / 2, SEALING_GB_MIN))
        sealer = _pid(broker, "sealer")
        before = cpu_seconds([sealer])
        with Cluster(broker.bootstrap) as cluster:
            alter_topic(cluster, name, SEALS_ALONG, ())
        await_sealed(broker, records)
        took_s = cpu_seconds([sealer]) - before
    return {"mb_cpu_s": records * RECORD_BYTES / 1e6 / took_s}


def _main_thread_s(broker: Broker, process: str) -> float:
    """CPU time so far of a process's first thread: a shard's loop."""
    pid = _pid(broker, process)
    [times] = (each for each in psutil.Process(pid).threads() if each.id == pid)
    return float(times.user_time + times.system_time)


def _pid(broker: Broker, process: str) -> int:
    """The process id of one of SMQ's processes."""
    assert isinstance(broker, SmqBroker)
    pid = broker.status().processes[process].pid
    assert pid is not None
    return pid
