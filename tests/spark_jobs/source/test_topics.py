"""What there is of topics, sealed and live."""

from pathlib import Path

import pytest

from smq.client.names import TopicPartition
from smq.filer.location import Location as Filer
from smq.tables.plan import Unreadable
from smq.testing.smq_broker import SmqBroker
from spark_jobs.source.options import Location, Selection
from spark_jobs.source.topics import Place, Topics, find_place
from tests.sealer.sealed import batch
from tests.spark_jobs.conftest import SealTopic

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture
def sealed(tmp_path: Path, seal_topic: SealTopic) -> Place:
    seal_topic([batch(0, 4), batch(4, 2, key=b"\xff"), batch(6, 4)])
    return find_place(Location(None, str(tmp_path), None))


def test_sealed_records_are_found_without_a_broker(sealed: Place) -> None:
    with Topics(sealed, reads_live=False) as topics:
        [name] = topics.selected(Selection(topics=frozenset({"orders"})))
        assert (topics.starts([name]), topics.ends([name])) == ({name: 0}, {name: 10})
        pieces = topics.pieces({name: (3, 9)}, topics.ids([name]))
        assert [(each.start, each.end) for each in pieces] == [(3, 4), (4, 6), (6, 9)]
        assert all(each.part is not None for each in pieces)
        assert topics.at_times({name: 0})[name] == 0
        assert topics.at_times({name: 2**60})[name] is None
        with pytest.raises(Unreadable, match="Topic orders was deleted and created again"):
            topics.pieces({name: (3, 9)}, {"orders": "0" * 31 + "7"})


def elsewhere(place: Place) -> Place:
    """As another host has it."""
    return Place(place.bootstrap, None, None)


def test_topics_are_selected(smq_broker: SmqBroker) -> None:
    with smq_broker.connect() as client:
        for topic in ("orders", "orders-2", "other"):
            client.create_topic(topic, 2)
        schema = '{"fields": [{"name": "price", "type": "double"}]}'
        client.create_topic("typed", 1, {"smq.schema": schema})
    place = find_place(Location(smq_broker.bootstrap, None, None))
    assert place.data_dir == smq_broker.data_dir
    with Topics(place, reads_live=True) as here, Topics(elsewhere(place), reads_live=True) as far:
        assert here.schema("typed") == far.schema("typed") == schema
        assert here.schema("orders") == far.schema("orders") == ""
    with Topics(place, reads_live=True) as topics:
        found = topics.selected(Selection(pattern="orders.*"))
        assert [str(each.topic) for each in found] == ["orders"] * 2 + ["orders-2"] * 2
        assert topics.selected(Selection(pattern="order")) == []
        assert topics.selected(Selection(partitions=frozenset({B}))) == [B]
        with pytest.raises(Unreadable, match="there is no topic none"):
            topics.selected(Selection(topics=frozenset({"none", "orders"})))
        gone = Selection(topics=frozenset({"none", "orders"}))
        assert topics.selected(gone, only_existing=True) == [A, B]
        with pytest.raises(Unreadable, match="orders has no partition 7"):
            topics.selected(Selection(partitions=frozenset({TopicPartition("orders", 7)})))


def test_what_is_not_sealed_comes_from_the_broker(smq_broker: SmqBroker) -> None:
    with smq_broker.connect() as client:
        client.create_topic("orders", 2)
        with client.producer() as producer:
            for time in (10, 20, 30):
                producer.send("orders", b"v", partition=0, timestamp_ms=time)
    with Topics(find_place(Location(smq_broker.bootstrap, None, None)), reads_live=True) as topics:
        assert topics.ends([A, B]) == {A: 3, B: 0}
        assert topics.at_times({A: 15, B: 15}) == {A: 1, B: None}
        [piece] = topics.pieces({A: (1, 3), B: (0, 0)}, topics.ids([A]))
        assert piece.topic_id.hex == topics.ids([A])["orders"]
        assert (piece.part, piece.partition, piece.start, piece.end) == (None, 0, 1, 3)


def test_a_directory_without_a_broker_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="is not the data directory of a broker"):
        find_place(Location(None, str(tmp_path), None))


def test_sealed_alone_needs_the_files() -> None:
    with pytest.raises(Unreadable, match="run on its host, or give dataDir"):
        Topics(Place("host:1", None, None), reads_live=False)


def test_a_filer_may_be_elsewhere(tmp_path: Path, seal_topic: SealTopic) -> None:
    place = find_place(Location(None, str(tmp_path), "s3://bucket/there"))
    assert place.filer == Filer("s3://bucket/there")
