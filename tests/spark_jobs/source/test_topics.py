"""What there is of topics, sealed and live."""

import json
import pwd
import tempfile
from pathlib import Path

import pytest

from smq.client.facts import BrokerFacts
from smq.client.locate import AUTO, KAFKA
from smq.client.names import TopicPartition
from smq.filer.location import Location as Filer
from smq.store.store import FILE_NAME
from smq.tables.plan import Unreadable
from smq.testing.smq_broker import SmqBroker
from spark_jobs.source import topics
from spark_jobs.source.options import BrokerLocation, TopicSelection
from spark_jobs.source.topics import BrokerPlace, SparkTopics, find_place
from tests.another_user import needs_root, result_as
from tests.sealer.sealed import batch
from tests.spark_jobs.conftest import SealTopic

NOBODY = pwd.getpwnam("nobody").pw_uid
A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture
def sealed(tmp_path: Path, seal_topic: SealTopic) -> BrokerPlace:
    seal_topic([batch(0, 4), batch(4, 2, key=b"\xff"), batch(6, 4)])
    return find_place(BrokerLocation(None, str(tmp_path), None))


def test_sealed_records_are_found_without_a_broker(sealed: BrokerPlace) -> None:
    with SparkTopics(sealed, reads_live=False) as topics:
        [name] = topics.selected(TopicSelection(topics=frozenset({"orders"})))
        assert (topics.starts([name]), topics.ends([name])) == ({name: 0}, {name: 10})
        pieces = topics.pieces({name: (3, 9)}, topics.ids([name]))
        assert [(each.start, each.end) for each in pieces] == [(3, 4), (4, 6), (6, 9)]
        assert all(each.part is not None for each in pieces)
        assert topics.at_times({name: 0})[name] == 0
        assert topics.at_times({name: 2**60})[name] is None
        with pytest.raises(Unreadable, match="Topic orders was deleted and created again"):
            topics.pieces({name: (3, 9)}, {"orders": "0" * 31 + "7"})


def elsewhere(place: BrokerPlace) -> BrokerPlace:
    """As another host has it."""
    return BrokerPlace(place.bootstrap, None, None)


def test_topics_are_selected(smq_broker: SmqBroker) -> None:
    with smq_broker.connect() as client:
        for topic in ("orders", "orders-2", "other"):
            client.create_topic(topic, 2)
        schema = '{"fields": [{"name": "price", "type": "double"}]}'
        client.create_topic("typed", 1, {"smq.schema": schema})
    place = find_place(BrokerLocation(smq_broker.bootstrap, None, None))
    assert place.data_dir == smq_broker.data_dir
    with (
        SparkTopics(place, reads_live=True) as here,
        SparkTopics(elsewhere(place), reads_live=True) as far,
    ):
        assert here.schema("typed") == far.schema("typed") == schema
        assert here.schema("orders") == far.schema("orders") == ""
    with SparkTopics(place, reads_live=True) as topics:
        found = topics.selected(TopicSelection(pattern="orders.*"))
        assert [str(each.topic) for each in found] == ["orders"] * 2 + ["orders-2"] * 2
        assert topics.selected(TopicSelection(pattern="order")) == []
        assert topics.selected(TopicSelection(partitions=frozenset({B}))) == [B]
        with pytest.raises(Unreadable, match="there is no topic none"):
            topics.selected(TopicSelection(topics=frozenset({"none", "orders"})))
        gone = TopicSelection(topics=frozenset({"none", "orders"}))
        assert topics.selected(gone, only_existing=True) == [A, B]
        with pytest.raises(Unreadable, match="orders has no partition 7"):
            topics.selected(TopicSelection(partitions=frozenset({TopicPartition("orders", 7)})))


def test_unsealed_records_come_from_the_broker(smq_broker: SmqBroker) -> None:
    with smq_broker.connect() as client:
        client.create_topic("orders", 2)
        with client.producer() as producer:
            for time in (10, 20, 30):
                producer.send("orders", b"v", partition=0, timestamp_ms=time)
    with SparkTopics(
        find_place(BrokerLocation(smq_broker.bootstrap, None, None)), reads_live=True
    ) as topics:
        assert topics.ends([A, B]) == {A: 3, B: 0}
        assert topics.at_times({A: 15, B: 15}) == {A: 1, B: None}
        [piece] = topics.pieces({A: (1, 3), B: (0, 0)}, topics.ids([A]))
        assert piece.topic_id.hex == topics.ids([A])["orders"]
        assert (piece.part, piece.partition, piece.start, piece.end) == (None, 0, 1, 3)


def test_a_directory_without_a_broker_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="is not the data directory of a broker"):
        find_place(BrokerLocation(None, str(tmp_path), None))


def test_sealed_alone_needs_the_files() -> None:
    with pytest.raises(Unreadable, match="run on its host as its user, or give dataDir"):
        SparkTopics(BrokerPlace("host:1", None, None), reads_live=False)


def test_a_transport_of_kafka_finds_no_files(tmp_path: Path) -> None:
    for location in (
        BrokerLocation("host:1", None, None, config="c", transport=KAFKA),
        BrokerLocation(None, str(tmp_path), None, config="c", transport=KAFKA),
    ):
        place = find_place(location)
        address = location.bootstrap or location.data_dir
        assert place == BrokerPlace(address, None, None, "c", KAFKA)


@needs_root
def test_a_filer_of_another_user_is_not_read(smq_broker: SmqBroker) -> None:
    """As where a container has a volume of its own for segments."""
    with tempfile.TemporaryDirectory(prefix="smq-") as name:
        filer = Path(name) / "filer"
        filer.mkdir(mode=0o700)
        Path(name).chmod(0o755)
        store = Path(name) / FILE_NAME
        store.touch()
        store.chmod(0o644)
        by_directory = BrokerLocation(None, name, None)
        said = result_as(NOBODY, lambda: find_place(by_directory))
        assert said.startswith("Unreadable: ")
        assert "may not read; with the option transport=kafka all records come from" in said
        status = Path(name) / "status.json"
        status.write_text(json.dumps({"bootstrap": "", "cluster_id": "this"}))
        status.chmod(0o644)
        with pytest.MonkeyPatch.context() as patch:
            settings = {"data.dir": name, "filer.root": str(filer)}
            patch.setattr(topics, "_facts", lambda _cluster: BrokerFacts("this", settings))
            location = BrokerLocation(smq_broker.bootstrap, None, None)
            assert find_place(location).data_dir == Path(name), "as root"
            found = result_as(NOBODY, lambda: find_place(location))
    assert found == [smq_broker.bootstrap, None, None, None, AUTO]


def test_a_data_directory_of_another_cluster_is_not_read(
    smq_broker: SmqBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path that a broker of another host names was taken for its own."""
    location = BrokerLocation(smq_broker.bootstrap, None, None)
    assert find_place(location).data_dir == smq_broker.data_dir
    settings = {"data.dir": str(smq_broker.data_dir), "filer.root": str(smq_broker.data_dir)}
    monkeypatch.setattr(topics, "_facts", lambda _cluster: BrokerFacts("another", settings))
    assert find_place(location).data_dir is None


def test_a_filer_may_be_elsewhere(tmp_path: Path, seal_topic: SealTopic) -> None:
    place = find_place(BrokerLocation(None, str(tmp_path), "s3://bucket/there"))
    assert place.filer == Filer("s3://bucket/there")
