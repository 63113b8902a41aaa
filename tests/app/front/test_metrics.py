"""/metrics of a broker with HTTP."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from smq.testing.smq_broker import SmqBroker
from tests.app.fake_broker import eventually
from tests.app.http_client import ask

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SmqBroker]:
    with SmqBroker(tmp_path, {"http.port": "0"}) as broker:
        yield broker


def test_a_scraper_reads_it_and_many_scrapers_read_one_page(broker: SmqBroker) -> None:
    told = ask(broker, "GET", "/metrics")
    assert told.status == 200
    assert told.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = {each.name: each for each in text_string_to_metric_families(told.body.decode())}
    [ready] = families["smq_ready"].samples
    assert ready.value == 1
    processes = {each.labels["process"] for each in families["smq_process_ready"].samples}
    assert processes == {"shard-1", "coordinator", "sealer", "front", "supervisor"}
    with ThreadPoolExecutor(50) as pool:
        answers = [*pool.map(lambda _: ask(broker, "GET", "/metrics").status, range(100))]
    assert answers == [200] * 100


def test_requests_that_a_kernel_answers_are_timed_too(broker: SmqBroker) -> None:
    with broker.connect() as client, client.producer() as producer:
        client.create_topic("t", 1)
        for _ in range(20):
            producer.send("t", b"v").result()

    def counted() -> float:
        page = ask(broker, "GET", "/metrics").body.decode()
        families = {each.name: each for each in text_string_to_metric_families(page)}
        samples = families["smq_request_seconds"].samples
        return sum(
            each.value
            for each in samples
            if each.name.endswith("_count") and each.labels["api"] == "Produce"
        )

    eventually(lambda: counted() >= 20, "20 requests are counted")


def test_a_broker_is_ready_and_can_be_looked_into(broker: SmqBroker) -> None:
    told = ask(broker, "GET", "/health/ready")
    assert (told.status, told.json["ready"]) == (200, True)
    assert ask(broker, "GET", "/health/live").status == 200
    logs = ask(broker, "GET", "/debug/logs").json
    assert [each["log"] for each in logs["logs"]] == [0]


def test_a_late_group_is_said_on_stderr(tmp_path: Path) -> None:
    settings = {"http.port": "0", "lag.alert.rules": "late*: records > 3 for 0s"}
    with SmqBroker(tmp_path, settings) as broker:
        with broker.connect() as client:
            client.create_topic("t", 1)
            with client.producer() as producer:
                for _ in range(5):
                    producer.send("t", b"v")
            with client.consumer(group="late-one") as consumer:
                consumer.assign([("t", 0)])
                consumer.commit({("t", 0): 1})
        expected = "alert: group late-one is behind: 4 records"
        eventually(lambda: expected in broker.output.read_text(), "the alert is said")


def test_the_console_is_at_the_front_and_its_token_lets_it_change_something(
    broker: SmqBroker,
) -> None:
    token = broker.output.read_text().split("#token=")[1].split()[0]
    page = ask(broker, "GET", "/")
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert b"all serve" in page.body
    assert ask(broker, "POST", "/topics", b"name=made").status == 403
    assert ask(broker, "POST", "/topics", b"name=made", x_smq_token=token).status == 204
    broker.kill("front")  # The token is the supervisor's: the next front knows it.
    eventually(lambda: broker.status().processes["front"].ready, "the front is back")
    told = ask(broker, "POST", "/topics/made/messages", b"value=v", x_smq_token=token)
    assert b"Appended to partition" in told.body
    assert b"1 record." in ask(broker, "GET", "/topics/made/messages").body
    eventually(lambda: ask(broker, "GET", "/console/rates").json["series"][0], "rates are known")


def test_a_hundred_consoles_at_once_are_answered(broker: SmqBroker) -> None:
    with ThreadPoolExecutor(50) as pool:
        answers = [*pool.map(lambda _: ask(broker, "GET", "/").status, range(100))]
    assert answers == [200] * 100
