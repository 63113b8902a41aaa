"""A broker for a test: fresh, on ports of its own, and gone without a trace."""

import subprocess
import sys
from pathlib import Path

import pytest

from smq.client.kafka.admin import create_topic
from smq.client.kafka.cluster import Cluster
from smq.testing import broker
from smq.testing.processes import answers
from smq.testing.smq_broker import SUPERVISOR, SmqBroker, SmqCommand
from tests.app.fake_broker import gone


def topics(broker: SmqBroker) -> list[str]:
    with Cluster(broker.bootstrap) as cluster:
        return [topic.name for topic in cluster.topics() if not topic.is_internal]


def test_brokers_are_fresh_and_have_nothing_in_common() -> None:
    with broker() as one, broker() as two:
        with Cluster(one.bootstrap) as cluster:
            create_topic(cluster, "of-one")
        assert (topics(one), topics(two)) == (["of-one"], [])
        assert one.status().cluster_id != two.status().cluster_id
    with broker() as three:
        assert topics(three) == []


def test_nothing_is_left_of_a_broker() -> None:
    with broker() as one:
        places, pids = (one.data_dir.parent, one.runtime_dir), one.pids()
        assert all(place.is_dir() for place in places)
    assert all(gone(pid) for pid in pids)
    assert not any(place.exists() for place in places)
    assert not answers(one.port)


def test_every_setting_may_be_given() -> None:
    with broker(shards=2, num_partitions=3) as one, Cluster(one.bootstrap) as cluster:
        assert len(one.bootstrap.split(",")) == 2
        assert create_topic(cluster, "t") == 3


def test_wrong_settings_are_all_named_at_once() -> None:
    with pytest.raises(ValueError, match="no such setting; did you mean shards") as raised:
        broker(shard=2, durability="none").__enter__()
    assert "'none' is not one of memory, os, disk" in str(raised.value)


def test_a_stopped_broker_comes_back_on_its_port_with_its_data() -> None:
    with broker() as one:
        with Cluster(one.bootstrap) as cluster:
            create_topic(cluster, "stays")
        for down in (one.stop, lambda: one.kill(SUPERVISOR), lambda: one.kill("shard-1")):
            down()
            one.restart()
            assert topics(one) == ["stays"]
        one.stop()
        assert not answers(one.port)


def test_a_broker_that_cannot_start_says_why_and_keeps_nothing(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "meta.json").write_text('{"format_version": 99}')
    with pytest.raises(RuntimeError, match="made by a newer SMQ"):
        SmqBroker(tmp_path, runtime_home=tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"data", "output.log"}


@pytest.mark.slow
def test_the_command_is_a_broker_like_the_others(tmp_path: Path) -> None:
    with SmqCommand(tmp_path, {"shards": "2"}) as one:
        assert topics(one) == []
        assert len(one.pids()) == 5


def test_the_pytest_plugin_imports_no_heavy_module() -> None:
    code = "import sys, smq.testing.pytest_plugin; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"numpy", "numba", "pyarrow", "typer", "psutil"} & set(run.stdout.split())
