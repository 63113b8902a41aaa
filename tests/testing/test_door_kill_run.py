"""Short slices of the door's kill run; `python -m smq.testing.door_kill_run` is all of it."""

import os
from pathlib import Path

import pytest

from smq.client.kafka.admin import create_topic
from smq.client.kafka.cluster import Cluster
from smq.testing import door_kill_run as module
from smq.testing.door_kill_run import RECORD, TOPIC, Wrong, door_kill_run, read_again
from smq.testing.smq_broker import SmqCommand


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_lost_record_ends_the_last_reading_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SmqCommand(tmp_path, {"shards": "1"}) as broker:
        with Cluster(broker.bootstrap) as cluster:
            create_topic(cluster, TOPIC, 1)
        with broker.connect() as client, client.producer() as producer:
            for number in range(10):
                producer.send(TOPIC, RECORD.pack(0, number), partition=0)
        assert read_again(broker, 10) == {0: 10}
        monkeypatch.setattr(module, "QUIET_SECONDS_MAX", 0.1)
        with pytest.raises(Wrong, match="10 of 11 records are read again"):
            read_again(broker, 11)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_hundred_killed_producers_leave_whole_records_and_a_shard_that_answers(
    tmp_path: Path,
) -> None:
    door_kill_run(tmp_path, seed=5, kills=100, say=print)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_two_thousand_kills_mid_write_never_wedge_a_shard(tmp_path: Path) -> None:
    door_kill_run(tmp_path, seed=int(os.environ.get("SEED", "7")), kills=2000, say=print)
