"""The topics as SeaweedMQ names them, from a catalog and a store."""

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from shm.catalog import CatalogBlock
from smq.agent.layouts import RingLayout, RingRange
from smq.agent.topic_names import TopicName
from smq.app.agent.refusals import CallRefused
from smq.app.agent.topics import KnownTopics
from smq.model.catalog import Catalog, Topic
from smq.store.store import Store
from tests.model.configs import config_of

ORDERS = Topic("shop.orders", UUID(int=1), (1, 2), (0, 0), {"smq.namespace": "shop"})
CLICKS = Topic("clicks", UUID(int=2), (3,), (0,), {"smq.record.type": ""})


class Broker:
    """A catalog and a store, as the coordinator has them."""

    def __init__(self, path: Path) -> None:
        self.store = Store.open(path)
        self.block = CatalogBlock.create()
        self.topics = KnownTopics(self.block, self.store.layouts, config_of())
        self._version = 0

    def add(self, *topics: Topic) -> None:
        for each in topics:
            self.store.add_topic(each, 1000)
        self.publish(*topics)

    def publish(self, *topics: Topic) -> None:
        self._version += 1
        named = {each.name: each for each in topics}
        self.block.publish(Catalog("c", self._version, named).encode())


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path / "store.sqlite")


def test_topics_have_their_namespaces(broker: Broker) -> None:
    broker.add(ORDERS, CLICKS)
    assert [*broker.topics.all()] == [TopicName("kafka", "clicks"), TopicName("shop", "orders")]
    found = broker.topics.find(TopicName("shop", "orders"))
    assert (found.kafka_name, found.layouts) == ("shop.orders", (RingLayout(1000 * 10**6, 2),))
    assert broker.topics.find_or_none(TopicName("kafka", "shop.orders")) is None
    assert broker.topics.has_kafka_name("shop.orders")
    with pytest.raises(CallRefused, match="there is no topic shop/clicks"):
        broker.topics.find(TopicName("shop", "clicks"))


def test_a_topic_that_has_grown_keeps_its_older_layouts(broker: Broker) -> None:
    broker.add(CLICKS)
    name = TopicName("kafka", "clicks")
    first = broker.topics.find(name)
    grown = replace(CLICKS, partition_numbers=(3, 4), logs=(0, 0))
    broker.store.add_partitions(grown, 1, 2000)
    broker.publish(grown)
    now = broker.topics.find(name)
    assert now.layouts == (*first.layouts, RingLayout(2000 * 10**6, 2))
    assert now.partition_of(RingRange(2520, 0, 2520, first.layout.began_ns)) == 0
    assert now.partition_of(RingRange(2520, 1260, 2520, 0)) == 1


def test_a_topic_with_more_partitions_than_slots_is_refused(broker: Broker) -> None:
    many = replace(CLICKS, partition_numbers=tuple(range(2521)), logs=(0,) * 2521)
    broker.publish(many)
    with pytest.raises(ValueError, match="2521 partitions"):
        broker.topics.find(TopicName("kafka", "clicks"))


def test_a_setting_is_the_topics_own_or_the_brokers(broker: Broker) -> None:
    broker.add(replace(CLICKS, configs={"retention.ms": "5"}), ORDERS)
    clicks = broker.topics.find(TopicName("kafka", "clicks"))
    assert broker.topics.setting(clicks, "retention.ms") == "5"
    assert broker.topics.setting(clicks, "cleanup.policy") == "delete"
