"""A real broker publishes topics as lake tables through kills, merges, expiry and deletion."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake.exceptions import TableNotFoundError
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError

from smq.cli.broker_facts import broker_facts
from smq.client.client import Client
from smq.client.kafka.admin import delete_topic
from smq.client.kafka.cluster import Cluster
from smq.client.kafka.topic_changes import alter_topic
from smq.filer.location import Location
from smq.model.errors import BrokerError
from smq.sealer.lake.state import states
from smq.sql.session import QueryBounds, TopicSource, running
from smq.testing.smq_broker import SUPERVISOR, SmqBroker
from tests.app.fake_broker import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
OFTEN = {
    "seal.ms": "1",
    "log.retention.check.interval.ms": "500",
    "filer.sweep.ms": "400",
    "shards": "1",
}
Row = tuple[int, int, bytes]
MISSING = (TableNotFoundError, NoSuchTableError, FileNotFoundError)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SmqBroker]:
    with SmqBroker(tmp_path, OFTEN) as broker:
        yield broker


def send(client: Client, topic: str, partition: int, values: range) -> None:
    with client.producer() as producer:
        for number in values:
            producer.send(topic, b"%d" % number, partition=partition)
        producer.flush()


def rows_of(broker: SmqBroker, kind: str, topic: str) -> list[Row]:
    """The rows of the table as Polars reads them; none while there is no table."""
    try:
        table = _frame(broker, kind, topic)
    except MISSING:
        return []
    names = ["partition", "_offset", "_value"]
    return sorted(zip(*(table[name].to_list() for name in names), strict=True))


def _frame(broker: SmqBroker, kind: str, topic: str) -> Any:
    if kind == "delta":
        return pl.read_delta(str(broker.data_dir / "filer" / "topics" / "kafka" / topic))
    catalog = load_catalog("smq", type="sql", uri=f"sqlite:///{broker.data_dir}/iceberg.sqlite")
    return pl.from_arrow(catalog.load_table(("kafka", topic)).scan().to_arrow())


@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_each_record_is_in_the_table_once_after_any_kill(broker: SmqBroker, kind: str) -> None:
    sent = 0
    with broker.connect() as client:
        client.create_topic("orders", 2, {"smq.table": kind, "retention.ms": "-1"})
    for victim in (None, "sealer", None, "sealer", SUPERVISOR, None):
        with broker.connect() as client:
            for partition in (0, 1):
                send(client, "orders", partition, range(sent, sent + 5))
        sent += 5
        if victim is not None:
            broker.kill(victim)
            broker.restart()
    wanted = [(partition, n, b"%d" % n) for partition in (0, 1) for n in range(sent)]
    eventually(lambda: rows_of(broker, kind, "orders") == wanted, "the table has each row once")


@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_a_topic_that_is_deleted_takes_its_table_along(broker: SmqBroker, kind: str) -> None:
    with broker.connect() as client:
        client.create_topic("clicks", 1, {"smq.table": kind})
        send(client, "clicks", 0, range(3))
        eventually(lambda: len(rows_of(broker, kind, "clicks")) == 3, "it is published")
        with Cluster(broker.bootstrap) as cluster:
            delete_topic(cluster, "clicks")
        eventually(lambda: not list(states(broker.data_dir)), "the table is dropped")
        directory = broker.data_dir / "filer" / "topics" / "kafka" / "clicks"
        eventually(lambda: not directory.exists(), "its files are swept, and where they lay")
        assert rows_of(broker, kind, "clicks") == []
        client.create_topic("clicks", 1, {"smq.table": kind})
        send(client, "clicks", 0, range(7, 9))
        wanted = [(0, 0, b"7"), (0, 1, b"8")]
        eventually(lambda: rows_of(broker, kind, "clicks") == wanted, "the new topic has its own")


PRICE = {"name": "price", "type": "double"}
NAME = {"name": "name", "type": "string"}


def schema(*fields: dict[str, str]) -> str:
    return json.dumps({"fields": fields})


@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_values_are_typed_columns_in_table_and_sql(broker: SmqBroker, kind: str) -> None:
    with broker.connect() as client:
        client.create_topic("bids", 1, {"smq.table": kind, "smq.schema": schema(PRICE)})
        with client.producer() as producer:
            for value in (b'{"price": 1.5, "name": "a"}', b"no JSON", b'{"price": "x"}'):
                producer.send("bids", value)
        eventually(lambda: len(rows_of(broker, kind, "bids")) == 3, "it is published")
        with Cluster(broker.bootstrap) as cluster:
            with pytest.raises(BrokerError, match="it lacks the column price"):
                alter_topic(cluster, "bids", {"smq.schema": schema(NAME)}, [])
            alter_topic(cluster, "bids", {"smq.schema": schema(PRICE, NAME)}, [])
        eventually(lambda: "name" in _frame(broker, kind, "bids").columns, "the column is there")
        with client.producer() as producer:
            producer.send("bids", b'{"price": 2, "name": "b"}')
        eventually(lambda: len(rows_of(broker, kind, "bids")) == 4, "it is published")
    frame = _frame(broker, kind, "bids").sort("_offset")
    assert frame["price"].to_list() == [1.5, None, None, 2.0]
    assert frame["name"].to_list()[1:] == [None, None, "b"]
    query = "SELECT price, value FROM bids WHERE price IS NOT NULL ORDER BY price"
    topics = TopicSource(broker.data_dir, Location(str(broker.data_dir / "filer")), None)
    with running(query, topics, QueryBounds(1 << 28, None)) as found:
        assert found.read_all()["price"].to_pylist() == [1.5, 2.0]
    facts = broker_facts(broker.data_dir, 0.1)
    assert facts is not None
    [topic] = [each for each in facts["topics"] if each["name"] == "bids"]
    assert topic["untyped_records"] == 2
