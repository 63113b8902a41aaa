"""A process of the load."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any
from uuid import uuid4

import psutil
import pytest

from smq.app.process.clock import monotonic_ns
from smq.load.histogram import Latencies
from smq.load.schedule import NS
from smq.load.worker import Tally, told_every
from smq.load.workload import Workload
from smq.testing.smq_broker import SmqBroker

Say = Callable[[dict[str, Any]], None]


@contextmanager
def worker(kind: str, bootstrap: str, **task: Any) -> Iterator[tuple[Say, Iterator[Any]]]:
    """Its stdin, and what it tells."""
    workload = asdict(Workload(message_size=100, commits_per_second=5))
    common: dict[str, Any] = {
        "bootstrap": bootstrap,
        "workload": workload,
        "start_ns": monotonic_ns(),
    }
    common["run_pid"] = os.getpid()
    command = [sys.executable, "-m", "smq.load.worker"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        stdin = process.stdin

        def say(words: dict[str, Any]) -> None:
            stdin.write(json.dumps(words) + "\n")
            stdin.flush()

        say({"kind": kind, **common, **task})
        yield say, map(json.loads, process.stdout)
        process.kill()


def counted(told: Iterator[Any]) -> dict[str, int]:
    """The counts of all reports, up to the end."""
    totals: dict[str, int] = {}
    for each in told:
        for name, count in each.items():
            if "second" in each and name not in {"second", "latencies"}:
                totals[name] = totals.get(name, 0) + count
        if "done" in each:
            return totals
    raise AssertionError("it ended without saying that it is done")


@pytest.mark.slow
def test_producers_send_up_to_a_limit_and_consumers_read_it(smq_session_broker: SmqBroker) -> None:
    topic, address = uuid4().hex[:8], smq_session_broker.bootstrap
    with smq_session_broker.connect() as client:
        client.create_topic(topic, 1)
    with worker("produce", address, topics=[topic, topic]) as (say, told):
        assert next(each for each in told if "ready" in each)
        say({"go": {"rate": 400.0, "limit": 100, "start_ns": monotonic_ns()}})
        # What it has counted until then is told before and after.
        seen = []
        for each in told:
            seen.append(each)
            if "reached" in each:
                break
        say({"stop": True})
        rest = counted(told)
        acked = rest.get("acked", 0) + sum(each.get("acked", 0) for each in seen)
        assert acked == 202  # Each has sent one before.
    with worker("consume", address, members=[(topic, topic)]) as (say, told):
        assert next(each for each in told if "ready" in each)
        received = commits = 0
        for each in told:
            received += each.get("received", 0)
            commits += each.get("commits", 0)
            if received == 202 and commits > 1:
                break
        say({"leave": True})
        assert next(each for each in told if "rejoin" in each.get("latencies", {}))
        say({"stop": True})
        counted(told)


@pytest.mark.slow
def test_connections_are_asked_in_turn(smq_session_broker: SmqBroker) -> None:
    with worker("connect", smq_session_broker.bootstrap, connections=3) as (say, told):
        report = next(each for each in told if "request" in each.get("latencies", {}))
        assert "connections_failed" not in report
        say({"stop": True})
        counted(told)


def test_a_failed_worker_reports_a_sentence() -> None:
    with worker("connect", "127.0.0.1:1", connections=3) as (_, told):
        assert "of 3 connections the broker took 0" in next(told)["error"]


@pytest.mark.slow
def test_a_worker_ends_with_its_run() -> None:
    task: dict[str, Any] = {
        "kind": "consume",
        "bootstrap": "127.0.0.1:1",
        "workload": asdict(Workload()),
    }
    # The parent hands on its own stdin, which stays open, says whom it started, and ends.
    parent = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-m', 'smq.load.worker'], stdout=2)\n"
        "print(child.pid, flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        task |= {"members": [("t", "g")], "start_ns": 0, "run_pid": process.pid}
        process.stdin.write(json.dumps(task) + "\n")
        process.stdin.flush()
        worker_pid = int(process.stdout.readline())
        process.wait()
        psutil.wait_procs([psutil.Process(worker_pid)] if psutil.pid_exists(worker_pid) else [], 60)
        assert not psutil.pid_exists(worker_pid)


def test_a_tally_reports_what_came_since_the_last_report() -> None:
    tally = Tally()
    tally.add("acked", 2)
    tally.add("acked", 3)
    tally.late("publish", [monotonic_ns() - NS])
    report = tally.report(7)
    assert (report["second"], report["acked"]) == (7, 5)
    latencies = Latencies()
    latencies.add_encoded(report["latencies"]["publish"])
    assert latencies.at(50) >= 999_000
    assert tally.report(8) == {"second": 8, "latencies": {}}


def test_the_latency_of_fast_producers_is_sampled() -> None:
    rates = (1.0, 19_999.0, 50_000.0)
    assert [told_every(Workload(producer_rate=rate)) for rate in rates] == [1, 1, 3]
    assert told_every(Workload(producer_rate=50_000.0, producers_per_topic=3)) == 1
    at_full_speed = [Workload(producer_rate=None, message_size=size) for size in (100, 10**6)]
    assert [told_every(each) for each in at_full_speed] == [50, 1]
