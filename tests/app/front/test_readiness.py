"""Readiness of a real broker."""

import os
import signal
from dataclasses import replace
from pathlib import Path

from smq.app.front.observer import Observer
from smq.app.front.readiness import readiness
from smq.front.metrics.facts import Facts
from smq.testing.smq_broker import SmqBroker


def test_every_process_shard_disk_and_log_is_checked(smq_session_broker: SmqBroker) -> None:
    data_dir = smq_session_broker.data_dir
    observer = Observer(data_dir)
    told = readiness(data_dir, smq_session_broker.runtime_dir, observer.look)
    assert told["ready"], told
    assert {*told["checks"]} == {"shard-1", "coordinator", "sealer", "disk", "log-0"}


def test_a_shard_that_hangs_a_full_disk_and_a_full_log_are_said(
    smq_session_broker: SmqBroker,
) -> None:
    data_dir = smq_session_broker.data_dir
    observer = Observer(data_dir)

    def full() -> Facts:
        facts = observer.look()
        logs = [each._replace(wal_room_bytes=0) for each in facts.logs]
        return replace(facts, disk_free_bytes=17, logs=logs)

    runtime_dir = smq_session_broker.runtime_dir
    pid = smq_session_broker.status().processes["shard-1"].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        told = readiness(data_dir, runtime_dir, full)
    finally:
        os.kill(pid, signal.SIGCONT)
    reasons = {name: each["reason"] for name, each in told["checks"].items() if each["reason"]}
    assert not told["ready"]
    assert reasons["shard-1"].startswith("it does not answer")
    assert reasons["disk"].startswith("17 bytes are free")
    assert reasons["log-0"] == "wal.bytes.max is reached: the sealer is behind"


def test_an_unserved_directory_is_not_ready(tmp_path: Path) -> None:
    told = readiness(tmp_path, tmp_path, lambda: Facts(version="1", is_ready=False, started_ms=0))
    assert told["checks"]["broker"]["reason"] == "no broker serves this directory"
    assert not told["ready"]


def test_a_shard_is_ready_whose_listeners_want_tls(
    smq_session_broker: SmqBroker, tmp_path: Path
) -> None:
    """It is asked over its own socket: no listener answers at this address."""
    broker = smq_session_broker
    replace(broker.status(), bootstrap="127.0.0.9:9").write(tmp_path)
    told = readiness(tmp_path, broker.runtime_dir, Observer(broker.data_dir).look)
    assert told["checks"]["shard-1"] == {"ready": True, "reason": ""}
