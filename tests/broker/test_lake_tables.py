"""A real broker publishes topics as lake tables, whoever is killed, merged, expired or deleted."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake.exceptions import TableNotFoundError
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError

from smq.client.client import Client
from smq.client.kafka.admin import delete_topic
from smq.client.kafka.cluster import Cluster
from smq.sealer.lake.state import states
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
def test_each_record_is_in_the_table_once_whoever_is_killed(broker: SmqBroker, kind: str) -> None:
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
        eventually(lambda: not [*directory.rglob("*.*")], "its files are swept")
        assert rows_of(broker, kind, "clicks") == []
        client.create_topic("clicks", 1, {"smq.table": kind})
        send(client, "clicks", 0, range(7, 9))
        wanted = [(0, 0, b"7"), (0, 1, b"8")]
        eventually(lambda: rows_of(broker, kind, "clicks") == wanted, "the new topic has its own")
