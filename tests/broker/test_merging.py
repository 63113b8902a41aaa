"""Small segments of a real broker become few, under its readers' eyes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from smq.client.kafka.cluster import Cluster
from smq.testing.smq_broker import SmqBroker
from smq.wire.records import Record, write_batch
from tests.app.fake_broker import eventually
from tests.broker.one_topic import SETTINGS, OneTopic, query

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
ROUNDS, LEFT_MAX = 12, 5
OFTEN = {"seal.ms": "1", "log.retention.check.interval.ms": "200", "filer.sweep.ms": "400"}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SmqBroker]:
    with SmqBroker(tmp_path, SETTINGS | OFTEN) as broker:
        yield broker


def test_a_trickle_ends_in_few_files_and_all_readers_agree(broker: SmqBroker) -> None:
    values = [b"%d" % number for number in range(ROUNDS)]
    with Cluster(broker.bootstrap) as cluster:
        topic = OneTopic(broker, cluster, "trickle", {"retention.ms": "-1"})
        made: set[str] = set()
        for number, value in enumerate(values):
            topic.append(write_batch([Record(0, number, b"k", value)]))
            made |= {segment.path for segment in topic.wait_sealed(number + 1)}
        eventually(lambda: len(topic.segments()) <= LEFT_MAX, "they are merged")
        eventually(
            lambda: topic.files() == {segment.path for segment in topic.segments()},
            "the files that were replaced are swept",
        )
        assert len(made) >= ROUNDS
        files = [str(broker.data_dir / "filer" / each.path) for each in topic.segments()]
        found = query(f"SELECT _value FROM read_parquet({files}) ORDER BY _offset")
        assert [bytes(value) for (value,) in found] == values
        topic.seal_and_recycle(ROUNDS)
        assert [record.value for record in topic.records(ROUNDS)] == values
