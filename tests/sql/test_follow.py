"""A query over what comes."""

import threading
from itertools import pairwise

import pytest

from smq.sql.follow import results
from smq.sql.session import Bounds, Refused
from smq.testing.smq_broker import SmqBroker

BOUNDS = Bounds(256 << 20)


def test_each_interval_is_queried_by_itself_and_nothing_is_left_out(smq_broker: SmqBroker) -> None:
    wanted, stop = 20, threading.Event()

    def send() -> None:  # The consumer begins at the end, whenever it gets there.
        with smq_broker.connect() as client, client.producer() as producer:
            while not stop.wait(0.02):
                producer.send("ticks", b"1").result(30)

    sender = threading.Thread(target=send)
    query = 'SELECT count(*) AS n, min("offset") AS first, max("offset") AS last FROM ticks'
    intervals: list[dict[str, int]] = []
    with smq_broker.connect() as client:
        client.create_topic("ticks", 1)
        sender.start()
        try:
            for rows in results(query, client, BOUNDS, 0.1):
                intervals += rows.read_all().to_pylist()
                if sum(each["n"] for each in intervals) >= wanted:
                    break
        finally:
            stop.set()
            sender.join()
    assert len(intervals) > 1
    assert all(each["n"] == each["last"] - each["first"] + 1 for each in intervals)
    assert all(one["last"] + 1 == next_["first"] for one, next_ in pairwise(intervals))


def test_a_query_over_no_topic_or_two_is_refused(smq_broker: SmqBroker) -> None:
    with smq_broker.connect() as client:
        client.create_topic("a", 1)
        client.create_topic("b", 1)
        for query in ("SELECT 1", "SELECT * FROM a, b", "SELECT * FROM nope", "DROP TABLE a"):
            with pytest.raises(Refused):
                next(results(query, client, BOUNDS, 0.1))
