"""A query over what comes."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import pytest

from smq.client.client import Client
from smq.filer.location import Location
from smq.sql.follow import results
from smq.sql.session import QueryBounds, QueryRefused, TopicSource, running
from smq.testing.smq_broker import SmqBroker

BOUNDS = QueryBounds(256 << 20)


def topics_of(broker: SmqBroker, client: Client) -> TopicSource:
    return TopicSource(broker.data_dir, Location(str(broker.data_dir / "filer")), client)


@contextmanager
def sending(broker: SmqBroker, topic: str, value: bytes) -> Iterator[None]:
    """Send a value again and again: a query begins at the end, whenever it gets there."""
    stop = threading.Event()

    def send() -> None:
        with broker.connect() as client, client.producer() as producer:
            while not stop.wait(0.02):
                producer.send(topic, value).result(30)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        stop.set()
        sender.join()


def test_each_interval_is_queried_by_itself_and_nothing_is_left_out(smq_broker: SmqBroker) -> None:
    wanted = 20
    query = 'SELECT count(*) AS n, min("offset") AS first, max("offset") AS last FROM ticks'
    intervals: list[dict[str, int]] = []
    with smq_broker.connect() as client:
        client.create_topic("ticks", 1)
        with sending(smq_broker, "ticks", b"1"):
            for rows in results(query, topics_of(smq_broker, client), client, BOUNDS, 0.1):
                intervals += rows.read_all().to_pylist()
                if sum(each["n"] for each in intervals) >= wanted:
                    break
    assert len(intervals) > 1
    assert all(each["n"] == each["last"] - each["first"] + 1 for each in intervals)
    assert all(one["last"] + 1 == next_["first"] for one, next_ in pairwise(intervals))


def test_a_query_over_no_topic_or_two_is_refused(smq_broker: SmqBroker) -> None:
    with smq_broker.connect() as client:
        client.create_topic("a", 1)
        client.create_topic("b", 1)
        for query in ("SELECT 1", "SELECT * FROM a, b", "SELECT * FROM nope", "DROP TABLE a"):
            with pytest.raises(QueryRefused):
                next(results(query, topics_of(smq_broker, client), client, BOUNDS, 0.1))


def test_columns_are_typed_as_in_a_query_that_does_not_follow(smq_broker: SmqBroker) -> None:
    schema = {"fields": [{"name": "price", "type": "double"}, {"name": "n", "type": "int32"}]}
    query = "SELECT * FROM bids WHERE price > 1"
    with smq_broker.connect() as client:
        client.create_topic("bids", 1, {"smq.schema": json.dumps(schema)})
        topics = topics_of(smq_broker, client)
        with sending(smq_broker, "bids", b'{"price": 1.5, "n": 7}'):
            found = next(results(query, topics, client, BOUNDS, 0.1)).read_all()
        with running(query, topics, BOUNDS) as rows:
            plain = rows.read_all()
    assert found.schema == plain.schema
    assert {(row["price"], row["n"]) for row in found.to_pylist()} == {(1.5, 7)}
