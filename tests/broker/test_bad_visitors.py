"""Scrapers, searches and webhooks that hang or ask for much: the broker serves on, and says so."""

import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from html import unescape
from pathlib import Path

import pytest

from smq.app.front.desk.reading import LOOKED_BYTES_MAX
from smq.testing.smq_broker import SmqBroker
from tests.app.fake_broker import eventually
from tests.app.http_client import ask

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
SCRAPERS = 100
PARTITIONS = 1000
BIG_BYTES = 900_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SmqBroker]:
    with SmqBroker(tmp_path, {"http.port": "0"}) as broker:
        yield broker


def produce_and_read(broker: SmqBroker, topic: str) -> None:
    """The broker serves: what is sent is read."""
    with broker.connect() as client:
        client.create_topic(topic, 1)
        with client.producer() as producer:
            assert producer.send(topic, b"v").result() is not None
        with client.consumer(start="earliest") as consumer:
            consumer.assign([(topic, 0)])
            assert [bytes(each.value or b"") for each in consumer.poll(10)] == [b"v"]


@pytest.mark.parametrize("said", [b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET /met"])
def test_hanging_scrapers_do_not_block_the_metrics(broker: SmqBroker, said: bytes) -> None:
    """They ask for a page that no socket holds and read none of it, or never end to ask."""
    host, _, port = broker.status().http.rpartition(":")
    with broker.connect() as client:
        client.create_topic("wide", PARTITIONS)
    with ExitStack() as hanging:
        for _ in range(SCRAPERS):
            scraper = hanging.enter_context(socket.socket())
            scraper.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            scraper.connect((host, int(port)))
            scraper.sendall(said)
        assert ask(broker, "GET", "/metrics").status == 200
        assert ask(broker, "GET", "/health/ready").status == 200
        produce_and_read(broker, "t")


def test_a_search_over_more_than_an_answer_may_read_says_how_far_it_came_and_goes_on(
    broker: SmqBroker,
) -> None:
    count = 2 * LOOKED_BYTES_MAX // BIG_BYTES + 10
    with broker.connect() as client:
        client.create_topic("big", 1)
        with client.producer() as producer:
            for number in range(count):
                producer.send("big", b"needle" if number == count - 1 else bytes(BIG_BYTES))
    path, answers = "/topics/big/messages?start=earliest&text=needle", 0
    while path:
        page = ask(broker, "GET", path).body.decode()
        answers += 1
        among = re.search(r"(\d) records? found among [\d,]+ \([\d.]+ MiB\)", page)
        assert among is not None, page
        more = re.findall(r'id="more" href="([^"]*)"', page)
        assert bool(more) == ("The search has not come to the end yet." in page)
        path = "/topics/big/messages" + unescape(more[0]) if more else ""
    assert among is not None
    assert among[1] == "1"
    assert answers >= 3


def test_a_webhook_that_does_not_answer_delays_no_alert_and_no_page(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        settings = {
            "http.port": "0",
            "lag.alert.rules": "late*: records > 3 for 0s",
            "lag.alert.webhook": f"http://127.0.0.1:{deaf.getsockname()[1]}/",
        }
        with SmqBroker(tmp_path, settings) as broker:
            with broker.connect() as client:
                client.create_topic("t", 1)
                with client.producer() as producer:
                    for _ in range(5):
                        producer.send("t", b"v")
                for group in ("late-1", "late-2"):
                    with client.consumer(group=group) as consumer:
                        consumer.assign([("t", 0)])
                        consumer.commit({("t", 0): 0})
            said = broker.output.read_text
            eventually(lambda: "alert: group late-2 is behind" in said(), "the alerts are said")
            assert "alert: group late-1 is behind" in said()
            assert ask(broker, "GET", "/metrics").status == 200
            eventually(lambda: "an alert was not sent to the webhook" in said(), "it is said")
