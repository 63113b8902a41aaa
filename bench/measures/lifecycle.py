"""Start, rest, disk and death: the broker's own costs, without load."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path
from statistics import median

from bench.clients.programs import raw, raw_process
from bench.machine import fdatasync_us
from bench.measures.lines import Figures, topic
from smq.load.cost import cpu_seconds, pss_mb
from smq.testing.processes import Broker
from smq.testing.smq_broker import SmqCommand

RESTARTS = 5
DISK_ROUNDS = 5
IMPORTS = 10
IDLE_ROUNDS, IDLE_SECONDS = 3, 5.0
IDLE_CONNECTIONS = 1000
WAL_BYTES = 2_000_000_000


def start_and_rest(start: Callable[[Path], Broker]) -> Figures:
    """Seconds until ready, then memory and CPU at rest, and memory of idle connections."""
    with tempfile.TemporaryDirectory() as directory, start(Path(directory)) as broker:
        ready_s = median(_restart_s(broker) for _ in range(RESTARTS))
        time.sleep(1)
        cpu_percent = median(_cpu_percent(broker) for _ in range(IDLE_ROUNDS))
        pss = pss_mb(broker.pids(), without="memfd:smq-log")
        return {
            "ready_s": ready_s,
            "idle_pss_mb": pss,
            "idle_cpu_percent": cpu_percent,
            "kib_per_connection": _connections(broker),
        }


def _cpu_percent(broker: Broker) -> float:
    before = cpu_seconds(broker.pids())
    time.sleep(IDLE_SECONDS)
    return (cpu_seconds(broker.pids()) - before) / IDLE_SECONDS * 100


def _restart_s(broker: Broker) -> float:
    """Of a broker that has a data directory: the first start made it."""
    broker.stop()
    started = time.perf_counter()
    broker.restart()
    return time.perf_counter() - started


def _connections(broker: Broker) -> float:
    before = pss_mb(broker.pids(), without="memfd:smq-log")
    with raw_process(broker.port, "idle", connections=IDLE_CONNECTIONS) as client:
        assert client.stdout is not None
        assert client.stdin is not None
        client.stdout.readline()
        after = pss_mb(broker.pids(), without="memfd:smq-log")
        client.stdin.close()
    return (after - before) * 1e6 / 1024 / IDLE_CONNECTIONS


def disk(broker: Broker, directory: Path) -> Figures:
    """Acks of `disk` topics beside the machine's own fdatasync, in turns: medians."""
    rounds = []
    with topic(broker, 16, smq_durability="disk") as name:
        options = {"topic": name, "record_bytes": 100, "batch_bytes": 1, "depth": 1}
        raw(broker.port, "produce", requests=200, **options)
        for _ in range(DISK_ROUNDS):
            limit_us = fdatasync_us(directory)
            one = raw(broker.port, "produce", requests=1000, **options)
            sixteen = raw(
                broker.port, "produce", partitions=16, connections=16, requests=16_000, **options
            )
            rounds.append({
                "fdatasync_us": limit_us,
                "ack_p50_us": one["p50_us"],
                "of_fdatasync": one["p50_us"] / limit_us,
                "acks_s_16": sixteen["req_s"],
                "of_serial_syncs": sixteen["req_s"] * limit_us / 1e6,
            })  # fmt: skip
    return {name: median(each[name] for each in rounds) for name in rounds[0]}


def first_start(directory: Path) -> Figures:
    """Seconds from `smq serve` to its word that it is ready, when nothing is compiled yet."""
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    options = [f"--data-dir={directory / 'first'}", "--port=0"]
    started = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-m", "smq.cli.main", "serve", *options],
        env=environment | {"XDG_CACHE_HOME": str(directory / "cache")},
        stdout=subprocess.PIPE, text=True,
    ) as broker:  # fmt: skip
        assert broker.stdout is not None
        said = list(takewhile(lambda line: not line.startswith("ready"), broker.stdout))
        seconds = time.perf_counter() - started
        broker.terminate()
    if not any("compiled" in line for line in said):
        raise RuntimeError(f"no first start: {said}")
    return {"first_start_s": seconds}


def death(directory: Path) -> Figures:
    """Seconds until SMQ serves again after kill -9 of all its processes, and of a shard alone; 2 GB
    are in the WAL."""
    with SmqCommand(directory) as broker:
        with_topic = "death"
        raw(broker.port, "produce", topic=_create(broker, with_topic), bytes=WAL_BYTES)
        for pid in broker.pids():
            os.kill(pid, signal.SIGKILL)
        broker.kill("supervisor")
        started = time.perf_counter()
        broker.restart()
        serving_s = time.perf_counter() - started
        shard_s = median(_shard_death_s(broker) for _ in range(RESTARTS))
        return {"serving_s": serving_s, "shard_serving_s": shard_s}


def _shard_death_s(broker: SmqCommand) -> float:
    started = time.perf_counter()
    broker.kill("shard-1")
    broker.restart()
    return time.perf_counter() - started


def imports() -> Figures:
    """CPU seconds of the imports of a start, and of those of NumPy alone, with Python's own."""
    refused = ["-m", "smq.cli.main", "serve", "--data-dir=/dev/null/none"]  # After all imports.
    return {
        "imports_s": min(_python_s(*refused) for _ in range(IMPORTS)),
        "numpy_imports_s": min(_python_s("-c", "import numpy") for _ in range(IMPORTS)),
    }


def _python_s(*arguments: str) -> float:
    before = os.times()
    subprocess.run([sys.executable, *arguments], capture_output=True, check=False)
    after = os.times()
    return sum(after[2:4]) - sum(before[2:4])


def _create(broker: Broker, name: str) -> str:
    from smq.client.kafka.admin import create_topic  # noqa: PLC0415
    from smq.client.kafka.cluster import Cluster  # noqa: PLC0415

    with Cluster(broker.bootstrap) as cluster:
        create_topic(cluster, name, 1)
    return name
