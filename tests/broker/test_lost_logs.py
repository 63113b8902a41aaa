"""Logs whose files are gone: what is sealed stays, and no offset is given again."""

import shutil
from pathlib import Path

import pytest

from smq.client.kafka.cluster import Cluster
from smq.testing.smq_broker import SUPERVISOR, SmqBroker
from smq.wire.records import Record, write_batch
from tests.app.fake_broker import eventually
from tests.broker.one_topic import SETTINGS, OneTopic

pytestmark = pytest.mark.timeout(120)


def test_a_partition_whose_log_is_gone_goes_on_behind_what_is_sealed(tmp_path: Path) -> None:
    with SmqBroker(tmp_path, SETTINGS) as broker, Cluster(broker.bootstrap) as cluster:
        topic = OneTopic(broker, cluster, "lost", {"retention.ms": "-1"})
        sent = [
            Record(topic.append(write_batch([Record(0, 5, b"k", b"%d" % i)])), 5, b"k", b"%d" % i)
            for i in range(10)
        ]
        topic.wait_sealed(10)
        broker.kill(SUPERVISOR)
        shutil.rmtree(broker.data_dir / "logs")
        broker.restart()
        cluster.forget()
        after = Record(topic.append(write_batch([Record(0, 6, b"k", b"new")])), 6, b"k", b"new")
        assert after.offset == 10
        assert topic.records(11) == [*sent, after]
        said = "partitions ended here before what is sealed"
        eventually(lambda: said in broker.tail(), "the broker says what has happened")
        broker.kill(SUPERVISOR)
        broker.restart()
        cluster.forget()
        assert topic.records(11) == [*sent, after]
