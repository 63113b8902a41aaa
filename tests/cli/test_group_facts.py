"""Lags are summed for each topic; a node that does not answer is reported, in time."""

import os
import signal
import socket
from pathlib import Path

from smq.app.process.clock import monotonic_ms
from smq.cli.group_facts import group_facts
from smq.client.kafka.admin import create_topic
from smq.client.kafka.cluster import Cluster
from smq.testing.smq_broker import SmqBroker
from tests.app.smq_command import smq


def test_a_broker_that_is_not_there_is_said_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    facts = group_facts(f"127.0.0.1:{port}")
    assert not facts.groups
    [reason] = facts.missing
    assert f"127.0.0.1:{port}" in reason


def test_group_facts_waits_for_a_silent_broker_only_until_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        began_ms = monotonic_ms()
        facts = group_facts(address, 0.1)
        assert monotonic_ms() - began_ms < 5000
    assert facts.missing == [f"{address} has not answered in 0.1 s"]


def test_a_shard_that_hangs_costs_what_it_alone_knows(tmp_path: Path) -> None:
    with SmqBroker(tmp_path, {"shards": "2"}) as broker, Cluster(broker.bootstrap) as cluster:
        create_topic(cluster, "t", 2)
        command = ("status", "--data-dir", str(broker.data_dir))
        assert "missing" not in smq(*command).stdout
        hanging = broker.status().processes["shard-2"].pid
        os.kill(hanging, signal.SIGSTOP)
        began_ms = monotonic_ms()
        try:
            text = smq(*command).stdout
        finally:
            os.kill(hanging, signal.SIGCONT)
        assert monotonic_ms() - began_ms < 15_000  # Python starts, and others use the machine.
        lines = [line for line in text.splitlines() if line.startswith("missing: ")]
        assert lines == [f"missing: {broker.bootstrap.split(',')[1]} has not answered in 2 s"]
        assert "shard-2" in text
