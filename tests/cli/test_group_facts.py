"""Lags are summed for each topic; a node that does not answer is reported, in time."""

import json
import os
import signal
import socket
from pathlib import Path

import pytest

from smq.app.process.clock import monotonic_ms
from smq.cli.group_facts import NO_SOCKETS, group_facts
from smq.client.client import connect
from smq.client.kafka.admin import create_topic, groups
from smq.client.kafka.cluster import Cluster
from smq.model.security_settings import STANDARD_AUTHORIZER
from smq.testing.smq_broker import SmqBroker
from tests.app.smq_command import smq


def directory_of(path: Path, address: str) -> Path:
    """A data directory whose broker has no unix sockets here."""
    (path / "status.json").write_text(json.dumps({"bootstrap": address}))
    return path


def test_a_broker_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    facts = group_facts(directory_of(tmp_path, f"127.0.0.1:{port}"))
    assert not facts.groups
    reason, sockets = facts.missing
    assert f"127.0.0.1:{port}" in reason
    assert sockets == NO_SOCKETS


def test_a_broker_that_has_stopped_meanwhile_is_said_so(tmp_path: Path) -> None:
    [reason] = group_facts(tmp_path).missing
    assert f"no broker serves the data directory {tmp_path}" in reason


def test_group_facts_waits_for_a_silent_broker_only_until_the_deadline(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        began_ms = monotonic_ms()
        facts = group_facts(directory_of(tmp_path, address), 0.1)
        assert monotonic_ms() - began_ms < 5000
    assert facts.missing == [f"{address} has not answered in 0.1 s", NO_SOCKETS]


def test_groups_are_shown_where_access_rules_hide_them_from_who_has_no_login(
    tmp_path: Path,
) -> None:
    with SmqBroker(tmp_path, {"authorizer.class.name": STANDARD_AUTHORIZER}) as broker:
        with connect(broker.data_dir) as client:
            client.create_topic("orders", 1)
            with client.producer() as producer:
                producer.send("orders", b"one")
            consumer = client.consumer("orders", group="readers", start="earliest")
            with consumer, consumer.poll():
                consumer.commit()
        with Cluster(broker.bootstrap) as cluster:
            assert groups(cluster) == []
        text = smq("status", "--data-dir", str(broker.data_dir)).stdout
        assert "\nreaders  " in text
        assert "missing" not in text


@pytest.mark.slow
def test_a_shard_that_hangs_costs_what_it_alone_knows(tmp_path: Path) -> None:
    with SmqBroker(tmp_path, {"shards": "2"}) as broker, Cluster(broker.bootstrap) as cluster:
        create_topic(cluster, "t", 2)
        command = ("status", "--data-dir", str(broker.data_dir))
        assert "missing" not in smq(*command).stdout
        silent = broker.status().sockets[1]
        hanging = broker.status().processes["shard-2"].pid
        os.kill(hanging, signal.SIGSTOP)
        began_ms = monotonic_ms()
        try:
            text = smq(*command).stdout
        finally:
            os.kill(hanging, signal.SIGCONT)
        assert monotonic_ms() - began_ms < 15_000  # Python starts, and others use the machine.
        lines = [line for line in text.splitlines() if line.startswith("missing: ")]
        assert lines == [f"missing: {silent} has not answered in 2 s"]
        assert "shard-2" in text
