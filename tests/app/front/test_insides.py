"""The insides of a running broker: connections, slow requests, memory."""

import os
import shutil
import signal
import sys
from pathlib import Path
from threading import Timer

import pytest

import smq
from smq.app.front.insides import insides
from smq.app.process.status import read_status
from smq.client.kafka import admin
from smq.client.kafka.cluster import Cluster
from smq.model.errors import Unavailable
from smq.testing import broker

HELD_S = 0.5


def test_where_nothing_serves_it_is_said(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="no broker serves it"):
        insides(tmp_path)["slow"]()


@pytest.mark.slow
def test_each_page_tells_of_a_broker_that_serves() -> None:
    with broker() as serving, smq.connect(serving.bootstrap, transport="kafka") as client:
        client.create_topic("t")
        with client.consumer("t", group="g", start="earliest") as consumer:
            with client.producer() as producer:
                producer.send("t", b"v").result()
            with consumer.poll(timeout_s=30):
                pass
            pages = insides(serving.data_dir)
            (group,) = pages["members"]()
            clients, helpers = pages["connections"](), pages["helpers"]()
            locks = pages["locks"]()
        ours = {each["process"] for each in helpers}
    assert group["group_id"] == "g"
    assert group["state"] == "Stable"
    assert group["members"][0]["session_timeout_ms"] > 0
    assert {each["process"] for each in clients} == {"shard-1"}
    assert {"shard-1", "coordinator", "sealer", "supervisor"} <= ours
    assert {each["file"] for each in locks} == {"lock", "supervisor.lock"}


@pytest.mark.slow
def test_a_slow_request_says_that_it_waited_for_the_coordinator() -> None:
    with broker() as serving, Cluster(serving.bootstrap, 30) as cluster:
        admin.groups(cluster)
        found = read_status(serving.data_dir)
        assert found is not None
        coordinator = found[0].processes["coordinator"].pid
        os.kill(coordinator, signal.SIGSTOP)
        Timer(HELD_S, os.kill, (coordinator, signal.SIGCONT)).start()
        admin.create_topic(cluster, "t", 1)
        slow = insides(serving.data_dir)["slow"]()
    (created,) = (each for each in slow if each["api"] == "CreateTopics")
    assert created["waited_for"] == "the coordinator"
    assert created["waited_ms"] >= 0.9 * HELD_S * 1000
    assert created["handled_ms"] < created["waited_ms"]
    assert created["client"].startswith("127.0.0.1")


@pytest.mark.slow
@pytest.mark.skipif(
    not shutil.which("py-spy", path=str(Path(sys.executable).parent)), reason="no py-spy"
)
def test_stacks_are_those_of_each_process() -> None:
    with broker() as serving:
        stacks = insides(serving.data_dir)["stacks"]()
    assert {"shard-1", "coordinator"} <= {each["process"] for each in stacks}
    assert all(each["stack"] for each in stacks)
